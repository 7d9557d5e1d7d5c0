"""A real terminal of its own for the program: tmux draws it, resizes it, and says what it shows."""

import os
import subprocess
from pathlib import Path

from tests.acceptance.program import wait_until

_SIZE = {"COLUMNS", "LINES"}


class Window:
    """A terminal that wraps its lines again when it is resized."""

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

    def press(self, *keys: str) -> None:
        """Press keys, by the names that tmux has for them."""
        self.tmux("send-keys", *keys)

    def type(self, line: str) -> None:
        """Type a line and enter it."""
        self.tmux("send-keys", "-l", line)
        self.press("Enter")

    def lines(self) -> list[str]:
        """Return what is on the screen."""
        return [line.rstrip() for line in self.tmux("capture-pane", "-p").splitlines()]

    def await_text(self, *texts: str) -> list[str]:
        """Wait until all of these are on the screen at once; return its lines."""
        seen: list[str] = []

        def is_there() -> bool:
            seen[:] = self.lines()
            return all(any(text in line for line in seen) for text in texts)

        try:
            wait_until(is_there, what=f"the screen shows {texts}")
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *seen])) from error
        return seen
