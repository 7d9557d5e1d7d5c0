"""The recorder: durable first, shared transactions, and nobody is told that something is safe too early."""

import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
import trio.testing

from runner.core.errors import JournalError
from runner.core.events.events import Event, Noted, RunEnded, RunStarted
from runner.core.model import KillSwitch, RunId, RunSnapshot
from runner.core.text.redaction import Redactor
from runner.records.event_log import Recorder


class Store:
    """Keeps transactions in memory; holds the first one up until told, and fails on demand."""

    def __init__(self) -> None:
        self.transactions: list[list[str]] = []
        self.go = threading.Event()
        self.broken = False
        self.fails_at = ""

    def append(self, events: Sequence[Event]) -> None:
        """Take a transaction."""
        self.go.wait(10)
        messages = [event.body.message for event in events if isinstance(event.body, Noted)]
        if self.broken or self.fails_at in messages:
            raise JournalError("the disk is full")
        self.transactions.append(messages)


def _recorder(store: Store, redactor: Redactor | None = None) -> Recorder:
    return Recorder(
        store=store,
        snapshot=RunSnapshot(run_id=RunId("r"), started_at=0.0),
        wall_clock=lambda: 1.0,
        redactor=redactor,
    )


def _messages(recorder: Recorder) -> list[str]:
    return [note.message for note in recorder.snapshot.notes]


async def test_what_waits_shares_one_transaction_in_order() -> None:
    """While one transaction is written, the next gathers all who wait; none is torn apart."""
    store = Store()
    recorder = _recorder(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.record, Noted(message="first"))
        await trio.testing.wait_all_tasks_blocked()
        for name in ("a", "b", "c"):
            nursery.start_soon(recorder.record, Noted(message=f"{name}1"), Noted(message=f"{name}2"))
            await trio.testing.wait_all_tasks_blocked()
        assert _messages(recorder) == [], "nothing is shown before it is durable"
        store.go.set()
    assert store.transactions == [["first"], ["a1", "a2", "b1", "b2", "c1", "c2"]]
    assert _messages(recorder) == ["first", "a1", "a2", "b1", "b2", "c1", "c2"]


async def test_what_is_deferred_comes_with_the_next_record() -> None:
    """It shows at once, is neither lost nor a transaction of its own, and is told only once."""
    store = Store()
    store.go.set()
    recorder = _recorder(store)
    recorder.defer(Noted(message="later"))
    assert store.transactions == []
    assert _messages(recorder) == ["later"]
    await recorder.record(Noted(message="now"))
    assert store.transactions == [["later", "now"]]
    assert _messages(recorder) == ["later", "now"]


def _recording(recorder: Recorder) -> tuple[list[str], Callable[[str], Awaitable[None]]]:
    """Give who failed to record its name, and how to try."""
    failed: list[str] = []

    async def record(name: str) -> None:
        try:
            await recorder.record(Noted(message=name))
        except JournalError:
            failed.append(name)

    return failed, record


async def test_a_failed_transaction_fails_everyone_in_it() -> None:
    """No caller goes on as if its event were safe."""
    store = Store()
    recorder = _recorder(store)
    failed, record = _recording(recorder)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(record, "first")
        await trio.testing.wait_all_tasks_blocked()
        for name in ("a", "b"):
            nursery.start_soon(record, name)
        await trio.testing.wait_all_tasks_blocked()
        store.broken = True
        store.go.set()
    assert sorted(failed) == ["a", "b", "first"]
    assert _messages(recorder) == []


async def test_who_waits_behind_a_failed_transaction_is_recorded_in_turn() -> None:
    """One failure loses nobody else's event, and nothing that came later gets ahead of what came before."""
    store = Store()
    store.fails_at = "a"
    recorder = _recorder(store)
    failed, record = _recording(recorder)
    recorder.defer(Noted(message="before"))
    async with trio.open_nursery() as nursery:
        for name in ("a", "b"):
            nursery.start_soon(record, name)
            await trio.testing.wait_all_tasks_blocked()
        store.go.set()
    assert failed == ["a"]
    assert store.transactions == [["before", "b"]]
    assert _messages(recorder) == ["before", "b"]


async def test_who_is_in_a_failed_transaction_of_anothers_tries_for_itself() -> None:
    """Both wait, the first to come writes for both and fails: the other's event is not lost with it."""
    store = Store()
    recorder = _recorder(store)
    failed, record = _recording(recorder)
    async with trio.open_nursery() as nursery:
        for name in ("first", "a", "b"):
            nursery.start_soon(record, name)
            await trio.testing.wait_all_tasks_blocked()
        store.fails_at = "a"
        store.go.set()
    assert failed == ["a"]
    assert store.transactions == [["first"], ["b"]]


async def test_a_caller_that_is_cancelled_while_its_event_is_written_waits_for_it() -> None:
    """What the disk has, the run's state has: never one without the other."""
    store = Store()
    recorder = _recorder(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.record, Noted(message="first"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        store.go.set()
    assert store.transactions == [["first"]]
    assert _messages(recorder) == ["first"]


async def test_secrets_reach_neither_the_journal_nor_the_screen() -> None:
    """All but the plan is cleaned, which must stay what the user wrote."""
    store = Store()
    store.go.set()
    recorder = _recorder(store, Redactor({"API_TOKEN": "s3cret-of-mine"}))
    shown: list[object] = []
    recorder.subscribe(lambda event, _run: shown.append(event.body))
    await recorder.record(Noted(message="it said s3cret-of-mine"))
    recorder.show(Noted(message="s3cret-of-mine again"))
    plan = RunStarted(
        base="s3cret-of-mine", isolation="none", enforcement="none", max_stories=1, options={}, stories=()
    )
    await recorder.record(plan)
    assert "s3cret" not in repr((store.transactions, shown[:2]))
    assert shown[2] == plan


async def test_a_cancelled_caller_takes_its_events_back() -> None:
    """What was not yet on its way is not recorded behind the back of whoever gave up."""
    store = Store()
    recorder = _recorder(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.record, Noted(message="first"))
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await recorder.record(Noted(message="given up"))
        store.go.set()
    assert store.transactions == [["first"]]


def _full(recorder: Recorder) -> KillSwitch | None:
    return KillSwitch(name="full", detail="", hint="") if recorder.snapshot.notes else None


@pytest.mark.parametrize("ahead", [0, 1])
async def test_what_must_not_follow_something_never_does(ahead: int) -> None:
    """An objection counts although it is still on its way to the disk, or only waits for that."""
    store = Store()
    recorder = _recorder(store)
    answers: list[KillSwitch | None] = []

    async def begin() -> None:
        answers.append(await recorder.record_unless(lambda: _full(recorder), Noted(message="begins")))

    async with trio.open_nursery() as nursery:
        for _ in range(ahead):  # holds the disk, so that the next one only waits
            nursery.start_soon(recorder.record, RunEnded(exit_code=0))
            await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(recorder.record, Noted(message="the end"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(begin)
        await trio.testing.wait_all_tasks_blocked()
        store.go.set()
    assert [found and found.name for found in answers] == ["full"]
    assert _messages(recorder) == ["the end"]
    assert [message for transaction in store.transactions for message in transaction] == ["the end"]


async def test_those_who_may_all_begin_share_one_transaction() -> None:
    """Many stories that start at once cost one flush of the disk, as with anything else."""
    store = Store()
    recorder = _recorder(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.record, RunEnded(exit_code=0))
        await trio.testing.wait_all_tasks_blocked()
        for name in ("a", "b"):
            nursery.start_soon(recorder.record_unless, lambda: _full(recorder), Noted(message=name))
            await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(recorder.record, Noted(message="the end"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(recorder.record_unless, lambda: _full(recorder), Noted(message="too late"))
        await trio.testing.wait_all_tasks_blocked()
        store.go.set()
    assert [messages for messages in store.transactions if messages] == [["a", "b", "the end"]]


async def test_without_an_objection_it_is_recorded_with_what_was_deferred() -> None:
    """It costs no transaction of its own, and one that fails leaves nothing behind for the next."""
    store = Store()
    store.go.set()
    recorder = _recorder(store)
    recorder.defer(RunEnded(exit_code=0))
    store.broken = True
    with pytest.raises(JournalError):
        await recorder.record_unless(lambda: _full(recorder), Noted(message="lost"))
    store.broken = False
    assert await recorder.record_unless(lambda: _full(recorder), Noted(message="begins")) is None
    assert store.transactions == [["begins"]]
    assert _messages(recorder) == ["begins"]


@pytest.mark.parametrize("body", [Noted(message="x"), RunEnded(exit_code=0)])
async def test_listeners_hear_of_every_event_with_the_new_state(body: Noted | RunEnded) -> None:
    """A listener sees the snapshot after the event."""
    store = Store()
    store.go.set()
    recorder = _recorder(store)
    heard: list[tuple[object, bool]] = []
    recorder.subscribe(lambda event, run: heard.append((event.body, run is recorder.snapshot)))
    await recorder.record(body)
    assert heard == [(body, True)]
