"""The dashboard on a real terminal whose size changes under it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import command, wait_until
from tests.acceptance.written_runs import coordinator, write_events
from tests.records.sample_runs import mixed_events

HEAD, FOOT = "autopilot-multi · run ", "Ctrl-C: stop watching"
_SIZE = {"COLUMNS", "LINES"}
TITLE, REST = "The work of", " more"

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


class Window:
    """A terminal that wraps its lines anew when it is resized."""

    def __init__(self, socket: Path) -> None:
        self._socket = str(socket)

    def tmux(self, *args: str) -> str:
        """Send the terminal something."""
        done = subprocess.run(
            ["tmux", "-u", "-S", self._socket, "-f", "/dev/null", *args],
            capture_output=True,
            check=True,
            timeout=30,
            # Said outright, since readline puts a size of its own where Python does not look.
            env={name: value for name, value in os.environ.items() if name not in _SIZE},
        )
        return done.stdout.decode()

    def resize(self, width: int, height: int) -> None:
        """Change its size."""
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

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
def window(repo: Path, tmp_path: Path) -> Iterator[Window]:
    """Return a terminal in which somebody watches a run that goes on."""
    write_events(repo, mixed_events())
    made = Window(tmp_path / "tmux")
    with coordinator(repo):
        made.tmux(
            "new-session", "-d", "-x", "120", "-y", "24", "-c", str(repo), *command("status", "--watch")
        )
        try:
            yield made
        finally:
            made.tmux("kill-server")


def test_no_piece_of_an_older_picture_is_left(window: Window) -> None:
    """Narrower, shorter than the table, larger again: there is always one picture, and it fits."""
    window.await_only_one(titles=True, rest=False)
    window.resize(60, 24)
    window.await_only_one(titles=False, rest=False)
    window.resize(60, 9)
    window.await_only_one(titles=False, rest=True)
    window.resize(120, 9)
    window.await_only_one(titles=True, rest=True)
    window.resize(120, 30)
    window.await_only_one(titles=True, rest=False)
