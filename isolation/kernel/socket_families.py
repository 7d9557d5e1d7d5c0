"""Kinds of sockets that a network namespace does not hold: they are refused by a filter.

Standard library only. A virtual machine's sockets to its host (`AF_VSOCK`) are in no namespace, and rare
kinds may not be either. So only the usual kinds can be made. `io_uring` makes sockets past every filter, so
it is refused as on a kernel without it; programs then do without.
"""

import errno
import os
import socket
from collections.abc import Mapping, Sequence

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
    set_filter,
)

_USUAL = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16, 17, 38)
"""Also netlink, raw packets and the kernel's ciphers, which stay within the namespace or the machine."""
_OTHER_CALLS = 0x40000000
_RING = 425
_CALLS: Mapping[str, Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "x86_64": {
        0xC000003E: ((41, _OTHER_CALLS + 41), (_RING, _OTHER_CALLS + _RING)),
        # The old call for everything about sockets has its arguments where no filter can look.
        0x40000003: ((359,), (_RING, 102)),
    },
    "aarch64": {0xC00000B7: ((198,), (_RING,)), 0x40000028: ((281,), (_RING,))},
}
"""For each architecture that a machine can execute: the calls that make a socket, and those refused."""


def allow_usual_sockets() -> None:
    """Refuse unusual sockets to this process, and to all that it will start; raises OSError if it cannot."""
    code = sockets_filter(os.uname().machine)
    if code:
        set_filter(code)


def sockets_filter(machine: str) -> bytes:
    """Build the filter; empty if the machine's calls are unknown."""
    blocks = []
    for architecture, (makers, refused) in _CALLS.get(machine, {}).items():
        body = _body(makers, refused)
        blocks += [load(ARCHITECTURE_AT), jump(EQUAL, architecture, 0, len(body)), *body]
    return b"".join((*blocks, answer(ALLOW))) if blocks else b""


def _body(makers: Sequence[int], refused: Sequence[int]) -> list[bytes]:
    judged = [load(ARGUMENTS_AT)]
    # Each comparison skips those after it and the refusal.
    judged += [jump(EQUAL, family, len(_USUAL) - number, 0) for number, family in enumerate(_USUAL)]
    judged += [answer(REFUSE | errno.EAFNOSUPPORT), answer(ALLOW)]
    body = [load(NUMBER_AT)]
    for number in refused:
        body += [jump(EQUAL, number, 0, 1), answer(REFUSE | errno.ENOSYS)]
    for number in makers:
        body += [jump(EQUAL, number, 0, len(judged)), *judged]
    # The call's number is no longer loaded only after an answer, so the next comparison still has it.
    return [*body, answer(ALLOW)]
