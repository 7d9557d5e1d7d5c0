"""Repositories and surroundings that are seldom met: by the real program."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.program import command, run, write_story
from tests.conftest import git

ROOT = Path(__file__).parents[2]


def test_a_locale_that_knows_no_umlauts_changes_no_name(make_repository: Callable[..., Path]) -> None:
    """Folders, stories and files with other letters work there, too, and sessions keep their locale."""
    repo = make_repository("größe", files={"ä": "x"})
    write_story(repo, "a", title="Maß", command='echo "$LC_ALL" > ö; echo y >> ä', verify=["test -e ö"])
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = run(repo, "run", "--json", env=poor)
    assert (ran.code, ran.story("a")["title"]) == (0, "Maß"), ran.err
    assert git(repo, "-c", "core.quotePath=false", "diff", "--name-only", "main", "autopilot/a") == "ä\nö\n"
    assert git(repo, "show", "autopilot/a:ö") == "C\n"


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    """Somebody deleted the folder that the shell stands in: a user's error, and no riddle."""
    gone = tmp_path / "gone"
    for arguments in ("run", "status", "plan"):
        gone.mkdir()
        leave = shlex.join(["env", f"PYTHONPATH={ROOT}", *command(arguments)])
        done = subprocess.run(
            ["sh", "-c", f"rmdir {gone}; {leave}"], cwd=gone, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert done.stderr.startswith("error: the current folder no longer exists\nhint: ")


def test_a_submodule_is_bumped_and_what_is_left_in_it_is_told(repo: Path, tmp_path: Path) -> None:
    """A story may move a submodule on; files it leaves uncommitted there fail it and stay."""
    library = tmp_path / "library"
    subprocess.run(["git", "init", "-q", str(library)], check=True)
    for text in ("old", "new"):
        (library / "code").write_text(text)
        git(library, "add", "-A")
        git(library, "commit", "-q", "-m", text)
    old = git(library, "rev-parse", "HEAD~1").strip()
    allowed = ("-c", "protocol.file.allow=always")
    git(repo, *allowed, "submodule", "--quiet", "add", str(library), "lib")
    git(repo, "commit", "-q", "-m", "with a submodule")
    bring = "git -c protocol.file.allow=always submodule --quiet update"
    write_story(
        repo, "bump", command=f"{bring} && git -C lib checkout -q {old}", verify=["grep old lib/code"]
    )
    write_story(repo, "edit", command=f"{bring} && echo more >> lib/code", verify=["grep more lib/code"])
    ran = run(repo, "--json")
    assert (ran.story("bump")["status"], ran.story("edit")["status"]) == ("done", "failed"), ran.err
    assert git(repo, "rev-parse", "autopilot/bump:lib").strip() == old
    assert ran.story("edit")["reason"].endswith("repo.worktrees/edit: lib")
    assert (tmp_path / "repo.worktrees" / "edit" / "lib" / "code").read_text() == "newmore\n"
