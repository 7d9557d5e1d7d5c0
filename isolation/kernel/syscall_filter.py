"""The system calls that change files by name, and the seccomp filter that makes the kernel report them.

Standard library only: a keeper's child calls `install` between confinement and exec. The filter applies to
everything that the child starts. It refuses nothing: a reported call waits until the holder of the listener
has answered.

As much as possible is decided in the kernel, so that ordinary work is nearly free: opening a file for reading
is never reported. A call on a descriptor that is open for writing need not be reported either: the opening
was. Calls of another architecture (32-bit programs) pass unreported.
"""

import os

from isolation.kernel.seccomp import (
    ALLOW,
    ANY_BIT,
    ARCHITECTURE_AT,
    ARGUMENTS_AT,
    AT_LEAST,
    EQUAL,
    NATIVE,
    NEW_LISTENER,
    NUMBER_AT,
    REPORT,
    WAIT_KILLABLE,
    answer,
    jump,
    load,
    set_filter,
)

FOLDER_OF_PROCESS = -1
"""In place of the argument that holds a folder: names are relative to the process's current folder."""
NO_NAME = -1
"""In place of the argument that holds a name: the descriptor itself is meant."""
NO_ARGUMENT = -1
NEVER_FOLLOWS = -2
"""In place of the argument that holds flags: a link itself is meant, not what it leads to."""

OPEN, OPEN_HOW, CREAT, TRUNCATE, MAKE, REMOVE, RENAME, LINK = range(8)
MODE, OWNER, ATTRIBUTE = range(8, 11)
"""What a call does. The last three change the attributes of a file, not its content."""

Call = tuple[int, tuple[tuple[int, int], ...], int, int]
"""What it does; for each path the arguments of folder and name; that of a value; that of flags `AT_…`."""

_HERE = ((FOLDER_OF_PROCESS, 0),)
_THERE = ((0, 1),)
_DESCRIPTOR = ((0, NO_NAME),)


def _call(
    what: int, where: tuple[tuple[int, int], ...], value: int = NO_ARGUMENT, flags: int = NO_ARGUMENT
) -> Call:
    return what, where, value, flags


_EVERYWHERE = {
    "openat": _call(OPEN, _THERE, 2),
    "openat2": _call(OPEN_HOW, _THERE, 2),
    "truncate": _call(TRUNCATE, _HERE),
    "mkdirat": _call(MAKE, _THERE),
    "mknodat": _call(MAKE, _THERE),
    "symlinkat": _call(MAKE, ((1, 2),)),
    "unlinkat": _call(REMOVE, _THERE),
    "renameat": _call(RENAME, ((0, 1), (2, 3))),
    "renameat2": _call(RENAME, ((0, 1), (2, 3))),
    "linkat": _call(LINK, ((0, 1), (2, 3)), flags=4),
    "fchmod": _call(MODE, _DESCRIPTOR, 1),
    "fchmodat": _call(MODE, _THERE, 2),
    "fchmodat2": _call(MODE, _THERE, 2, 3),
    "fchown": _call(OWNER, _DESCRIPTOR, 1),
    "fchownat": _call(OWNER, _THERE, 2, 4),
    "utimensat": _call(ATTRIBUTE, _THERE, flags=3),
    "setxattr": _call(ATTRIBUTE, _HERE),
    "lsetxattr": _call(ATTRIBUTE, _HERE, flags=NEVER_FOLLOWS),
    "fsetxattr": _call(ATTRIBUTE, _DESCRIPTOR),
    "removexattr": _call(ATTRIBUTE, _HERE),
    "lremovexattr": _call(ATTRIBUTE, _HERE, flags=NEVER_FOLLOWS),
    "fremovexattr": _call(ATTRIBUTE, _DESCRIPTOR),
    "setxattrat": _call(ATTRIBUTE, _THERE, flags=2),
    "removexattrat": _call(ATTRIBUTE, _THERE, flags=2),
}
_OLD = {
    "open": _call(OPEN, _HERE, 1),
    "creat": _call(CREAT, _HERE),
    "mkdir": _call(MAKE, _HERE),
    "mknod": _call(MAKE, _HERE),
    "symlink": _call(MAKE, ((FOLDER_OF_PROCESS, 1),)),
    "unlink": _call(REMOVE, _HERE),
    "rmdir": _call(REMOVE, _HERE),
    "rename": _call(RENAME, ((FOLDER_OF_PROCESS, 0), (FOLDER_OF_PROCESS, 1))),
    "link": _call(LINK, ((FOLDER_OF_PROCESS, 0), (FOLDER_OF_PROCESS, 1))),
    "chmod": _call(MODE, _HERE, 1),
    "chown": _call(OWNER, _HERE, 1),
    "lchown": _call(OWNER, _HERE, 1, NEVER_FOLLOWS),
    "utime": _call(ATTRIBUTE, _HERE),
    "utimes": _call(ATTRIBUTE, _HERE),
    "futimesat": _call(ATTRIBUTE, _THERE),
}
"""Calls that only old architectures have."""

_NEW_NUMBERS = "openat2 437 fchmodat2 452 setxattrat 463 removexattrat 466"
_NUMBERS = {
    "x86_64": "open 2 truncate 76 rename 82 mkdir 83 rmdir 84 creat 85 link 86 unlink 87 symlink 88 chmod 90 "
    "fchmod 91 chown 92 fchown 93 lchown 94 utime 132 mknod 133 setxattr 188 lsetxattr 189 fsetxattr 190 "
    "removexattr 197 lremovexattr 198 fremovexattr 199 utimes 235 openat 257 mkdirat 258 mknodat 259 "
    "fchownat 260 futimesat 261 unlinkat 263 renameat 264 linkat 265 symlinkat 266 fchmodat 268 "
    f"utimensat 280 renameat2 316 {_NEW_NUMBERS}",
    "aarch64": "setxattr 5 lsetxattr 6 fsetxattr 7 removexattr 14 lremovexattr 15 fremovexattr 16 mknodat 33 "
    "mkdirat 34 unlinkat 35 symlinkat 36 linkat 37 renameat 38 truncate 45 fchmod 52 fchmodat 53 "
    f"fchownat 54 fchown 55 openat 56 utimensat 88 renameat2 276 {_NEW_NUMBERS}",
}
_FOREIGN_NUMBERS = 0x40000000
"""From here on the numbers of x86_64 belong to another calling convention, x32."""

_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def calls(machine: str = "") -> dict[int, Call]:
    """Return the calls that change files, by number; none for a machine whose numbers are unknown."""
    words = _NUMBERS.get(machine or os.uname().machine, "").split()
    known = {**_EVERYWHERE, **_OLD}
    return {int(number): known[name] for name, number in zip(words[::2], words[1::2], strict=True)}


def install(*, attributes: bool) -> int:
    """Filter this process for good and return the listener; raises OSError if that fails.

    `attributes` decides whether changes of modes, owners, times and the like are reported.
    """
    machine = os.uname().machine
    if machine not in NATIVE:
        raise OSError(None, f"the system calls of {machine} are unknown", "seccomp")
    code = program(machine, attributes=attributes)
    try:
        return set_filter(code, NEW_LISTENER | WAIT_KILLABLE)
    except OSError:  # older kernels let any signal interrupt a call that waits
        return set_filter(code, NEW_LISTENER)


def program(machine: str, *, attributes: bool) -> bytes:
    """Build the filter's instructions."""
    reported = [
        (number, call) for number, call in sorted(calls(machine).items()) if attributes or call[0] < MODE
    ]
    opening = [(number, call[2]) for number, call in reported if call[0] == OPEN]
    plain = [number for number, call in reported if call[0] != OPEN]
    allow = 4 + 4 * len(opening) + len(plain)
    report = allow + 1
    code = [
        # The architecture first: on another one the same numbers mean other calls.
        load(ARCHITECTURE_AT),
        jump(EQUAL, NATIVE[machine], 0, allow - 2),
        load(NUMBER_AT),
        jump(AT_LEAST, _FOREIGN_NUMBERS, allow - 4, 0),
    ]
    for number, flags in opening:
        here = len(code)
        code += [
            jump(EQUAL, number, 0, 3),
            load(ARGUMENTS_AT + 8 * flags),
            jump(ANY_BIT, os.O_PATH, allow - here - 3, 0),
            jump(ANY_BIT, _CHANGING, report - here - 4, allow - here - 4),
        ]
    for number in plain:
        code.append(jump(EQUAL, number, report - len(code) - 1, 0))
    code += [answer(ALLOW), answer(REPORT)]
    return b"".join(code)
