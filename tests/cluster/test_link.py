"""The coordinator's link to a worker: a real worker answers, without Dask between them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import trio

from isolation.git.repository import Repository
from isolation.paths import repository_hash
from runner.core.progress.repositories import HOME
from runner.remote.cluster.link import Link, Stream
from runner.remote.cluster.wire.hub import Hub
from runner.remote.cluster.wire.messages import (
    Ack,
    Answer,
    Batch,
    ClusterError,
    Greeting,
    Heard,
    Levels,
    Listen,
    Machine,
    Request,
    Sent,
    Update,
    Updated,
    pack,
    read_answer,
    read_request,
)
from runner.remote.cluster.worker.clone import Clone
from runner.remote.cluster.worker.service import Offer, Service
from tests.conftest import git

GREETING = Greeting(version="1", name="one", instance="i", slots=1)


def _link(hub: object, repository: Repository, tmp_path: Path, **others: Repository) -> Link:
    return Link(
        hub=cast("Hub", hub),
        address="tcp://here",
        greeting=GREETING,
        run_id="run",
        repositories={HOME: repository, **others},
        folder=tmp_path / "bundles",
        silence=60.0,
    )


class _Direct:
    """Asks a worker of this process."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.asked: list[str] = []

    async def ask(self, _worker: str, request: Request, *, limit: float) -> Answer:
        del limit
        self.asked.append(type(request).__name__)
        return read_answer(await self._service.answer(pack(request)))


@asynccontextmanager
async def _serving(folder: Path) -> AsyncIterator[Service]:
    service = Service(Offer(name="one", folder=folder))
    async with trio.open_nursery() as nursery:
        await nursery.start(service.main)
        yield service
        nursery.cancel_scope.cancel()


async def test_what_is_brought_is_in_the_clone_at_once(repo: Path, tmp_path: Path) -> None:
    """No other message has to arrive for that, so that none can be left out."""
    repository = Repository.open(repo)
    head = git(repo, "rev-parse", "HEAD").strip()
    async with _serving(tmp_path / "worker") as service:
        hub = _Direct(service)
        link = _link(hub, repository, tmp_path)
        await link.bring(HOME, [head])
        await link.bring(HOME, [head])
    clone = Clone(tmp_path / "worker", repository_hash(repository.common_dir))
    assert head in clone.have()
    assert hub.asked == ["Prepare", "Put", "Take"]
    assert not list(clone.incoming.iterdir())


async def test_a_clone_that_fails_closes_one_repository_of_the_worker(
    make_repository: Callable[..., Path], tmp_path: Path
) -> None:
    """The worker is not lost, and stories elsewhere still come to it."""
    here, there = (Repository.open(make_repository(name)) for name in ("here", "there"))
    folder = tmp_path / "worker"
    (folder / repository_hash(there.common_dir)).mkdir(parents=True)
    (folder / repository_hash(there.common_dir) / "incoming").write_text("in the way\n")
    async with _serving(folder) as service:
        hub = _Direct(service)
        link = _link(hub, here, tmp_path, there=there)
        link.machine = Machine(stories=1, tier="green", reason="")
        await link.bring(HOME, [here.resolve("HEAD")])
        assert hub.asked == ["Prepare", "Put", "Take"], "nothing is asked about the other repository yet"
        with pytest.raises(ClusterError, match="incoming"):
            await link.bring("there", [there.resolve("HEAD")])
        room = link.room(lambda _: False)
    assert not link.lost
    assert room.repos == {HOME}
    assert room.closed == {"there"}
    assert room.has_room(())
    assert not room.has_room((), "there")


class _Scripted:
    """A worker that says something once, and notes how it gets its answer."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.answered = trio.Event()
        self.asked_again = trio.Event()

    async def ask(self, _worker: str, request: Request, *, limit: float) -> Answer:
        del limit
        await trio.lowlevel.checkpoint()
        request = read_request(pack(request))
        self.asked.append(request)
        acks = request.update.acks if isinstance(request, Listen) and request.update else ()
        if acks or (isinstance(request, Update) and request.acks):
            self.answered.set()
        if isinstance(request, Update):
            return Updated(received=request.first + len(request.events))
        assert isinstance(request, Listen)
        if request.number:
            self.asked_again.set()
            await trio.sleep_forever()
        event = Sent(at=1.0, kind="StoryQueued", data={"story_id": "a"})
        batch = Batch(story_id="a", fence=1, number=1, events=(event,))
        return Heard(number=1, machine=Machine(stories=1, tier="green", reason=""), batches=(batch,))

    async def workers(self) -> tuple[str, ...]:
        return ("tcp://here",)


async def test_an_answer_goes_along_with_the_next_question(repo: Path, tmp_path: Path) -> None:
    """What a worker said costs one request: the question that comes next brings the answer."""
    hub = _Scripted()
    link = _link(hub, Repository.open(repo), tmp_path)
    stream = Stream([])

    def hear(heard: Heard) -> None:
        for batch in heard.batches:
            stream.events.extend(batch.events)
            link.pass_on()
            link.acknowledge(Ack(story_id=batch.story_id, fence=batch.fence, number=batch.number))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.serve, stream, Levels, hear)
            await hub.answered.wait()
            nursery.cancel_scope.cancel()
    answering = hub.asked[-1]
    assert isinstance(answering, Listen)
    assert answering.number == 1
    assert answering.update is not None
    assert [ack.story_id for ack in answering.update.acks] == ["a"]
    assert len(answering.update.events) == 1


async def test_an_answer_that_takes_long_comes_by_itself(repo: Path, tmp_path: Path) -> None:
    """The next question does not wait for it: other stories of the worker have something to say, too."""
    hub = _Scripted()
    link = _link(hub, Repository.open(repo), tmp_path)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.serve, Stream([]), Levels, lambda _: None)
            await hub.asked_again.wait()
            link.acknowledge(Ack(story_id="a", fence=1, number=1))
            await hub.answered.wait()
            nursery.cancel_scope.cancel()
    assert isinstance(hub.asked[-1], Update)
