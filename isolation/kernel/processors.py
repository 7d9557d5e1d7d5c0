"""The processors of this program: its threads take turns on one of them, and what it starts has them all.

Only one thread at a time runs Python. Threads on several processors hand the interpreter to and fro at each
system call, which takes many times longer than the call: a run of many small stories took twice the processor
time. On one processor a thread keeps the interpreter during a short call, and nothing is lost, since all that
takes long is done by other processes. Those that look after sessions leave that processor to it, if there is
another one; the sessions themselves have them all.

Standard library only: the fork server loads it, too.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_given: frozenset[int] = frozenset()
"""Those that this process was started with, once its threads have fewer."""


def available() -> frozenset[int]:
    """Return the processors that this program, and what it starts, may use; empty if that is not known."""
    if _given or not hasattr(os, "sched_getaffinity"):
        return _given
    return frozenset(os.sched_getaffinity(0))


@contextmanager
def threads_on_one() -> Iterator[None]:
    """Have this thread, and all that are started meanwhile, use one processor: the one that it is on now.

    What is started by other means than `everywhere` has only that one, too.
    """
    global _given  # noqa: PLW0603  what all threads of the process have
    before, here = available(), _here()
    if len(before) > 1 and here in before:
        _given = before
        with suppress(OSError):
            os.sched_setaffinity(0, {here})
    try:
        yield
    finally:
        _use(before)


@contextmanager
def everywhere() -> Iterator[None]:
    """Let what this thread starts use all processors."""
    if not _given:
        yield
        return
    own = os.sched_getaffinity(0)
    _use(_given)
    try:
        yield
    finally:
        _use(frozenset(own))


def as_argument() -> str:
    """Return the available processors as text for `take`, behind those that this program's threads leave."""
    given = available()
    beside = given - frozenset(os.sched_getaffinity(0)) if given else given
    return ";".join(",".join(map(str, sorted(each))) for each in (beside or given, given))


def take(argument: str) -> None:
    """Use what the threads of another process leave of these processors; `take_all` has them all."""
    global _given
    own, _given = (frozenset(map(int, filter(None, each.split(",")))) for each in argument.split(";"))
    _use(own)


def take_all() -> None:
    """Use all available processors, in a process that becomes a program of the user."""
    _use(_given)


def _use(processors: frozenset[int]) -> None:
    if processors:
        with suppress(OSError):  # none of them is there any more
            os.sched_setaffinity(0, processors)


def _here() -> int:
    """Return the processor that this thread is on; -1 if that is not known."""
    try:
        words = Path("/proc/thread-self/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return -1
    return int(words[36])
