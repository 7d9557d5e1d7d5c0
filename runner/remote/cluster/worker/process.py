"""The process of `autopilot-multi worker`: a Dask worker without threads for tasks, which carries stories.

Unlike a plain Dask worker with our preload it outlives its connection. Dask gives a worker up whose
connection to the scheduler broke; sessions continue, and another Dask worker of this process takes its place.
"""

import asyncio
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from runner.remote.cluster.wire.dask_settings import set_up_dask
from runner.remote.cluster.wire.messages import ClusterError
from runner.remote.cluster.wire.reach import is_final, reach, unreachable
from runner.remote.cluster.worker.preload import (
    FOLDER,
    LABELS,
    OPERATION,
    SLOTS,
    ServiceThread,
    offer_from,
)

if TYPE_CHECKING:
    from distributed import Security, Worker

CONNECT_SECONDS = 60
RETRY_SECONDS = 1.0
REACH_SECONDS = 5.0
PATIENCE_SECONDS = 600.0
"""For how long a worker looks for a scheduler that it has lost, as it waits for a coordinator."""


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """What a worker was started with."""

    address: str
    security: "Security | None"
    name: str = ""
    slots: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    folder: str = ""
    port: int = 0
    contact: str = ""


def serve(options: WorkerOptions, say: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    os.environ[SLOTS] = str(options.slots)
    os.environ[LABELS] = ",".join(options.labels)
    if options.folder:
        os.environ[FOLDER] = options.folder
    set_up_dask()
    return asyncio.run(_serve(options, say))


async def _serve(options: WorkerOptions, say: Callable[[str], None]) -> int:
    name = options.name or f"{socket.gethostname()}-{os.getpid()}"
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if shutil.which("git") is None:
        raise ClusterError("git is not installed, or not on the PATH of this worker", hint="install git.")
    offer = offer_from(os.environ, name=name, resources=options.resources)
    _require_folder(offer.folder)
    thread = ServiceThread(offer)
    await asyncio.to_thread(thread.start)
    member = Member(options, name, thread, ended)
    try:
        if not await member.reach(say):
            return 0
        await member.join()
        say(f"worker {name} waits for stories at {options.address}; Ctrl-C ends it")
        while await member.was_cut_off():
            say("the connection to the scheduler broke; its sessions continue, and it joins again")
            if not await member.join_again():
                break
            say(f"worker {name} is back at {options.address}")
        if ended.is_set():
            say("ending its sessions; their stories start again elsewhere")
    finally:
        await thread.end()
        await member.leave()
    return 0


def _require_folder(folder: Path) -> None:
    """Raise unless clones can be made in a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise ClusterError(
            f"this worker cannot write to its folder {folder}: {error.strerror}",
            hint="name another one with --folder, or AUTOPILOT_MULTI_WORKER_FOLDER.",
        ) from error


class Member:
    """The worker as Dask knows it; one that Dask gave up, since its connection broke, is replaced."""

    def __init__(
        self, options: WorkerOptions, name: str, thread: ServiceThread, ended: asyncio.Event
    ) -> None:
        self._options = options
        self._name = name
        self._thread = thread
        self._ended = ended
        self._joined = 0
        self._worker: Worker | None = None
        self._dismissed = False

    async def reach(self, say: Callable[[str], None]) -> bool:
        """Wait for the scheduler, which may be about to start; false if the worker is to end before."""
        address, said = self._options.address, ""
        deadline = time.monotonic() + CONNECT_SECONDS
        while not self._ended.is_set():
            try:
                await reach(address, self._options.security, role="worker", limit=REACH_SECONDS)
            except OSError as error:
                failure = unreachable(address, error)
                if is_final(error) or time.monotonic() > deadline:
                    raise failure from error
                if not said:
                    say(f"{failure.message}; it tries for {CONNECT_SECONDS} s")
                said = failure.message
                await self._unless_ended(asyncio.sleep(RETRY_SECONDS))
            else:
                return True
        return False

    async def join(self) -> None:
        """Join the cluster; raises ClusterError if that is not possible."""
        from distributed import Worker

        options = self._options
        # The scheduler may not know yet that the first connection broke, and takes each name once.
        name = f"{self._name}~{self._joined}" if self._joined else self._name
        worker = Worker(
            options.address,
            name=name,
            nthreads=1,
            memory_limit=0,  # sessions are not Dask's; their memory is watched by the run's settings
            resources=dict(options.resources),
            security=options.security,
            death_timeout=CONNECT_SECONDS,
            port=options.port or None,
            contact_address=options.contact or None,
        )
        worker.handlers[OPERATION] = self._thread.answer
        worker.stream_handlers["close"] = self._dismiss
        self._worker = worker
        try:
            await worker
        except (OSError, TimeoutError, RuntimeError) as error:
            reason = str(error.__cause__ or error) or "nothing answers there"
            raise ClusterError(
                f"cannot join the cluster at {options.address}: {reason}",
                hint="does its scheduler run there, and has this machine the certificates of "
                "`autopilot-multi cluster init`?",
            ) from error
        self._joined += 1

    async def _dismiss(self, **options: Any) -> None:
        """Leave because the scheduler says so: it ends, or the worker was retired."""
        self._dismissed = True
        if self._worker is not None:
            await self._worker.close(**options)

    async def was_cut_off(self) -> bool:
        """Wait until Dask has given the worker up; false if it is to end."""
        if self._worker is not None:
            worker: Any = self._worker  # it has no types
            await self._unless_ended(worker.finished())
        return not (self._ended.is_set() or self._dismissed)

    async def join_again(self) -> bool:
        """Try to join until that works; false if it is to end, or nothing answers for very long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not self._ended.is_set():
            try:
                await self._unless_ended(self.join())
            except ClusterError:
                await self._unless_ended(asyncio.sleep(RETRY_SECONDS))
            else:
                return not self._ended.is_set()
        return False

    async def _unless_ended(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work, or until the worker is to end."""
        task, ended = asyncio.ensure_future(work), asyncio.ensure_future(self._ended.wait())
        await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if task.done():
            task.result()
        else:
            task.cancel()

    async def leave(self) -> None:
        """Leave the cluster."""
        if self._worker is not None:
            await self._worker.close(reason="autopilot-multi worker ends")
