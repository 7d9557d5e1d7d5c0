"""What a sealed session reaches for besides files: the network, the processes of others, the whole machine.

Standard library only. All of this is refused elsewhere, by the session's network, its domain and its lack of
capabilities, which say nothing about it. The calls are rare in ordinary work, so it costs next to nothing to
have each of them reported before it is made. Calls of another architecture (32-bit programs) pass unreported.
"""

# Without pathlib and contextlib: each inspection must be fast.
# ruff: noqa: PTH115, PTH123

import os
import socket
import stat
import struct
from collections.abc import Collection, Sequence

from isolation.kernel.noticed.listener import Listener
from isolation.kernel.seccomp import (
    ALLOW,
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
    prepare,
    set_filter,
)

REACHED = "reached"
"""Begins what it saw in a keeper's last line."""
NETWORK, PROCESS, CALL, PLACE = "network", "process", "call", "place"
"""Reached for: a host with its port, a process by its name, the machine by a call, a hidden place."""

MOST_NAMES = 50

_ADDRESSED = {"connect": 1, "sendto": 4}
"""The argument with an address; the one after it has the length."""
_TARGETED = {
    "kill": 0,
    "tkill": 0,
    "tgkill": 0,
    "process_vm_readv": 0,
    "process_vm_writev": 0,
    "pidfd_open": 0,
    "ptrace": 1,
}
"""The argument with the number of a process."""
_MADE = {"mknod": 1, "mknodat": 2}
"""The argument with the kind of file to make; the one after it has the number of a device."""
_NUMBERS = {
    "x86_64": "connect 42 sendto 44 kill 62 ptrace 101 tkill 200 tgkill 234 process_vm_readv 310 "
    "process_vm_writev 311 pidfd_open 434 reboot 169 init_module 175 finit_module 313 kexec_load 246 "
    "swapon 167 sethostname 170 clock_settime 227 settimeofday 164 open_by_handle_at 304 bpf 321 "
    "pivot_root 155 setns 308 chroot 161 mount 165 umount2 166 socket 41 mknod 133 mknodat 259",
    "aarch64": "connect 203 sendto 206 kill 129 ptrace 117 tkill 130 tgkill 131 process_vm_readv 270 "
    "process_vm_writev 271 pidfd_open 434 reboot 142 init_module 105 finit_module 273 kexec_load 104 "
    "swapon 224 sethostname 161 clock_settime 112 settimeofday 170 open_by_handle_at 265 bpf 280 "
    "pivot_root 41 setns 268 chroot 51 mount 40 umount2 39 socket 198 mknodat 33",
}
_FOREIGN_NUMBERS = 0x40000000
_LOWEST_ADDRESS = 2
_LONGEST_ADDRESS = 128
_LOOPBACK = ("127.", "::1", "::ffff:127.", "0.0.0.0", "::")  # noqa: S104  nothing is bound
_LISTENS = "0A"
_PACKETS = 17  # AF_PACKET, which Python does not have everywhere
_KINDS = 0xF


def calls(machine: str = "") -> dict[int, str]:
    """Return the names of the reported calls by number; none for a machine whose numbers are unknown."""
    words = _NUMBERS.get(machine or os.uname().machine, "").split()
    return {int(number): name for name, number in zip(words[::2], words[1::2], strict=True)}


def install() -> int:
    """Filter this process for good and return the listener; raises OSError if that fails."""
    if not _PROGRAM:
        raise OSError(None, f"the system calls of {_MACHINE} are unknown", "seccomp")
    try:
        return set_filter(_PROGRAM, NEW_LISTENER | WAIT_KILLABLE)
    except OSError:  # older kernels let any signal interrupt a call that waits
        return set_filter(_PROGRAM, NEW_LISTENER)


def program(machine: str) -> bytes:
    """Build the filter's instructions."""
    named = calls(machine)
    sending = next(number for number, name in named.items() if name == "sendto")
    plain = [number for number in named if number != sending]
    size = len(plain) + 9
    code = [
        load(ARCHITECTURE_AT),
        jump(EQUAL, NATIVE[machine], 0, size - 2),
        load(NUMBER_AT),
        jump(AT_LEAST, _FOREIGN_NUMBERS, size - 4, 0),
    ]
    for number in plain:
        code.append(jump(EQUAL, number, size - len(code), 0))
    code += [
        jump(EQUAL, sending, 0, 4),
        # What has no address goes where the socket is connected to already.
        load(ARGUMENTS_AT + 8 * _ADDRESSED["sendto"]),
        jump(EQUAL, 0, 0, 3),
        load(ARGUMENTS_AT + 8 * _ADDRESSED["sendto"] + 4),
        jump(EQUAL, 0, 0, 1),
        answer(ALLOW),
        answer(REPORT),
    ]
    return b"".join(code)


_MACHINE = os.uname().machine
_CALLS = calls(_MACHINE)
_PROGRAM = program(_MACHINE) if _MACHINE in NATIVE else b""
"""Both made once, in the process that all keepers are forked from."""
prepare(_PROGRAM)


class Reaching(Listener):
    """Observes what one session, by its leader, reaches for; `network` is whether it has one of its own."""

    word = REACHED

    def __init__(self, listener: int, leader: int, hidden: Collection[bytes], *, network: bool) -> None:
        super().__init__(listener)
        self._calls = _CALLS
        self._hidden = frozenset(hidden)
        self._network = network
        self._keeper = os.getpid()
        self._users = _users_of(leader)
        self._seen: dict[tuple[str, bytes], None] = {}

    def report(self) -> str:
        """Return what was reached for, as words without spaces."""
        return " ".join(f"{kind}:{name.hex()}" for kind, name in self._seen)

    def remember(self, tried: Sequence[tuple[str, bytes]]) -> None:
        """Keep the first names."""
        for each in tried:
            if len(self._seen) < MOST_NAMES:
                self._seen[each] = None

    def inspect(self, tid: int, call: int, arguments: Sequence[int]) -> Sequence[tuple[str, bytes]]:
        """Return what a call reaches for that is not the session's own."""
        name = self._calls[call]
        if name in _ADDRESSED:
            at = _ADDRESSED[name]
            return self._addressed(tid, arguments[at], arguments[at + 1])
        if name in _TARGETED:
            return self._targeted(arguments[_TARGETED[name]])
        if name == "socket" and not (self._network and _is_raw(*arguments[:2])):
            return []
        if name in _MADE and not _is_device(*arguments[_MADE[name] :][:2]):
            return []
        # In a sandbox of its own a session has such rights.
        return [(CALL, name.encode())] if _users_of(tid) == self._users else []

    def _addressed(self, tid: int, address: int, size: int) -> list[tuple[str, bytes]]:
        if not _LOWEST_ADDRESS < size <= _LONGEST_ADDRESS:
            return []
        data = self._memory.read(tid, address, size)
        family = int.from_bytes(data[:2], "little")
        if family == socket.AF_UNIX:
            path = data[2:].partition(b"\0")[0]
            if path:
                return [(PLACE, path)] if path in self._hidden else []
            own = not self._network or _has_socket(tid, data[3:])
            return [] if own else [(NETWORK, b"@" + data[3:].rstrip(b"\0"))]
        if family not in {socket.AF_INET, socket.AF_INET6} or not self._network:
            return []
        port = struct.unpack_from("!H", data, 2)[0]
        raw = data[4:8] if family == socket.AF_INET else data[8:24]
        host = socket.inet_ntop(family, raw)
        if host.startswith(_LOOPBACK) and _is_served(tid, port):
            return []
        return [(NETWORK, f"{host}:{port}".encode() if "." in host else f"[{host}]:{port}".encode())]

    def _targeted(self, number: int) -> list[tuple[str, bytes]]:
        pid = number & 0xFFFFFFFF
        pid -= (1 << 32) * (pid >> 31)
        if pid == -1:
            return [(PROCESS, b"all")]
        if pid == 0 or not (name := self._foreign(abs(pid))):
            return []
        return [(PROCESS, b"%b (%d)" % (name, abs(pid)))]

    def _foreign(self, pid: int) -> bytes:
        """Return the name of a process that is not below this keeper; empty if it is, or has ended."""
        name, first = b"", True
        while pid > 1 or first:
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    before, _, after = file.read().rpartition(b")")
            except OSError:
                return b"" if first else name
            if first:
                name = before.partition(b"(")[2]
            if pid == self._keeper:
                return name if first else b""
            pid, first = int(after.split()[1]), False
        return name


def _is_raw(family: int, kind: int) -> bool:
    """Whether a socket would see, or make up, packets of others."""
    raw = kind & _KINDS == socket.SOCK_RAW and family in {socket.AF_INET, socket.AF_INET6}
    return raw or family == _PACKETS


def _is_device(mode: int, device: int) -> bool:
    """Whether a file would be a device; number 0 is none, and anybody may make it."""
    return bool(device) and (stat.S_ISBLK(mode) or stat.S_ISCHR(mode))


def _users_of(process: int) -> str:
    """Return the user namespace of a process; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{process}/ns/user")
    except OSError:
        return ""


def _has_socket(tid: int, name: bytes) -> bool:
    """Whether a session's own network has an abstract socket."""
    with open(f"/proc/{tid}/net/unix", "rb") as file:
        return any(line.endswith(b" @" + name) for line in file.read().splitlines())


def _is_served(tid: int, port: int) -> bool:
    """Whether something listens at a port of a session's own network."""
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        try:
            with open(f"/proc/{tid}/net/{kind}", encoding="ascii") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[1].endswith(f":{port:04X}") and (kind[:3] == "udp" or words[3] == _LISTENS):
                return True
    return False
