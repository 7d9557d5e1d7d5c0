"""The coordinator's side of the keepers' protocol: requests, answers, and the errors they stand for.

Apart from `Lines`, which reads the socket, everything is pure: from a `SessionSpec` to bytes, from a line to
a value or to the `KeeperError` that explains it. `keeper/server.py` has the other side and the format of
each line; it must not import this module.
"""

import errno
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from isolation.errors import KeeperError
from isolation.keeper.server import DENIED, HEADER, OPENED
from isolation.keeper.spawn import (
    ALLOWED,
    CLOSED,
    DIRECT,
    HIDDEN,
    NETWORK,
    NOTICED,
    OPEN,
    SHOWN,
    SOURCE,
    STAGE_FOLDER,
    STAGE_FORK,
    STAGE_GUARD,
    STAND_IN,
    STANDS,
    TARGET,
    UPPER,
    UPSTREAM,
    WITNESSED,
    WORK,
)
from isolation.kernel.noticed.reaching import PLACE, REACHED
from isolation.kernel.witness import TRIED
from isolation.model import Attempt, Attempts, Confinement, Exit, SessionSpec


def encode(spec: SessionSpec) -> bytes:
    """Encode a request; what no kernel could execute is refused here."""
    entries = [f"{name}={value}" for name, value in spec.env.items()]
    texts = [str(spec.cwd.absolute()), *spec.argv, *entries]
    names_valid = all(name and "=" not in name for name in spec.env)
    texts += confinement_texts(spec.confinement) if spec.confinement else []
    joined = "\0".join(texts)
    # NUL separates the texts of a request, and no argument of a program can hold it anyway.
    if not spec.argv or not names_valid or joined.count("\0") != len(texts) - 1:
        raise KeeperError(
            f"cannot start {' '.join(spec.argv[:1]) or 'a session'}: no program, a NUL character in an "
            "argument, or a variable without a usable name",
            hint="correct the command and the environment of the story",
        )
    body = os.fsencode(joined)
    return HEADER.pack(len(body), len(spec.argv), len(entries)) + body


def confinement_texts(confinement: Confinement) -> list[str]:
    """Return a confinement as a keeper reads it: its means, then paths and hosts with a mark each."""
    overlay, network = confinement.overlay, confinement.network
    marked: list[tuple[bytes, Path | str]] = [(CLOSED, path) for path in confinement.read_only]
    marked += [(OPEN, path) for path in confinement.writable]
    if overlay is not None:
        marked += [(TARGET, overlay.target), (UPPER, overlay.upper), (WORK, overlay.work)]
    for path, source in confinement.sources.items():
        marked += [(STANDS, path), (SOURCE, source)]
    for path, hidden in confinement.hidden.items():
        marked += [(HIDDEN, path), (STAND_IN, hidden.stand_in)]
    marked += [(SHOWN, path) for path in confinement.shown]
    marked += [(NOTICED, "")] if confinement.noticed else []
    if network is not None:
        marked += [(NETWORK, ""), *((ALLOWED, entry) for entry in network.allowed)]
        marked += [(UPSTREAM, network.upstream)] if network.upstream else []
        marked += [(DIRECT, pattern) for pattern in network.direct]
    if confinement.witnessed is not None:
        marked.append((WITNESSED, confinement.witnessed))
    return [confinement.means, *(f"{mark.decode()}{path}" for mark, path in marked)]


def read_answer(line: str, spec: SessionSpec) -> tuple[int, int]:
    """Return the pids of leader and keeper, from a keeper's first line (empty: it exited without one)."""
    try:
        return _answer(line, spec)
    except (ValueError, OverflowError) as error:  # a line that no keeper writes
        raise server_gone() from error


def _answer(line: str, spec: SessionSpec) -> tuple[int, int]:
    match line.split():
        case ["pid", pid, keeper_pid]:
            return int(pid), int(keeper_pid)
        case ["error", number, stage]:
            raise _spawn_error(int(number), stage, spec)
        case ["lost", code]:
            raise KeeperError(f"the keeper of {spec.argv[0]} {_describe_end(int(code))} before it started")
        case _:
            raise server_gone()


def read_report(line: str, pid: int) -> Exit:
    """Return how a session ended, from a keeper's last line (empty: it exited without one)."""
    try:
        return _report(line, pid)
    except (ValueError, OverflowError) as error:  # a line that no keeper writes
        raise _unknown_end(pid) from error


def _report(line: str, pid: int) -> Exit:
    match line.split():
        case ["exit", code, stopped, *rest]:
            # Survivors come first, then what the proxy refused, what was opened, and what the witness saw.
            rest, _, tried = _parted(rest, TRIED)
            rest, _, reached = _parted(rest, REACHED)
            rest, _, opened = _parted(rest, OPENED)
            pids, _, denied = _parted(rest, DENIED)
            return Exit(
                returncode=int(code),
                stopped=stopped == "1",
                survivors=tuple(map(int, pids)),
                attempts=read_attempts(tried),
                denied=tuple(denied),
                reached=_reached([*(f"{PLACE}:{path}" for path in opened), *reached]),
            )
        case ["lost", code]:
            raise KeeperError(
                f"the keeper of process {pid} {_describe_end(int(code))}; the session was ended with it",
                hint="something killed it from outside (out of memory?); run the story again",
            )
        case _:
            raise _unknown_end(pid)


def _reached(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    pairs = (word.partition(":") for word in words)
    return tuple(dict.fromkeys((kind, os.fsdecode(bytes.fromhex(name))) for kind, _, name in pairs))


def _parted(words: list[str], mark: str) -> tuple[list[str], list[str], list[str]]:
    """Part words at a mark, as `str.partition` does."""
    at = words.index(mark) if mark in words else len(words)
    return words[:at], words[at : at + 1], words[at + 1 :]


def _unknown_end(pid: int) -> KeeperError:
    return KeeperError(
        f"the keeper of process {pid} and the fork server are gone; how it ended is unknown",
        hint=f"find its remaining processes (ps -s {pid}), end them, then resume the run",
    )


def read_attempts(words: Sequence[str]) -> Attempts | None:
    """Return what a witness saw, from the words of its report; None if there was no witness."""
    if not words:
        return None
    unnamed, *tried = words
    pairs = (word.partition(":") for word in tried)
    named = (
        Attempt(operation=operation, path=os.fsdecode(bytes.fromhex(path))) for operation, _, path in pairs
    )
    return Attempts(named=tuple(named), unnamed=int(unnamed))


class Lines:
    """Text lines from a non-blocking socket, of which one task reads at a time."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = b""

    async def receive(self) -> str | None:
        """Return the next line; None at the end of the stream."""
        while b"\n" not in self._buffer:
            try:
                data = self._source.recv(4096)
            except BlockingIOError:
                import trio  # here, since commands that only show something load this module, too

                await trio.lowlevel.wait_readable(self._source)
                continue
            except ConnectionResetError:  # it died with unread orders: an end of file like any other
                data = b""
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()


def server_gone() -> KeeperError:
    """Return the error for a fork server that is gone."""
    return KeeperError(
        "the fork server died, so no session can be started",
        hint="something killed it from outside (out of memory?); resume the run",
    )


def _describe_end(code: int) -> str:
    if code >= 0:
        return f"failed (exit code {code})"
    known = -code in set(signal.Signals)  # a real-time signal has no name of its own
    return f"was killed ({signal.Signals(-code).name if known else f'signal {-code}'})"


def _spawn_error(number: int, stage: str, spec: SessionSpec) -> KeeperError:
    reason = os.strerror(number)
    if stage == STAGE_FOLDER:
        return KeeperError(
            f"cannot start {spec.argv[0]}: its folder {spec.cwd}: {reason}",
            hint="the workspace was removed or cannot be entered; run the story again",
        )
    if stage == STAGE_FORK:
        return KeeperError(
            f"cannot start {spec.argv[0]}: no new process: {reason}",
            hint="lower --max-stories, or raise the limit on processes (ulimit -u)",
        )
    if stage == STAGE_GUARD:
        return KeeperError(
            f"cannot start {spec.argv[0]}: the write guard could not be set up: {reason}",
            hint="`autopilot-multi doctor` shows what this machine supports; --no-guard runs without it",
        )
    hints = {
        errno.ENOENT: "check that the program (and, for a script, its interpreter) is installed and on PATH",
        errno.EACCES: "make the program executable (chmod +x)",
        errno.ENOEXEC: "a script needs a first line such as #!/bin/sh",
        errno.E2BIG: "arguments or environment are too long; pass large texts in files",
    }
    hint = hints.get(number, "run the command by hand to see why")
    return KeeperError(f"cannot start {spec.argv[0]} in {spec.cwd}: {reason}", hint=hint)
