"""A session's processes can reach each other, and no process that is not below its leader.

Standard library only: a keeper's child calls this between fork and exec. A Landlock domain keeps its members
from everything outside for which the kernel asks whether they may trace: the files in `/proc/<pid>` that lead
into a process (`cwd`, `root`, `fd`, `environ`, `mem`), ptrace, reading and writing memory, taking
descriptors. Its scope keeps them from sending signals. Resource limits, which can end a process as well, have
no such scope, so a filter leaves to each process only its own.

The session keeps the machine's process ids. In a PID namespace, names made from `$$` in the shared temporary
folder would be the same in parallel stories, and a lock file in the home folder that names a process of
another session would look abandoned.
"""

import errno
import os
from collections.abc import Mapping

from isolation.kernel.landlock import enter_domain
from isolation.kernel.seccomp import (
    ALLOW,
    ARCHITECTURE_AT,
    ARGUMENTS_AT,
    EQUAL,
    NUMBER_AT,
    REFUSE,
    answer,
    jump,
    load,
    prepare,
    set_filter,
)

_PRLIMIT: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "x86_64": {0xC000003E: (302, 0x40000000 + 302), 0x40000003: (340,)},
    "aarch64": {0xC00000B7: (261,), 0x40000028: (369,)},
}
"""The numbers of `prlimit64`, for each architecture that a machine can execute; x86_64 has two of them."""

_PROCESS, _NEW_LIMIT = ARGUMENTS_AT, ARGUMENTS_AT + 16


def separate(*, sockets: bool = False) -> None:
    """Keep this process, and all that it will start, from the processes that are not below it.

    With `sockets` also from abstract sockets of theirs, which have no file that could be hidden.
    Does as much of it as the kernel can; `guard.py` tries out how much that is. Raises OSError if what the
    kernel offers fails.
    """
    enter_domain(sockets=sockets)
    if _LIMITS:
        try:
            set_filter(_LIMITS)
        except OSError as error:
            if error.errno not in {errno.ENOSYS, errno.EINVAL, errno.EPERM}:
                raise


def limits_filter(machine: str) -> bytes:
    """Build a filter that refuses to set limits of a process by its number; empty if calls are unknown.

    Nearly every program names itself by 0. Reading the limits of others stays possible.
    """
    blocks = []
    for architecture, numbers in _PRLIMIT.get(machine, {}).items():
        for number in numbers:
            blocks += [
                load(ARCHITECTURE_AT),
                jump(EQUAL, architecture, 0, 10),
                load(NUMBER_AT),
                jump(EQUAL, number, 0, 8),
                load(_PROCESS),
                jump(EQUAL, 0, 4, 0),
                # An address has two halves, of which one alone may be 0.
                load(_NEW_LIMIT),
                jump(EQUAL, 0, 0, 3),
                load(_NEW_LIMIT + 4),
                jump(EQUAL, 0, 0, 1),
                answer(ALLOW),
                answer(REFUSE | errno.EPERM),
            ]
    return b"".join((*blocks, answer(ALLOW))) if blocks else b""


_LIMITS = limits_filter(os.uname().machine)
"""Made once, in the process that all keepers are forked from."""
prepare(_LIMITS)
