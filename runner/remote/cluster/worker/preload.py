"""What makes a Dask worker one of ours: `dask worker ADDRESS --preload runner.remote.cluster.worker.preload`.

Dask calls `dask_setup` in the worker's own loop. The stories run in another thread, under trio; Dask's loop
only passes requests on. What the worker offers comes from variables, so that every way to deploy Dask can
set it.
"""

import asyncio
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from runner.remote.cluster.address import workers_folder
from runner.remote.cluster.wire.bridge import call_trio
from runner.remote.cluster.wire.messages import ClusterError, Refusal, pack
from runner.remote.cluster.worker.service import Offer, Service

if TYPE_CHECKING:
    from distributed import Worker

OPERATION = "autopilot_multi"
SLOTS, FOLDER, LABELS = (f"AUTOPILOT_MULTI_WORKER_{name}" for name in ("SLOTS", "FOLDER", "LABELS"))


_ENDS = "it is ending"


class ServiceThread:
    """The thread in which stories run."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._service: Service | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        self._ending = False
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autopilot-multi", daemon=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._thread.start()
        self._begun.wait()

    def _run(self) -> None:
        trio.run(self._main)

    async def _main(self) -> None:
        self._service, self._token = Service(self._offer), trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._service.main)
                self._begun.set()

    async def answer(self, data: bytes) -> bytes:
        """Answer a request of a coordinator, in Dask's loop; once it ends, all are refused."""
        if self._ending:
            return pack(Refusal(message=_ENDS))
        service, token = self._service, self._token
        if service is None or token is None:
            raise RuntimeError("the worker has not begun")
        try:
            return await call_trio(token, lambda: service.answer(bytes(data)))
        except trio.Cancelled:  # it waited here for news when the worker was ended
            return pack(Refusal(message=_ENDS))

    async def end(self) -> None:
        """End all sessions, then the thread."""
        self._ending = True
        if self._token is not None:
            try:
                self._token.run_sync_soon(self._scope.cancel)
            except trio.RunFinishedError:
                return
        await asyncio.to_thread(self._thread.join)


_threads: dict[str, ServiceThread] = {}


def offer_from(environ: Mapping[str, str], *, name: str, resources: Mapping[str, float]) -> Offer:
    """Return what a worker offers, by its variables."""
    slots = environ.get(SLOTS, "0")
    if not slots.isdigit():
        raise ClusterError(f"{SLOTS} is '{slots}', which is not a number of slots")
    labels = tuple(label for label in environ.get(LABELS, "").split(",") if label)
    return Offer(
        name=name,
        folder=folder_from(environ, name),
        slots=int(slots),
        resources=dict(resources),
        labels=labels,
    )


def folder_from(environ: Mapping[str, str], name: str) -> Path:
    """Return where a worker keeps its clones; two workers of one machine have different folders."""
    if environ.get(FOLDER):
        return Path(environ[FOLDER]).expanduser().absolute()
    return workers_folder(environ) / re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")


async def dask_setup(worker: "Worker") -> None:
    """Have a Dask worker answer coordinators."""
    resources = {name: float(value) for name, value in worker.state.total_resources.items()}
    thread = ServiceThread(offer_from(os.environ, name=str(worker.name), resources=resources))
    await asyncio.to_thread(thread.start)
    _threads[worker.id] = thread
    worker.handlers[OPERATION] = thread.answer


async def dask_teardown(worker: "Worker") -> None:
    """End what runs here before the worker ends."""
    thread = _threads.pop(worker.id, None)
    if thread is not None:
        await thread.end()
