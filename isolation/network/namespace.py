"""The inside of a session's network: its loopback, and sockets that listen there for a process outside.

Standard library only: a keeper's child calls this between fork and exec, when it is in the namespace already.
A socket belongs to the namespace in which it was made, no matter which process holds it. So the child opens
what listens and hands it to its keeper: connections that the session makes arrive outside, and nothing has to
run within.
"""

import fcntl
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress

PROXY_PORT = 23128
"""Where a session finds the proxy, on its own loopback."""

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_REQUEST = struct.Struct("16sh14x")
_WAITING = 128


def raise_loopback() -> None:
    """Switch the loopback of a new namespace on; raises OSError if this process may not."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        found = fcntl.ioctl(any_socket, _GET_FLAGS, _REQUEST.pack(b"lo", 0))
        flags = _REQUEST.unpack(found)[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, _REQUEST.pack(b"lo", flags | _UP))


def listen(ports: Iterable[int]) -> list[socket.socket]:
    """Return sockets that listen at these ports of loopback; also for IPv6 where there is any."""
    made: list[socket.socket] = []
    for port in ports:
        made.append(_listener(socket.AF_INET, "127.0.0.1", port))
        with suppress(OSError):
            made.append(_listener(socket.AF_INET6, "::1", port))
    return made


def _listener(family: int, address: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((address, port))
        listener.listen(_WAITING)
    except OSError:
        listener.close()
        raise
    return listener
