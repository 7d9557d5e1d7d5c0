"""A network between the machines of a cluster that can be cut: all connections go through a proxy."""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

_RESET = struct.pack("ii", 1, 0)
"""A socket that lingers for no time is closed by a reset."""


class Wire:
    """Forwards TCP from `port` to another port of loopback, and can break that as networks do."""

    def __init__(self, target: int, loop: asyncio.AbstractEventLoop) -> None:
        self.port = 0
        self._target = target
        self._loop = loop
        self._flows = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin to forward."""
        self._flows.set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop forwarding."""
        if self._server is not None:
            self._server.close()
        self._reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reset(self) -> None:
        """Break every connection; a new one can be made at once."""
        self._loop.call_soon_threadsafe(self._reset)

    def stall(self, seconds: float) -> None:
        """Let nothing through for some time, and say nothing about it; then first what was held up."""
        self._loop.call_soon_threadsafe(self._stall, seconds)

    def _stall(self, seconds: float) -> None:
        self._flows.clear()
        self._loop.call_later(seconds, self._flows.set)

    def _reset(self) -> None:
        for writer in list(self._ends):
            found: socket.socket = writer.get_extra_info("socket")
            with suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._ends.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            await self._flows.wait()
            answers, there = await asyncio.open_connection("127.0.0.1", self._target)
            self._ends.add(there)
            await asyncio.gather(self._pass(reader, there), self._pass(answers, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, there):
                if end is not None:
                    self._ends.discard(end)
                    end.close()
            self._tasks.discard(task)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            await self._flows.wait()
            sink.write(data)
            await sink.drain()
        sink.close()


class Network:
    """The wires of a test, in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._wires: list[Wire] = []

    def wire(self, target: int) -> Wire:
        """Return a new wire to a port."""
        wire = Wire(target, self._loop)
        self._do(wire.open)
        self._wires.append(wire)
        return wire

    def _do(self, work: Callable[[], Awaitable[None]]) -> None:
        async def done() -> None:
            await work()

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(30)

    def close(self) -> None:
        """Close all wires."""
        for wire in self._wires:
            self._do(wire.close)
        self._do(self._loop.shutdown_asyncgens)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
