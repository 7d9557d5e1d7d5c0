"""Claims where two spellings of a name are one file: what was proven is what is checked."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation.paths import folds_case
from runner.core.model import Status
from tests.acceptance.program import run, write_story
from tests.conftest import git
from tests.story.test_kill_switches import carry, story


@pytest.mark.parametrize("isolation", ["worktree", "none"])
async def test_a_changed_path_is_compared_as_the_proof_compared_it(
    repo: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance 19: where case does not matter a claim owns every spelling, and still nothing else."""
    for room in ("plan.repositories.claiming", "plan.shared_tree", "story.flow.flaws"):
        monkeypatch.setattr(f"runner.{room}.folds_case", lambda _top: True)
    write_story(repo, "a", owns=["SRC/**"], command="mkdir src && echo x > src/x")
    assert story(await carry(repo, bg_isolation=isolation, max_stories=1), "a").status is Status.DONE
    assert git(repo, "show", "autopilot/a:src/x") == "x\n"
    write_story(repo, "b", owns=["LIB/**"], command="echo x > other")
    failed = story(await carry(repo, bg_isolation=isolation, max_stories=1), "b")
    assert failed.status is Status.FAILED
    assert "other" in failed.reason


@pytest.fixture
def folding(tmp_path: Path) -> Iterator[Path]:
    """Yield a real folder that folds case: on a mounted image of a file system that does."""
    image, folder = tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    ways = (("mkfs.ext4", "-q", "-O", "casefold"), ("mkfs.vfat",))
    for way in ways:
        subprocess.run(["truncate", "-s", "64M", image], check=True)
        if (
            shutil.which(way[0])
            and _succeeds(*way, image)
            and _succeeds("mount", "-o", "loop", image, folder)
        ):
            break
    else:
        pytest.skip("this machine, or this user, cannot mount a file system that folds case")
    try:
        top = folder / "all"
        top.mkdir()
        _succeeds("chattr", "+F", top)  # ext4 folds case only where this is set
        (top / "probe").touch()
        if not (top / "PROBE").exists():
            pytest.skip("the file system that was mounted does not fold case")
        yield top
    finally:
        subprocess.run(["umount", folder], check=True)


def _succeeds(*command: str | Path) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("isolation", ["worktree", "none"])
def test_a_claim_holds_every_spelling_on_a_real_file_system(folding: Path, isolation: str) -> None:
    """Acceptance 19: the same by the real program, where the disk itself folds case."""
    repo = folding / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    (repo / "Src").mkdir()
    (repo / "Src" / "x").write_text("old\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "first")
    assert folds_case(repo)
    write_story(repo, "a", owns=["sRC/**"], command="echo new > src/X; echo y > SRC/y")
    ran = run(
        repo, "--bg-isolation", isolation, "--max-stories", "1", "--enforce", "detect", "--no-guard", "--json"
    )
    assert ran.story("a")["status"] == "done", ran.err
    assert git(repo, "show", "autopilot/a:Src/x") == "new\n"
