"""The merge driver with real git: story branches that all changed the state file join without a conflict."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isolation.errors import MergeConflictError
from isolation.git.commits import merge_parents
from isolation.git.repository import Repository
from runner.flows.merge_driver import INSTALL, UNINSTALL, execute, install, is_installed, uninstall
from runner.flows.state.reading import parse_state
from tests.conftest import git
from tests.flows.state.samples import text_of

AUTODEV, RICH = "_docs/_autodev_state.md", "_docs/_autopilot_state.md"
NOTES = "\n## Notes of the team\n\nkeep me\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the program on the PATH under its own name, as an installation does."""
    path = tmp_path / "bin" / "autopilot-multi"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m runner "$@"\n')
    path.chmod(0o755)
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(root))
    return path


@pytest.fixture
def branches(repo: Path) -> Path:
    """Return a repository with three story branches: two moved on, one added a section nobody knows."""
    (repo / "_docs").mkdir()
    for name, sample in ((AUTODEV, "autodev-implement"), (RICH, "rich-plan")):
        (repo / name).write_bytes(text_of(sample).encode())
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "state")
    autodev, rich = text_of("autodev-implement"), text_of("rich-plan")
    decision = rich.index("\n", rich.index("## Key Decisions")) + 1
    changes = {
        "a": (
            autodev.replace("step: 10", "step: 11", 1).replace("name: Implement", "name: Run Tests", 1),
            rich[:decision] + "- of story a\n" + rich[decision:],
        ),
        "b": (
            autodev.replace("retry_count: 0", "retry_count: 1"),
            rich[:decision] + "- of story b\n" + rich[decision:],
        ),
        "c": (autodev + NOTES, rich + NOTES),
    }
    for story, texts in changes.items():
        git(repo, "switch", "-q", "-c", f"autopilot/{story}", "main")
        for name, text in zip((AUTODEV, RICH), texts, strict=True):
            (repo / name).write_text(text)
        (repo / f"{story}.py").write_text(f"# the work of {story}\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", f"story {story}")
    git(repo, "switch", "-q", "main")
    return repo


def merge(repo: Path, story: str) -> "subprocess.CompletedProcess[str]":
    """Merge a story's branch as a person does."""
    argv = ["git", "merge", "-q", "--no-edit", f"autopilot/{story}"]
    return subprocess.run(argv, cwd=repo, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.usefixtures("program")
def test_branches_that_changed_the_same_state_file_merge(branches: Path) -> None:
    """All three merge one after the other; the furthest place counts, and nothing that was added is lost."""
    install(Repository.open(branches))
    for story in "abc":
        merged = merge(branches, story)
        assert merged.returncode == 0, merged.stdout + merged.stderr
    assert git(branches, "status", "--porcelain") == ""
    text = (branches / AUTODEV).read_text()
    state = parse_state(text)
    assert (state.step, state.name) == ("11", "Run Tests")
    assert text.count("## Notes of the team") == 1
    assert "<<<<<<<" not in text
    rich = (branches / RICH).read_text()
    assert {"of story a", "of story b"} <= set(parse_state(rich).decisions)
    assert "keep me" in rich


@pytest.mark.usefixtures("program")
def test_without_the_driver_they_conflict(branches: Path) -> None:
    """Before the consent, and after it was taken back, git does what it always does."""
    assert merge(branches, "a").returncode == 0
    assert merge(branches, "b").returncode == 1
    assert "<<<<<<<" in (branches / RICH).read_text()
    git(branches, "merge", "--abort")
    repository = Repository.open(branches)
    install(repository)
    assert merge(branches, "b").returncode == 0
    git(branches, "reset", "-q", "--hard", "HEAD~1")
    uninstall(repository)
    assert merge(branches, "b").returncode == 1


@pytest.mark.usefixtures("program")
def test_dependencies_merge_too(branches: Path) -> None:
    """A story that depends on two others starts from both: the runner's own merge uses the driver."""
    repository = Repository.open(branches)
    tips = ["autopilot/a", "autopilot/b"]
    with pytest.raises(MergeConflictError, match=r"_docs/_autopilot_state\.md"):
        merge_parents(repository, tips, "both")
    install(repository)
    merged = merge_parents(repository, tips, "both")
    decisions = parse_state(git(branches, "show", f"{merged}:{RICH}")).decisions
    assert {"of story a", "of story b"} <= set(decisions)


@pytest.mark.usefixtures("program")
def test_an_unreadable_side_is_kept_word_for_word(branches: Path) -> None:
    """What cannot be understood is neither dropped nor a conflict."""
    install(Repository.open(branches))
    git(branches, "switch", "-q", "autopilot/b")
    (branches / AUTODEV).write_text("# only a remark of mine\n")
    git(branches, "commit", "-q", "-a", "-m", "broken")
    git(branches, "switch", "-q", "main")
    assert merge(branches, "a").returncode == 0
    assert merge(branches, "b").returncode == 0
    text = (branches / AUTODEV).read_text()
    assert "# only a remark of mine" in text
    assert parse_state(text).step == "11"


def test_without_the_program_git_reports_a_conflict(branches: Path, tmp_path: Path) -> None:
    """Where it is not installed nothing is lost: the merge stops at a conflict, with our side in place."""
    install(Repository.open(branches))
    (tmp_path / "empty").mkdir()
    assert merge(branches, "a").returncode == 0
    ours = (branches / RICH).read_text()
    path = os.pathsep.join(
        folder for folder in os.environ["PATH"].split(":") if not Path(folder, "autopilot-multi").exists()
    )
    merged = subprocess.run(
        ["git", "merge", "-q", "--no-edit", "autopilot/b"],
        cwd=branches,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert merged.returncode == 1
    assert (branches / RICH).read_text() == ours
    assert RICH in git(branches, "diff", "--name-only", "--diff-filter=U")


def test_installing_touches_only_the_repositorys_own_settings(repo: Path) -> None:
    """Other lines stay, twice is once, all worktrees follow, and afterwards all is as before."""
    attributes = repo / ".git" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("*.png binary\n# mine")
    attributes.chmod(0o600)
    config = git(repo, "config", "--local", "--list")
    git(repo, "worktree", "add", "-q", "-b", "w", str(repo.parent / "w"))
    linked = Repository.open(repo.parent / "w")
    assert not is_installed(linked)
    install(linked)
    install(linked)
    assert is_installed(Repository.open(repo))
    assert attributes.read_text().splitlines() == [
        "*.png binary",
        "# mine",
        "_docs/_autodev_state.md merge=autopilot-state",
        "_docs/_autopilot_state.md merge=autopilot-state",
        "_docs/stories/*/_autodev_state.md merge=autopilot-state",
        "_docs/stories/*/_autopilot_state.md merge=autopilot-state",
    ]
    assert attributes.stat().st_mode & 0o777 == 0o600
    driver = git(repo, "config", "--get-all", "merge.autopilot-state.driver")
    assert driver == "autopilot-multi state merge-driver %O %A %B\n"
    for checkout in (repo, repo.parent / "w"):
        assert git(checkout, "status", "--porcelain") == ""
        assert "autopilot-state" in git(checkout, "check-attr", "merge", AUTODEV)
    uninstall(linked)
    uninstall(linked)
    assert not is_installed(linked)
    assert attributes.read_text().splitlines() == ["*.png binary", "# mine"]
    assert git(repo, "config", "--local", "--list") == config


def test_half_an_installation_is_none(repo: Path) -> None:
    """Lines without a driver, or another driver, are mended by installing again."""
    repository = Repository.open(repo)
    install(repository)
    git(repo, "config", "merge.autopilot-state.driver", "false")
    assert not is_installed(repository)
    install(repository)
    assert is_installed(repository)
    attributes = repo / ".git" / "info" / "attributes"
    attributes.write_text(attributes.read_text().splitlines()[0] + "\n")
    assert not is_installed(repository)
    install(repository)
    assert is_installed(repository)
    uninstall(repository)
    assert not attributes.exists()


def test_people_are_told_what_happened(repo: Path) -> None:
    """Each action says what holds now, and whether that is new."""
    assert execute(INSTALL, repo).data == {"installed": True, "changed": True}
    again = execute(INSTALL, repo)
    assert again.data == {"installed": True, "changed": False}
    assert "already" in again.text
    assert execute(UNINSTALL, repo).data == {"installed": False, "changed": True}
    assert "not installed" in execute(UNINSTALL, repo).text
