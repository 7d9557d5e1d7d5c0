"""Commands of the program itself that need no confinement: run to their end, or left to themselves.

This module must not import trio: commands that only show something load it, too.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from isolation.errors import CommandLimitError, KeeperError
from isolation.keeper.confined import Ended
from isolation.kernel.processors import everywhere

_NOWHERE = "/"
_LOOK_SECONDS = 0.5
"""After how long a command counts as one that takes long."""
_KILLED_SECONDS, _KILLED_TICK = 2.0, 0.002
"""For how long, and how often, it is looked whether killed processes have ended; one may wait for a disk."""
_TICK = 0.1
"""How often the output of a command is measured, in seconds; its end is noticed at once."""


def run_unconfined(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes | None = None,
    waiting: Callable[[], None] | None = None,
) -> Ended:
    """Run a command to its end; raises KeeperError if it cannot be started.

    It starts in the root folder, which is always there, so its arguments must say where it works. While it
    takes long, `waiting` is called again and again.
    """
    try:
        with everywhere():
            process = _Command(
                argv,
                cwd=_NOWHERE,
                env=env,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
    except OSError as error:
        raise KeeperError(
            f"cannot start {argv[0]}: {os.strerror(error.errno or 0)}",
            hint="check the limit on open files (ulimit -n)",
        ) from error
    with process:
        try:
            output, errors = _communicate(process, stdin, waiting)
        except BaseException:
            process.kill()
            raise
    return Ended(returncode=process.returncode, stdout=output, stderr=errors)


class _Command(subprocess.Popen[bytes]):
    """A command whose end is noticed at once; the standard library would look for it now and then."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, for at most `timeout` seconds."""
        if timeout is not None and self.returncode is None:
            leader = os.pidfd_open(self.pid)
            try:
                if not _is_over(leader, max(timeout, 0)):
                    raise subprocess.TimeoutExpired(self.args, timeout)
            finally:
                os.close(leader)
        return super().wait()


def _is_over(leader: int, seconds: float) -> bool:
    """Wait for at most some seconds, and return whether the process of a descriptor has ended."""
    waiter = select.poll()  # `select` fails where many files are open
    waiter.register(leader, select.POLLIN)
    return bool(waiter.poll(seconds * 1000))


def _communicate(
    process: _Command, stdin: bytes | None, waiting: Callable[[], None] | None
) -> tuple[bytes, bytes]:
    while True:
        try:
            return process.communicate(stdin, timeout=_LOOK_SECONDS if waiting else None)
        except subprocess.TimeoutExpired:
            stdin = None  # it was accepted by the first call, which the next one continues
            if waiting is not None:
                waiting()


def run_bounded(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdin: bytes = b"", seconds: float, most: int
) -> Ended:
    """Run a command for at most some seconds, with at most `most` bytes of output on each of its streams.

    Raises CommandLimitError if it exceeds one of them, and KeeperError if it cannot be started. When this
    returns or raises, the command and its process group are gone.
    """
    # Files, not pipes: nothing that the command leaves behind can keep us reading.
    with _scratch() as given, _scratch() as output, _scratch() as errors:
        given.write(stdin)
        given.seek(0)  # which also writes what is buffered
        try:
            with everywhere():
                process = subprocess.Popen(  # noqa: S603  the caller's command
                    argv, cwd=cwd, env=env, stdin=given, stdout=output, stderr=errors, start_new_session=True
                )
        except OSError as error:
            raise KeeperError(
                f"cannot start {argv[0]}: {os.strerror(error.errno or 0)}",
                hint="check that it can be executed, and the limit on open files (ulimit -n)",
            ) from error
        try:
            _wait(process, time.monotonic() + seconds, lambda: max(_size(output), _size(errors)) > most)
        except TimeoutError:
            raise CommandLimitError(f"{argv[0]} took longer than {seconds:g} s and was ended") from None
        if max(_size(output), _size(errors)) > most:
            raise CommandLimitError(f"{argv[0]} wrote more than {most / 1024 / 1024:g} MB and was ended")
        output.seek(0)
        errors.seek(0)
        return Ended(returncode=process.returncode, stdout=output.read(), stderr=errors.read())


def _wait(process: "subprocess.Popen[bytes]", deadline: float, is_full: Callable[[], bool]) -> None:
    """Wait for the end of a command; end it, with its group, at the deadline or when its output is full."""
    leader = os.pidfd_open(process.pid)
    try:
        while not _is_over(leader, _TICK) and not is_full():
            if time.monotonic() > deadline:
                raise TimeoutError
    finally:
        os.close(leader)
        # Its pid names its group, and is not given away until the command is waited for.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _await_end_of_group(process.pid)


def _await_end_of_group(group: int) -> None:
    """Wait until the kernel has ended what was killed: no children of ours, so nothing reports their end."""
    deadline = time.monotonic() + _KILLED_SECONDS
    # As long as the group has a member, no other process gets its number.
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(_KILLED_TICK)


def _scratch() -> IO[bytes]:
    """Return a file without a name; in memory where that is possible, since its content may be private."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("command", os.MFD_CLOEXEC), "w+b")
    return TemporaryFile()


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def start_detached(argv: Sequence[str], *, cwd: Path, output: int) -> int:
    """Start a command that outlives this process and its terminal; return its pid.

    It is the leader of a session of its own, reads nothing and writes to the file descriptor `output`. Raises
    KeeperError if it cannot be started.
    """
    try:
        with everywhere():
            process = subprocess.Popen(  # noqa: S603  the caller's command
                argv,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    except OSError as error:
        raise KeeperError(
            f"cannot start {argv[0]}: {os.strerror(error.errno or 0)}",
            hint="check the limits on processes and open files (ulimit -u, ulimit -n)",
        ) from error
    # A server lives on: without this its ended children would stay as zombies, which look alive.
    threading.Thread(target=process.wait, name=f"wait for {process.pid}", daemon=True).start()
    return process.pid
