"""Sessions of which one reaches for the processes of the other, of its keepers and of the coordinator.

As a program: `process_intruder.py victim|attacker FOLDER`. The folder, which both may write to, is where they
meet. The victim holds a file open and waits; the attacker finds its own run by the parents of its process,
does every act to every process of it, writes down which went through, and finally kills them all. Standard
library only: it runs as anybody.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17
PIDFD_GETFD = 438
CONTROL_GROUPS = Path("/sys/fs/cgroup")
REFUSALS = {errno.EPERM, errno.EACCES, errno.ESRCH, errno.ENOENT, errno.EROFS}

_libc = ctypes.CDLL(None, use_errno=True)


class _Range(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def _write(path: str) -> None:
    with Path(path).open("w") as file:
        file.write("evil\n")


def _write_held(pid: int) -> None:
    """Write to every file that a process holds open for writing."""
    failure: OSError | None = OSError(errno.ENOENT, "nothing is open")
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            descriptor = os.open(link, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        except OSError as error:
            failure = failure and error
            continue
        failure = None
        if link.readlink().name == "held":
            os.write(descriptor, b"evil\n")
        os.close(descriptor)
    if failure:
        raise failure


def _write_memory(pid: int) -> None:
    """Write nothing to an address that nobody has: who may write is told so, nobody is hurt."""
    part = _Range(8, 8)
    _checked(_libc.process_vm_writev(pid, ctypes.byref(part), 1, ctypes.byref(part), 1, 0))


def _open_memory(pid: int) -> None:
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(8)
        memory.read(1)


def trace(pid: int) -> None:
    """Attach to a process as a debugger does, and let go of it."""
    _checked(_libc.ptrace(PTRACE_SEIZE, pid, None, None))
    _libc.ptrace(PTRACE_DETACH, pid, None, None)


def _take_descriptor(pid: int) -> None:
    handle = os.pidfd_open(pid)
    os.close(_checked(_libc.syscall(PIDFD_GETFD, handle, 1, 0)))


def _limit(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_CORE, resource.prlimit(pid, resource.RLIMIT_CORE))


ACTS: dict[str, Callable[[int], object]] = {
    "cwd": lambda pid: _write(f"/proc/{pid}/cwd/planted-cwd"),
    "task": lambda pid: _write(f"/proc/{pid}/task/{pid}/cwd/planted-task"),
    "root": lambda pid: _write(f"/proc/{pid}/root/{Path(f'/proc/{pid}/cwd').readlink()}/planted-root"),
    "fd": _write_held,
    "environ": lambda pid: Path(f"/proc/{pid}/environ").read_bytes(),
    "maps": lambda pid: Path(f"/proc/{pid}/maps").read_bytes(),
    "mem": _open_memory,
    "vm": _write_memory,
    "ptrace": trace,
    "getfd": _take_descriptor,
    "limit": _limit,
    "signal": lambda pid: os.kill(pid, 0),
    "pidfd": lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), 0),
}


def outcome(act: Callable[[int], object], pid: int) -> str:
    """Say whether an act goes through."""
    try:
        act(pid)
    except OSError as error:
        if error.errno in REFUSALS:
            return "refused"
    return "through"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _find_run() -> dict[str, int]:
    """Find who is around this session, by host pids: keepers, server, coordinator and the sibling."""
    ours = os.getpid()
    while Path(f"/proc/{ours}/comm").read_text().strip() != "apm-keeper":
        ours = _parent(ours)
    server = _parent(ours)
    theirs = next(pid for pid in _children(server) if pid != ours and _children(pid))
    sibling = _children(theirs)[0]
    return {
        "sibling": sibling,
        "its keeper": theirs,
        "own keeper": ours,
        "server": server,
        "coordinator": _parent(server),
    }


def _own_child() -> dict[str, str]:
    """Do to a child of this session what a debugger and a supervisor do."""
    child = subprocess.Popen(["sleep", "60"])
    kept = {name: outcome(ACTS[name], child.pid) for name in ("environ", "ptrace", "signal", "getfd")}
    child.kill()
    child.wait()
    return kept


def _control_groups() -> str:
    """Open a file by which processes are moved, frozen or killed; nothing is written to it."""
    for path in CONTROL_GROUPS.rglob("cgroup.procs"):
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY))
            return "through"
    return "refused"


def attack(meeting: Path) -> None:
    """Wait for the victim, then do everything to everybody, and kill last; a second attempt does nothing."""
    Path("own").touch()
    if os.environ["AUTOPILOT_ATTEMPT"] != "1":
        return
    while not (meeting / "waiting").exists():
        time.sleep(0.01)
    run = _find_run()
    told = {who: {name: outcome(act, pid) for name, act in ACTS.items()} for who, pid in run.items()}
    told["own child"] = _own_child()
    told["machine"] = {"control groups": _control_groups()}
    (meeting / "told.json").write_text(json.dumps(told))
    for pid in run.values():
        outcome(lambda each: os.kill(each, signal.SIGKILL), pid)
    (meeting / "done").touch()


def suffer(meeting: Path) -> None:
    """Hold a file open in the own folder until the attack is over."""
    with Path("held").open("w") as held:
        held.write("mine\n")
        held.flush()
        (meeting / "waiting").touch()
        deadline = time.monotonic() + 60
        while not (meeting / "done").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


if __name__ == "__main__":
    role, place, *own = sys.argv[1:]
    if own:
        os.chdir(own[0])
    {"attacker": attack, "victim": suffer}[role](Path(place))
