"""The terminal while keys are read from it: one key at a time, without echo, and always put back.

Ctrl-C and Ctrl-Z stay signals. The mode of the terminal belongs to the program in the foreground: it is set
only there, and put back before the program is suspended and when it ends, whatever ends it.
"""

import os
import signal
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import trio

from runner.cli.live.keys import KeyDecoder

ESCAPE_SECONDS = 0.05
"""How long a lone Esc waits for the rest of a sequence."""
FOREGROUND_SECONDS = 0.2
CHUNK = 4096
_BELL, _PASTE_ON, _PASTE_OFF = b"\a", b"\x1b[?2004h", b"\x1b[?2004l"
_LOCAL = 3


def in_foreground(descriptor: int) -> bool:
    """Return whether this program may read from the terminal; always true without job control."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return True


def has_keys() -> bool:
    """Whether somebody at this terminal can press keys for this program."""
    if sys.stdin is None or not sys.stdin.isatty() or os.environ.get("TERM") == "dumb":
        return False
    return in_foreground(sys.stdin.fileno())


class KeyTerminal:
    """Keys from one terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this program is in the foreground."""
        return in_foreground(self._descriptor)

    def ring(self) -> None:
        """Ring the bell."""
        self._write(_BELL)

    def take(self) -> None:
        """Set the mode for keys, if the terminal is ours now and does not have it."""
        if not in_foreground(self._descriptor):
            return
        with suppress(termios.error, OSError):
            mode = termios.tcgetattr(self._descriptor)
            if not mode[_LOCAL] & (termios.ICANON | termios.ECHO):
                return
            self._before = list(mode)
            # Now, not after what was written is read: a terminal that is held up must hold up nothing.
            mode[_LOCAL] &= ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(self._descriptor, termios.TCSANOW, mode)
            self._write(_PASTE_ON)

    def give_back(self) -> None:
        """Put the mode back, if the terminal is still ours; else its new owner has set its own."""
        before, self._before = self._before, None
        if before is None or not in_foreground(self._descriptor):
            return
        with suppress(termios.error, OSError):
            self._write(_PASTE_OFF)
            termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

    def _write(self, text: bytes) -> None:
        with suppress(OSError):  # it may be open for reading only
            os.write(self._descriptor, text)

    async def keys(self) -> AsyncIterator[str]:
        """Yield the keys until the terminal is gone; waiting for one never blocks the program."""
        decoder = KeyDecoder()
        while (chunk := await self._receive(decoder)) != b"":
            for key in decoder.flush() if chunk is None else decoder.feed(chunk):
                yield key

    async def _receive(self, decoder: KeyDecoder) -> bytes | None:
        """Return the next bytes; None if the rest of a sequence has not come, empty at the end of input."""
        while True:
            with trio.move_on_after(ESCAPE_SECONDS if decoder.waits else float("inf")) as patience:
                await trio.lowlevel.wait_readable(self._descriptor)
            if patience.cancelled_caught:
                return None
            if not in_foreground(self._descriptor):
                # In the background the shell gets the input; reading would suspend the program (SIGTTIN).
                await trio.sleep(FOREGROUND_SECONDS)
                continue
            self.take()
            try:
                return os.read(self._descriptor, CHUNK)
            except OSError:
                return b""  # the terminal was closed


async def suspending(terminal: KeyTerminal, clear: Callable[[], None]) -> None:
    """Obey Ctrl-Z until cancelled: put the terminal back and clear the picture before, take it after.

    Whether it continues in the foreground or in the background, `take` finds out.
    """
    with trio.open_signal_receiver(signal.SIGTSTP, signal.SIGCONT) as received:
        async for number in received:
            if number == signal.SIGTSTP:
                clear()
                terminal.give_back()
                os.kill(os.getpid(), signal.SIGSTOP)
            terminal.take()
