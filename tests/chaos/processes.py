"""Finds the processes of a run by what they are, and strikes them."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SERVER = b"isolation.keeper.server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One process of a run."""

    pid: int
    parent: int
    line: bytes


def descendants(coordinator: int, mark: str) -> dict[str, list[int]]:
    """Return the processes of a run by their part in it: server, keeper, session, git."""
    found = _marked(mark)
    servers = [one.pid for one in found if _SERVER in one.line and one.parent == coordinator]
    parts: dict[str, list[int]] = {"coordinator": [coordinator], "server": servers}
    parts["keeper"] = [one.pid for one in found if _SERVER in one.line and one.pid not in servers]
    parts["session"] = [one.pid for one in found if b"scripted_session" in one.line]
    parts["git"] = [one.pid for one in found if one.line.partition(b"\0")[0].rpartition(b"/")[2] == b"git"]
    return {part: sorted(pids) for part, pids in parts.items()}


def send(pids: list[int], number: signal.Signals) -> int:
    """Send a signal to each, and count how many were there to get it."""
    sent = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            sent += 1
    return sent


def freeze(pids: list[int], seconds: float) -> int:
    """Stop processes for a while; whatever happens, they continue."""
    try:
        sent = send(pids, signal.SIGSTOP)
        time.sleep(seconds if sent else 0)
    finally:
        send(pids, signal.SIGCONT)
    return sent


def _marked(mark: str) -> list[Found]:
    wanted, found = mark.encode(), []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                line = (folder / "cmdline").read_bytes()
                if wanted in line or wanted in (folder / "environ").read_bytes():
                    stat = (folder / "stat").read_text().rpartition(")")[2].split()
                    if stat[0] != "Z":
                        found.append(Found(pid=int(folder.name), parent=int(stat[1]), line=line))
    return found
