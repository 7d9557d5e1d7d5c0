"""A story's turn: its worktree may be made before there is a place for it in the window.

Whoever prepares waits for the turn; it is given, or taken back, exactly once.
"""

import trio


class TurnTakenBackError(Exception):
    """The story will not start after all; what was prepared for it is not needed."""


class Turn:
    """The leave to go on of one story."""

    def __init__(self, *, given: bool = False) -> None:
        self._settled = trio.Event()
        self._given = False
        if given:
            self.give()

    def give(self) -> None:
        """Let the story go on."""
        self._given = True
        self._settled.set()

    def take_back(self) -> None:
        """Tell the story that it will not start."""
        self._settled.set()

    async def wait(self) -> None:
        """Wait for the turn; raises `TurnTakenBackError` when it will not come."""
        await self._settled.wait()
        if not self._given:
            raise TurnTakenBackError
