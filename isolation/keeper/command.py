"""A runner of commands under one confinement, on the side of the fork server.

Standard library only. It confines itself once, which costs far more than a command, and then runs one command
after the other. When a command has ended, nothing of it is left. Other than a session's keeper, this process
does not end a command when the coordinator is gone: a git command that is cut off leaves its lock files. It
gets `PATIENCE` to finish.

The protocol, to the server: the byte `COMMAND` with one descriptor, the control socket. On that socket a
request as to a keeper, of which only the confinement counts, and back `ready` or `error ERRNO STAGE`. Then
for each command one byte with three descriptors (stdin, stdout, stderr) and a request without a confinement;
back `exit CODE`, or `error ERRNO STAGE` if nothing was executed.
"""

import errno
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from isolation.keeper.spawn import STAGE_FORK, STAGE_GUARD, Request, SpawnError, confine, spawn
from isolation.kernel.process_tree import SUBREAPER, Tree, adopt_orphans, kill_all, set_name
from isolation.kernel.processors import take_all

COMMAND = b"c"
STREAMS = 3

PATIENCE = 60.0
"""How long a command may take after its coordinator has gone."""

_TICK = 1000

Receive = Callable[[socket.socket], Request | None]


def run_commands(control: int, level: str, receive: Receive) -> None:
    """Confine this process as the coordinator says, and run what it sends, until it closes the socket."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if level == SUBREAPER:
        adopt_orphans()
    set_name("apm-command")
    take_all()
    link = socket.socket(fileno=control)
    begun = receive(link)
    if begun is None:
        return
    try:
        confine(begun[3])
    except OSError as error:
        _say(link, f"error {error.errno or errno.EPERM} {STAGE_GUARD}")
        return
    _say(link, "ready")
    tree = Tree(os.getpid(), level=level)
    while _run_next(link, tree, receive):
        os.chdir("/")


def _run_next(link: socket.socket, tree: Tree, receive: Receive) -> bool:
    """Run one command and report its end; false if the coordinator wants no more."""
    try:
        data, streams, _, _ = socket.recv_fds(link, 1, STREAMS)
    except ConnectionResetError:
        return False
    request = receive(link) if data and len(streams) == STREAMS else None
    if request is None:
        return False
    for descriptor in streams:
        os.set_inheritable(descriptor, False)
    try:
        leader, *_ = spawn(request, *streams)
    except SpawnError as error:
        _say(link, "error {} {}".format(*error.args))
    except OSError as error:
        _say(link, f"error {error.errno} {STAGE_FORK}")
    else:
        tree.groups.add(leader)
        code = _wait(leader, link)
        if reap(tree):
            kill_all(tree, lambda: reap(tree))
        _say(link, f"exit {code}")
    for descriptor in streams:
        os.close(descriptor)
    return True


def _wait(leader: int, link: socket.socket) -> int:
    """Wait for the command; if the coordinator is gone, not for ever."""
    descriptor = os.pidfd_open(leader)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(link.fileno(), 0)  # only its end is reported
    deadline = None
    while not any(found == descriptor for found, _ in poll.poll(_TICK if deadline else None)):
        if deadline is None:
            deadline = time.monotonic() + PATIENCE
            poll.unregister(link.fileno())
        elif time.monotonic() > deadline:
            os.kill(leader, signal.SIGKILL)
    os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(leader, 0)[1])


def reap(tree: Tree) -> bool:
    """Reap the dead; true while something that a command started is there."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return bool(tree.strays())
        if not pid:
            return True


def _say(link: socket.socket, line: str) -> None:
    with suppress(OSError):  # without a coordinator there is no reader
        link.sendall(line.encode() + b"\n")
