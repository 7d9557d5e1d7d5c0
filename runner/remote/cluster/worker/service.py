"""A worker as coordinators see it: one at a time opens a run here, and asks until the run is closed."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex

import trio
from msgspec import Struct, field
from trio import to_thread

from isolation.errors import IsolationError
from runner.core.errors import RunnerError
from runner.core.model import RunId
from runner.core.progress.repositories import HOME
from runner.remote.cluster.wire.messages import (
    CHUNK,
    Answer,
    Close,
    ClusterError,
    Done,
    Fetch,
    Greeting,
    Hello,
    Listen,
    Open,
    Piece,
    Prepare,
    Prepared,
    Put,
    Refusal,
    Request,
    Take,
    Update,
    pack,
    read_request,
)
from runner.remote.cluster.worker.clone import Clone
from runner.remote.cluster.worker.worker_run import WorkerRun
from runner.story.context.error_groups import unwrapped

SILENT_SECONDS = 15.0
"""After how much silence of a coordinator another run may have the worker."""


class Offer(Struct, frozen=True, kw_only=True):
    """What a worker offers: its name, its folder, slots (0: as the run's settings say), resources, labels."""

    name: str
    folder: Path
    slots: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()


class Service:
    """Answers coordinators; `main` is its task, for as long as the worker lives."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._instance = token_hex(8)
        self._run: WorkerRun | None = None
        self._opening = trio.Lock()
        self._taking = trio.Lock()
        self._nursery: trio.Nursery | None = None

    async def main(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then all sessions are ended first."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def answer(self, data: bytes) -> bytes:
        """Answer one request; an error of the user's or the machine's is an answer, too."""
        try:
            with unwrapped():
                return pack(await self._answer(read_request(data)))
        except (IsolationError, RunnerError) as error:
            return pack(Refusal(message=error.message, hint=error.hint))
        except OSError as error:
            return pack(Refusal(message=str(error)))

    async def _answer(self, request: Request) -> Answer:  # noqa: PLR0911  one return per request
        match request:
            case Hello():
                return self._greeting()
            case Prepare():
                return Prepared(have=await to_thread.run_sync(self._clone(request.repository).have))
            case Put():
                await to_thread.run_sync(self._clone(request.repository).put, request)
                return Done()
            case Take():
                async with self._taking:  # asked again, it waits for the first one and finds all done
                    await to_thread.run_sync(self._clone(request.repository).take, request.name)
                return Done()
            case Open():
                return await self._open(request)
            case Update():
                return await self._serving(request.run_id).update(request)
            case Listen():
                return await self._serving(request.run_id).listen(request)
            case Fetch():
                run = self._serving(request.run_id)
                return Piece(data=await to_thread.run_sync(run.piece, request.name, request.offset, CHUNK))
            case Close():
                await self._close(request.run_id)
                return Done()

    def _greeting(self) -> Greeting:
        run = self._run
        busy = run is not None and not run.closed.is_set() and not run.is_silent(SILENT_SECONDS)
        return Greeting(
            version=version("autopilot-multi"),
            name=self._offer.name,
            instance=self._instance,
            slots=self._offer.slots,
            offers=dict(self._offer.resources),
            labels=self._offer.labels,
            run_id=run.run_id if run is not None and busy else "",
        )

    def _clone(self, key: str) -> Clone:
        return Clone(self._offer.folder, key)

    async def _open(self, request: Open) -> Answer:
        async with self._opening:
            run = self._run
            if run is not None and not run.closed.is_set():
                if run.run_id == request.run_id:
                    return run.opened(request)
                if not run.is_silent(SILENT_SECONDS):
                    raise ClusterError(f"this worker serves run {run.run_id}")
                await self._close(run.run_id)
            assert self._nursery is not None  # noqa: S101  requests come once it serves
            clones = {name: self._clone(place.repository) for name, place in request.places.items()}
            if HOME not in clones:
                raise ClusterError("a run without a repository of its own")
            new = WorkerRun(request, clones, self._offer.slots)
            await self._nursery.start(self._serve, new)
            if new.failure:
                raise new.failure
            self._run = new
            return new.opened(request)

    async def _serve(self, run: WorkerRun, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve a run to its end; what prevents that goes to the coordinator, and ends nothing else."""
        begun = _Once(task_status)
        try:
            with unwrapped():
                await run.serve(task_status=begun)
        except (IsolationError, RunnerError, OSError) as error:
            run.failure = error
        finally:
            run.closed.set()
            run.over.set()
            begun.started()

    async def _close(self, run_id: str) -> None:
        run = self._run
        if run is not None and run.run_id == run_id:
            run.closed.set()
            await run.over.wait()
            self._run = None

    def _serving(self, run_id: str) -> WorkerRun:
        run = self._run
        if run is None or run.run_id != RunId(run_id) or run.closed.is_set():
            raise ClusterError(f"worker {self._offer.name} does not serve run {run_id} any more")
        return run


class _Once:
    """A task status that may be set again."""

    def __init__(self, status: trio.TaskStatus[None]) -> None:
        self._status: trio.TaskStatus[None] | None = status

    def started(self, value: None = None) -> None:
        """Say that the task has begun, the first time."""
        status, self._status = self._status, None
        if status is not None:
            status.started(value)
