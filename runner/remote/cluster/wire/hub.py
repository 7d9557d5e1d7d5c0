"""The coordinator's connection to Dask: who the workers are, and one way to ask a worker something.

Dask runs in a thread with its own loop. Its scheduler passes every request on, so the coordinator needs no
connection to the workers, nor they one to it; a scheduler of our own is asked without a connection, too. No
story is a task of Dask: what Dask would run again on its own, when a worker dies, the journal must decide.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import trio
from trio import to_thread

from runner.remote.cluster.wire.bridge import call_asyncio
from runner.remote.cluster.wire.dask_settings import set_up_dask
from runner.remote.cluster.wire.messages import Answer, Request, pack, read_answer
from runner.remote.cluster.wire.reach import unreachable

if TYPE_CHECKING:
    from distributed import Client, Scheduler, Security

OPERATION = "autopilot_multi"
"""The name under which a worker answers; see `worker/preload.py`."""

CONNECT_SECONDS = 15.0
AGAIN_SECONDS = 1.0
"""How often a connection that Dask has given up is tried again."""


class Hub:
    """An open connection; `address` is the scheduler's."""

    def __init__(self) -> None:
        self.address = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Client | None = None
        self._own: Scheduler | None = None

    async def ask(self, worker: str, request: Request, *, limit: float) -> Answer:
        """Ask a worker; raises ConnectionError without an answer, ClusterError if it refuses."""
        loop = self._loop
        if loop is None:
            raise ConnectionError("the cluster is closed")
        data = pack(request)
        with trio.move_on_after(limit):
            try:
                answer = await call_asyncio(loop, lambda: self._ask(worker, data))
            except OSError as error:
                raise ConnectionError(str(error)) from error
            return read_answer(answer)
        raise ConnectionError(f"no answer within {limit:g} s")

    async def workers(self) -> tuple[str, ...]:
        """Return the addresses of the workers that the scheduler knows now."""
        loop = self._loop
        if loop is None:
            raise ConnectionError("the cluster is closed")
        with trio.move_on_after(CONNECT_SECONDS):
            try:
                return await call_asyncio(loop, self._workers)
            except OSError as error:
                raise ConnectionError(str(error)) from error
        raise ConnectionError("the scheduler does not answer")

    @property
    def _scheduler(self) -> Any:
        if self._own is not None:
            return self._own
        client: Any = self._client
        if client is None or client.scheduler is None:
            raise ConnectionError("the connection to the scheduler is broken")
        return client.scheduler

    async def _workers(self) -> tuple[str, ...]:
        if self._own is not None:
            return tuple(self._own.workers)
        found: dict[str, Any] = await self._scheduler.identity(n_workers=-1)
        return tuple(found["workers"])

    async def _ask(self, worker: str, data: bytes) -> bytes:
        message = {"op": OPERATION, "data": data}
        answers = await self._scheduler.broadcast(msg=message, workers=[worker], on_error="return")
        answer = answers.get(worker)
        if isinstance(answer, bytes):
            return answer
        if isinstance(answer, dict) and answer.get("status") == "error":
            raise ConnectionError(str(answer.get("text", answer.get("exception", "an error of Dask"))))
        raise ConnectionError(str(answer) or type(answer).__name__)

    def _serve(self, address: str, security: "Security | None", ready: "_Ready") -> None:
        """Run Dask until `end` is called; blocks its thread."""
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        try:
            asyncio.run(self._connected(address, security, ready))
        except BaseException as error:  # noqa: BLE001  the task that waits for the connection gets it
            ready.fail(error)

    async def _connected(self, address: str, security: "Security | None", ready: "_Ready") -> None:
        from distributed import Client, Scheduler

        set_up_dask()
        connect: Any = Client  # it has no types
        self._loop, ended = asyncio.get_running_loop(), asyncio.Event()
        options: dict[str, Any] = {"asynchronous": True, "set_as_default": False, "timeout": CONNECT_SECONDS}
        if not address:
            import dask.config

            dask.config.set({"distributed.scheduler.reuse-broadcast-comm": True})
            async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as self._own:
                self.address = str(self._own.address)
                ready.set(ended)
                await ended.wait()
            return
        while not ended.is_set():
            try:
                async with connect(address, security=security, **options) as self._client:
                    self.address = address
                    ready.set(ended)
                    await _while_open(self._client, ended)
            except OSError:
                if not self.address:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)  # its scheduler may be started again

    def end(self, ended: "asyncio.Event") -> None:
        """Have the thread close the connection and end."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(ended.set)


async def _while_open(client: "Client", ended: asyncio.Event) -> None:
    """Wait until the connection is to end, or Dask has given it up."""
    while not ended.is_set() and client.status != "closed":
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), AGAIN_SECONDS)


class _Ready:
    """Passes the moment of the connection, or its failure, from Dask's thread to trio."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._event = trio.Event()
        self._ended: asyncio.Event | None = None
        self._error: BaseException | None = None

    def set(self, ended: "asyncio.Event") -> None:
        self._ended = ended
        self._wake()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        try:
            self._token.run_sync_soon(self._event.set)
        except trio.RunFinishedError:
            return

    async def wait(self) -> "asyncio.Event":
        await self._event.wait()
        if self._ended is None:
            raise ConnectionError(str(self._error) or type(self._error).__name__)
        return self._ended


@asynccontextmanager
async def open_hub(address: str, security: "Security | None") -> AsyncIterator[Hub]:
    """Connect to a scheduler; without an address, start one on loopback for the time of the block."""
    hub, ready = Hub(), _Ready()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(to_thread.run_sync, hub._serve, address, security, ready)  # noqa: SLF001  its own thread
        try:
            ended = await ready.wait()
        except ConnectionError as error:
            raise unreachable(address, error) from error
        try:
            yield hub
        finally:
            hub.end(ended)
