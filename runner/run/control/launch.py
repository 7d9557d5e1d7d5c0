"""Start this program as a process of its own: a run that no terminal and no page has to keep alive."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

import runner
from isolation.files.disk import read_tail
from isolation.keeper.unconfined import start_detached
from isolation.paths import find_repository, launched_dir

KEPT_LOGS = 20
_TAIL_BYTES = 4096


class Launched(Struct, frozen=True, kw_only=True):
    """A process of its own, and the file with what it prints."""

    pid: int
    log: Path

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        try:
            os.kill(self.pid, 0)
        except OSError:
            return False
        return True

    def last_lines(self) -> str:
        """Return the end of what it has printed."""
        with suppress(OSError):
            return read_tail(self.log, _TAIL_BYTES).decode(errors="replace").strip()
        return ""


def launch(directory: Path, argv: Sequence[str]) -> Launched:
    """Start `autopilot-multi ARGV...` in a folder of a repository, detached from this process."""
    folder = launched_dir(find_repository(directory).common_dir)
    folder.mkdir(parents=True, exist_ok=True)
    _remove_old(folder)
    log, descriptor = _new_log(folder, argv[0] if argv else "run")
    try:
        pid = start_detached([*program_command(), *argv], cwd=directory, output=descriptor)
    finally:
        os.close(descriptor)
    return Launched(pid=pid, log=log)


def program_command() -> list[str]:
    """Return the command that starts this very program, wherever it is installed."""
    # Not `-m runner`: that would search the user's folder first.
    return [sys.executable, str(Path(next(iter(runner.__path__))) / "__main__.py")]


def _new_log(folder: Path, command: str) -> tuple[Path, int]:
    """Create an empty log that no other process has."""
    begun = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    word = "".join(letter for letter in command if letter.isalnum())[:20]
    path = folder / f"{begun}-{os.getpid()}-{word or 'run'}.log"
    return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _remove_old(folder: Path) -> None:
    """Keep the newest logs only; their names sort by time."""
    for path in sorted(folder.glob("*.log"))[: -KEPT_LOGS + 1]:
        path.unlink(missing_ok=True)
