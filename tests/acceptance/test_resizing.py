"""The dashboard on a real terminal whose size changes under it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import command, wait_until
from tests.acceptance.tmux import Window
from tests.acceptance.written_runs import coordinator, write_events
from tests.records.sample_runs import mixed_events

HEAD, FOOT = "autopilot-multi · run ", "Ctrl-C: stop watching"
TITLE, REST = "The work of", " more"

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


class Watched(Window):
    """A terminal in which a run is watched."""

    def await_only_one(self, *, titles: bool, rest: bool) -> None:
        """Wait until it was drawn for the present size, then see that no other piece is left."""
        seen: list[str] = []

        def is_redrawn() -> bool:
            seen[:] = self.tmux("capture-pane", "-p").splitlines()
            heads = [number for number, line in enumerate(seen) if HEAD in line]
            newest = seen[heads[-1] :] if heads else []
            marks = [any(mark in line for line in newest) for mark in (FOOT, TITLE, REST)]
            return marks == [True, titles, rest]

        wait_until(is_redrawn, what=f"it is drawn with titles: {titles}, rest: {rest}")
        assert [sum(mark in line for line in seen) for mark in (HEAD, FOOT)] == [1, 1], "\n".join(seen)


@pytest.fixture
def window(repo: Path, tmp_path: Path) -> Iterator[Watched]:
    """Return a terminal in which somebody watches a run that goes on."""
    write_events(repo, mixed_events())
    made = Watched(tmp_path / "tmux")
    with coordinator(repo):
        made.tmux(
            "new-session", "-d", "-x", "160", "-y", "24", "-c", str(repo), *command("status", "--watch")
        )
        try:
            yield made
        finally:
            made.tmux("kill-server")


def test_no_piece_of_an_older_picture_is_left(window: Watched) -> None:
    """Narrower, shorter than the table, larger again: there is always one picture, and it fits."""
    window.await_only_one(titles=True, rest=False)
    window.resize(60, 24)
    window.await_only_one(titles=False, rest=False)
    window.resize(60, 9)
    window.await_only_one(titles=False, rest=True)
    window.resize(160, 9)
    window.await_only_one(titles=True, rest=True)
    window.resize(160, 30)
    window.await_only_one(titles=True, rest=False)
