"""What a session changes in its workspace: real files and commits, and times as arguments."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.story.session import progress
from runner.story.session.progress import ProgressLooks
from tests.conftest import git

LIMIT = 1800.0


class Watched:
    """A session that is active all the time; it starts now, and later is whenever the test says so."""

    def __init__(self, workspace: Path, *artifacts: str, limit: float | None = LIMIT) -> None:
        self._workspace = workspace
        self._began = self._at = 0.0

        def found() -> tuple[Path, ...]:
            return tuple(path for glob in artifacts for path in sorted(workspace.glob(glob)))

        self._looks = ProgressLooks(
            found, workspace=workspace, limit=limit, began_at=0.0, clock=lambda: self._began + self._at
        )
        # The clock that dates files is coarse: what was there is older than the session, what comes is newer.
        time.sleep(0.03)
        self._began = time.time()
        time.sleep(0.01)

    def after(self, seconds: float, *places: Path, began_earlier: bool = False) -> str:
        """Return why it is stuck after so many seconds; empty when it is not.

        Either this moment is so much later, or it is now and the session began so much earlier.
        """
        self._at = seconds
        if began_earlier:
            self._began = time.time() - seconds
        stuck = self._looks.look(seconds, seconds, places or (self._workspace,))
        return stuck.reason if stuck else ""


def test_a_session_that_leaves_nothing_is_stuck_at_the_limit(repo: Path) -> None:
    """Not a second earlier, and never without a limit."""
    watched, unlimited = Watched(repo), Watched(repo, limit=None)
    assert watched.after(LIMIT - 1) == ""
    assert watched.after(LIMIT) == "nothing new for 30 min 00 s, though the session is active"
    assert unlimited.after(100 * LIMIT) == ""


@pytest.mark.parametrize(
    "work",
    [
        lambda top: (top / "new.py").write_text("x"),
        lambda top: (top / "README.md").write_text("other words"),
        lambda top: git(top, "commit", "-q", "--allow-empty", "-m", "batch"),
        lambda top: (top / "README.md").rename(top / "moved.md"),
    ],
    ids=["new file", "changed file", "commit", "moved file"],
)
def test_work_of_any_kind_is_progress(repo: Path, work: Callable[[Path], object]) -> None:
    """A commit or a file anywhere in the workspace starts the time over, from when it was written."""
    watched = Watched(repo)
    work(repo)
    assert watched.after(LIMIT) == ""
    assert "nothing new" in watched.after(LIMIT + 100)


def test_the_same_content_again_is_no_progress(repo: Path) -> None:
    """A file that is written over and over counts once; new content counts again."""
    watched = Watched(repo)
    (repo / "a.py").write_text("one")
    assert watched.after(LIMIT, began_earlier=True) == ""
    (repo / "a.py").write_text("one")
    assert "nothing new" in watched.after(3 * LIMIT, began_earlier=True)
    (repo / "a.py").write_text("two")
    assert watched.after(4 * LIMIT, began_earlier=True) == ""


def test_folders_of_tools_and_our_own_are_no_work(repo: Path) -> None:
    """Dependencies, caches and the folder of exchange may fill without anything new."""
    watched = Watched(repo)
    for name in ("node_modules/x", ".venv/lib", "src/__pycache__", ".orchestrator"):
        (repo / name).mkdir(parents=True)
        (repo / name / "file").write_text("x")
    assert "nothing new" in watched.after(LIMIT, repo, repo / ".orchestrator")


def test_in_a_shared_tree_only_the_places_of_the_story_count(repo: Path) -> None:
    """What another story writes is not progress; a claim may be a folder or a file."""
    first, second, third = Watched(repo), Watched(repo), Watched(repo)
    (repo / "mine").mkdir()
    (repo / "mine" / "a.py").write_text("x")
    assert first.after(LIMIT, repo / "mine") == ""
    assert second.after(LIMIT, repo / "README.md") != ""
    (repo / "README.md").write_text("other words")
    assert third.after(LIMIT, repo / "README.md") == ""


def test_too_much_to_look_at_is_taken_for_work(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk that was not finished has proved nothing, so nothing is ended by it."""
    monkeypatch.setattr(progress, "MOST_ENTRIES", 3)
    watched = Watched(repo)
    for number in range(5):
        (repo / f"{number}").mkdir()
    assert watched.after(LIMIT) == ""


def test_an_artifact_is_known_by_its_path(repo: Path) -> None:
    """Four files of one name and one content are four artifacts; one that is rewritten is named."""
    watched = Watched(repo, "_docs/*/README.md")
    for number in range(4):
        (repo / "_docs" / str(number)).mkdir(parents=True)
        (repo / "_docs" / str(number) / "README.md").write_text("to do")
    assert watched.after(1) == ""
    for second in range(2, 5):
        (repo / "_docs/2/README.md").unlink()
        (repo / "_docs/2/README.md").write_text("to do")
        last = watched.after(second)
    assert last == "_docs/2/README.md was rewritten 3 times without a meaningful change"


def test_an_artifact_may_be_written_again_beside_other_work(repo: Path) -> None:
    """A report that is renewed after each change, with the same words, is no sign of being stuck."""
    watched = Watched(repo, "report.md")
    for second in range(1, 6):
        (repo / "report.md").unlink(missing_ok=True)
        (repo / "report.md").write_text("all is well")
        (repo / "code.py").write_text(f"{second}")
        assert watched.after(second, began_earlier=True) == ""
