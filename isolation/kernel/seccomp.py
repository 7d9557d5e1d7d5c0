"""Filters of system calls: their instructions, and how a process puts itself under one for good.

Standard library only. A filter applies to everything that the process starts, and several add up: the
strictest answer counts.
"""

import ctypes
import os
import struct
from functools import cache

NATIVE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""How a filter names a machine's own architecture."""

NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
"""Where a filter finds the call's number, its architecture, and its arguments of eight bytes each."""

ALLOW, REPORT, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000
"""What a filter answers; `REFUSE` takes the number of an error in its lower half."""

NEW_LISTENER, WAIT_KILLABLE = 1 << 3, 1 << 5
EQUAL, AT_LEAST, ANY_BIT = 0x15, 0x35, 0x45

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER = 1
_SPECULATION_ALLOWED = 1 << 2
_LOAD, _RETURN = 0x20, 0x06

LIBC = ctypes.CDLL(None, use_errno=True)


@cache
def prepare(code: bytes) -> "ctypes.Array[ctypes.c_char]":
    """Return a filter's instructions as the kernel takes them.

    To make a type for each length takes longer than the call, so the fork server does it before it forks.
    """
    return ctypes.create_string_buffer(code, len(code))


def set_filter(code: bytes, flags: int = 0) -> int:
    """Filter this process, on a machine in `NATIVE`; raises OSError if that fails.

    Returns the listener, if the flags ask for one.
    """
    number = _SECCOMP[os.uname().machine]
    instructions = prepare(code)
    # The instructions' number, padding, and where they are.
    filter_ = struct.pack("@HP", len(code) // 8, ctypes.addressof(instructions))
    result: int = LIBC.syscall(number, _SET_FILTER, ctypes.c_uint(flags | _SPECULATION_ALLOWED), filter_)
    if result < 0:
        failure = ctypes.get_errno()
        raise OSError(failure, os.strerror(failure), "seccomp")
    return result


def load(offset: int) -> bytes:
    """Load four bytes of what is known of the call."""
    return struct.pack("=HBBI", _LOAD, 0, 0, offset)


def jump(kind: int, value: int, when: int, otherwise: int) -> bytes:
    """Compare what was loaded, and skip so many instructions when it holds, or otherwise."""
    return struct.pack("=HBBI", kind, when, otherwise, value)


def answer(value: int) -> bytes:
    """End with an answer."""
    return struct.pack("=HBBI", _RETURN, 0, 0, value)
