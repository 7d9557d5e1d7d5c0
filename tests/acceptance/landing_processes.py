"""Finds the processes that a landing has started, wherever they work: they inherit a mark."""

from contextlib import suppress
from pathlib import Path

_MARK = "LANDING_OF"


def marked(repo: Path) -> dict[str, str]:
    """Return the environment with which processes of this landing are found."""
    return {_MARK: str(repo)}


def marked_processes(repo: Path) -> list[str]:
    """Return the names of living processes that a marked landing has started."""
    mark, found = f"{_MARK}={repo}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "comm").read_text().strip())
    return found
