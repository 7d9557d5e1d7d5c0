"""How the coordinator hears its keepers: one line of text after the other, without ever blocking."""

import socket

import trio


class Lines:
    """Text lines from a non-blocking socket, of which one task reads at a time."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = b""

    async def receive(self) -> str | None:
        """Give the next line; None when there will be no more."""
        while b"\n" not in self._buffer:
            try:
                data = self._source.recv(4096)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._source)
                continue
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()
