"""A program that has the terminal for a while, such as a pager, or an agent's own session within its guard.

This module must not import trio: commands that only show something load it.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from isolation.errors import KeeperError
from isolation.keeper.command import reap
from isolation.keeper.spawn import STAGE_GUARD, SpawnError, spawn_on_terminal
from isolation.keeper.wire import confinement_texts
from isolation.kernel.process_tree import SUBREAPER, Tree, adopt_orphans, kill_all, kill_level
from isolation.kernel.processors import everywhere
from isolation.model import SessionSpec

_SIGNALED = 128
_FROM_KEYS = (signal.SIGINT, signal.SIGQUIT)


def pipe_lines(argv: Sequence[str], lines: Iterable[str], *, env: Mapping[str, str]) -> None:
    """Write lines to the standard input of a program, and wait until the user leaves it.

    Raises KeeperError if it cannot be started. Ctrl-C is for the program: it decides what that means.
    """
    try:
        with everywhere():
            process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE)  # noqa: S603  the user's own program
    except OSError as error:
        raise KeeperError(
            f"cannot start {argv[0]}: {os.strerror(error.errno or 0)}", hint="use --no-pager"
        ) from error
    # After the start: the program would inherit that a signal is ignored.
    with _keys_ignored():
        # A user may leave before the last line is written; closing the pipe writes what is still buffered.
        with suppress(BrokenPipeError):
            _write(process, lines)
        process.wait()


def _write(process: "subprocess.Popen[bytes]", lines: Iterable[str]) -> None:
    assert process.stdin is not None  # noqa: S101  it is a pipe
    with process.stdin as stdin:
        for line in lines:
            stdin.write(line.encode("utf-8", "replace") + b"\n")


def run_confined_on_terminal(spec: SessionSpec) -> int:
    """Run a program within its confinement on the terminal of this process; return its exit code.

    Ctrl-C is for the program, and Ctrl-Z suspends it together with us. When it has ended, so does what it
    left running. The prompt of `spec` is not used. Raises KeeperError if it cannot be started.
    """
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(readable)
        code = os.EX_SOFTWARE
        try:
            code = _supervise(spec)
        except SpawnError as error:
            os.write(writable, "{} {}".format(*error.args).encode())
        except OSError as error:
            os.write(writable, f"{error.errno} {STAGE_GUARD}".encode())
        finally:
            os._exit(code)
    os.close(writable)
    with _keys_ignored(), os.fdopen(readable) as pipe:
        _, status = os.waitpid(pid, 0)
        failure = pipe.read().split()
    if failure:
        raise KeeperError(f"cannot start {spec.argv[0]}: {failure[1]}: {os.strerror(int(failure[0]))}")
    return _exit_code(status)


def _supervise(spec: SessionSpec) -> int:
    """Start the program as the only child of this process, and end whatever is left after it."""
    assert spec.confinement is not None  # noqa: S101  the caller checks
    level = kill_level()
    if level == SUBREAPER:
        adopt_orphans()
    for number in _FROM_KEYS:
        signal.signal(number, signal.SIG_IGN)
    env = {os.fsencode(name): os.fsencode(value) for name, value in spec.env.items()}
    argv = [os.fsencode(each) for each in spec.argv]
    confinement = [os.fsencode(text) for text in confinement_texts(spec.confinement)]
    leader, *_ = spawn_on_terminal((os.fsencode(spec.cwd), argv, env, confinement))
    while True:
        _, status = os.waitpid(leader, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        os.killpg(0, signal.SIGTSTP)  # it has suspended itself alone; the shell waits for all of us
    tree = Tree(os.getpid(), level=level)
    if reap(tree):
        kill_all(tree, lambda: reap(tree))
    return _exit_code(status)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _SIGNALED - code


@contextmanager
def _keys_ignored() -> Iterator[None]:
    """Leave Ctrl-C and its like to the program that has the terminal."""
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in _FROM_KEYS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
