"""What a worker has to say arrives once, whatever happens on the way."""

from pathlib import Path

import pytest
import trio
import trio.testing

from runner.remote.cluster.wire.messages import Ack, Batch, Heard, Listen, Machine, Sent
from runner.remote.cluster.worker.outbox import BEHIND, FencedError, Outbox

MACHINE = Machine(stories=1, tier="green", reason="")


def _outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path, "run", MACHINE)


def _batch(number: int = 1) -> Batch:
    event = Sent(at=1.0, kind="StoryQueued", data={"story_id": "a"})
    return Batch(story_id="a", fence=3, number=number, events=(event,))


def _listen(number: int, wait: float = 0.0) -> Listen:
    return Listen(run_id="run", number=number, wait=wait)


async def test_a_lost_answer_comes_again_and_an_answered_one_does_not(tmp_path: Path) -> None:
    """The same question gets the same answer; the next question gets what is new."""
    outbox = _outbox(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.send, _batch())
        first = await outbox.listen(_listen(0, 5))
        assert [batch.number for batch in first.batches] == [1]
        assert await outbox.listen(_listen(0)) == first
        assert (await outbox.listen(_listen(first.number))).batches == ()
        outbox.acknowledge(Ack(story_id="a", fence=3, number=1))


async def test_a_question_whose_connection_broke_takes_no_answer_away(tmp_path: Path) -> None:
    """A question that nobody waits for any more, and its repetition, get the same answer."""
    outbox = _outbox(tmp_path)
    heard: list[Heard] = []

    async def ask(number: int) -> None:
        heard.append(await outbox.listen(_listen(number, 1.0)))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ask, 0)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(outbox.send, _batch())
            while len(heard) < 2:
                await trio.testing.wait_all_tasks_blocked(0.01)
            outbox.acknowledge(Ack(story_id="a", fence=3, number=1))
    assert [answer.batches for answer in heard] == [(_batch(),), (_batch(),)]
    assert [answer.number for answer in heard] == [1, 1]


async def test_an_old_question_takes_nothing_from_the_next_one(tmp_path: Path) -> None:
    """News that comes after the next question goes to that, and not to one that still waits from before."""
    outbox = _outbox(tmp_path)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.listen, _listen(0, 60.0))
            await trio.testing.wait_all_tasks_blocked()
            first = await outbox.listen(_listen(0, 0.0))
            nursery.start_soon(outbox.send, _batch())
            second = await outbox.listen(_listen(first.number, 5.0))
            outbox.acknowledge(Ack(story_id="a", fence=3, number=1))
    assert (second.number, second.batches) == (2, (_batch(),))


async def test_a_new_coordinator_hears_what_is_not_answered(tmp_path: Path) -> None:
    """After a new start, a batch that waits is said again."""
    outbox = _outbox(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.send, _batch())
        await outbox.listen(_listen(0, 5))
        outbox.start_over()
        assert (await outbox.listen(_listen(0, 5))).batches == (_batch(),)
        outbox.acknowledge(Ack(story_id="a", fence=3, number=1))


async def test_a_refused_batch_raises(tmp_path: Path) -> None:
    """A story that was placed elsewhere learns it where it records."""
    outbox = _outbox(tmp_path)
    caught: list[FencedError] = []

    async def send() -> None:
        with pytest.raises(FencedError) as error:
            await outbox.send(_batch())
        caught.append(error.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await outbox.listen(_listen(0, 5))
        outbox.acknowledge(Ack(story_id="a", fence=2, number=1))  # of an older placing
        outbox.acknowledge(Ack(story_id="a", fence=3, number=1, fenced=True))
    assert caught


async def test_a_flood_of_output_is_cut_and_says_so(tmp_path: Path) -> None:
    """A log that grows faster than it travels is left out in between; small ones arrive whole."""
    outbox = _outbox(tmp_path)
    folder = tmp_path / "autopilot/runs/run/a"
    folder.mkdir(parents=True)
    (folder / "1.log").write_bytes(b"x" * (3 * BEHIND) + b"the end\n")
    (folder / "2.log").write_bytes(b"quiet\n")
    outbox.begin("a")
    heard = await outbox.listen(_listen(0))
    by_name = {part.name.rpartition("/")[2]: part for part in heard.logs}
    assert by_name["2.log"].data == b"quiet\n"
    assert len(by_name["1.log"].data) < BEHIND
    assert b"bytes are left out here" in by_name["1.log"].data
    assert by_name["1.log"].data.endswith(b"the end\n")
    assert by_name["1.log"].offset == 0
    assert not (await outbox.listen(_listen(heard.number))).logs
