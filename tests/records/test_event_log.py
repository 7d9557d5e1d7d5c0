"""The event log: durable first, shared transactions, and callers hear of success only when it is true."""

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest
import trio
import trio.testing

from runner.core.errors import JournalError
from runner.core.events.events import Event, Noted, RunEnded, RunStarted
from runner.core.model import KillSwitch, RunId, RunSnapshot
from runner.core.text.redaction import Redactor
from runner.records.event_log import EventLog


class Store:
    """Keeps transactions in memory; holds the first one up until `go` is set, and fails on demand."""

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


def _open_log(store: Store, redactor: Redactor | None = None) -> EventLog:
    return EventLog(
        store=store,
        snapshot=RunSnapshot(run_id=RunId("r"), started_at=0.0),
        wall_clock=lambda: 1.0,
        redactor=redactor,
    )


def _set(real: Callable[[], float], by: float) -> float:
    return real() + by


def _messages(log: EventLog) -> list[str]:
    return [note.message for note in log.snapshot.notes]


async def test_a_clock_that_is_set_changes_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events keep their distance; only what other processes read follows the clock."""
    log = EventLog(store=Store(), snapshot=RunSnapshot(run_id=RunId("r"), started_at=0.0))
    before, real = log.now(), time.time
    for years in (-1, 1):
        monkeypatch.setattr(time, "time", partial(_set, real, years * 365 * 86400.0))
        assert before <= log.now() < before + 60


async def test_what_waits_shares_one_transaction_in_order() -> None:
    """While one transaction is written, the next gathers all that wait; no call is split."""
    store = Store()
    log = _open_log(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.record, Noted(message="first"))
        await trio.testing.wait_all_tasks_blocked()
        for name in ("a", "b", "c"):
            nursery.start_soon(log.record, Noted(message=f"{name}1"), Noted(message=f"{name}2"))
            await trio.testing.wait_all_tasks_blocked()
        assert _messages(log) == [], "nothing is shown before it is durable"
        store.go.set()
    assert store.transactions == [["first"], ["a1", "a2", "b1", "b2", "c1", "c2"]]
    assert _messages(log) == ["first", "a1", "a2", "b1", "b2", "c1", "c2"]


async def test_what_is_deferred_comes_with_the_next_record() -> None:
    """It shows immediately, is neither lost nor a transaction of its own, and is published only once."""
    store = Store()
    store.go.set()
    log = _open_log(store)
    log.defer(Noted(message="later"))
    assert store.transactions == []
    assert _messages(log) == ["later"]
    await log.record(Noted(message="now"))
    assert store.transactions == [["later", "now"]]
    assert _messages(log) == ["later", "now"]


def _recording(log: EventLog) -> tuple[list[str], Callable[[str], Awaitable[None]]]:
    """Return the names that could not be recorded, and the function that tries one."""
    failed: list[str] = []

    async def record(name: str) -> None:
        try:
            await log.record(Noted(message=name))
        except JournalError:
            failed.append(name)

    return failed, record


async def test_a_failed_transaction_fails_everyone_in_it() -> None:
    """No caller continues as if its event were safe."""
    store = Store()
    log = _open_log(store)
    failed, record = _recording(log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(record, "first")
        await trio.testing.wait_all_tasks_blocked()
        for name in ("a", "b"):
            nursery.start_soon(record, name)
        await trio.testing.wait_all_tasks_blocked()
        store.broken = True
        store.go.set()
    assert sorted(failed) == ["a", "b", "first"]
    assert _messages(log) == []


async def test_a_request_behind_a_failed_transaction_is_recorded_in_turn() -> None:
    """One failure loses no other event, and nothing that came later gets ahead of what came before."""
    store = Store()
    store.fails_at = "a"
    log = _open_log(store)
    failed, record = _recording(log)
    log.defer(Noted(message="before"))
    async with trio.open_nursery() as nursery:
        for name in ("a", "b"):
            nursery.start_soon(record, name)
            await trio.testing.wait_all_tasks_blocked()
        store.go.set()
    assert failed == ["a"]
    assert store.transactions == [["before", "b"]]
    assert _messages(log) == ["before", "b"]


async def test_a_caller_in_a_failed_transaction_of_another_tries_for_itself() -> None:
    """Both wait, the first to come writes for both and fails: the other's event is not lost with it."""
    store = Store()
    log = _open_log(store)
    failed, record = _recording(log)
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
    log = _open_log(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.record, Noted(message="first"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        store.go.set()
    assert store.transactions == [["first"]]
    assert _messages(log) == ["first"]


async def test_secrets_reach_neither_the_journal_nor_the_screen() -> None:
    """All but the plan is cleaned, which must stay what the user wrote."""
    store = Store()
    store.go.set()
    log = _open_log(store, Redactor({"API_TOKEN": "s3cret-of-mine"}))
    shown: list[object] = []
    log.subscribe(lambda event, _run: shown.append(event.body))
    await log.record(Noted(message="it said s3cret-of-mine"))
    log.show(Noted(message="s3cret-of-mine again"))
    plan = RunStarted(
        base="s3cret-of-mine", isolation="none", enforcement="none", max_stories=1, options={}, stories=()
    )
    await log.record(plan)
    assert "s3cret" not in repr((store.transactions, shown[:2]))
    assert shown[2] == plan


async def test_a_cancelled_caller_withdraws_its_events() -> None:
    """What no transaction has taken yet is not recorded after its caller has left."""
    store = Store()
    log = _open_log(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.record, Noted(message="first"))
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await log.record(Noted(message="given up"))
        store.go.set()
    assert store.transactions == [["first"]]


async def test_the_journal_has_events_in_the_order_of_the_calls() -> None:
    """Deferred or waiting, what was asked for first comes first."""
    store = Store()
    log = _open_log(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.record, Noted(message="first"))
        await trio.testing.wait_all_tasks_blocked()
        for waiting, deferred in (("a", "b"), ("c", "d")):
            nursery.start_soon(log.record, Noted(message=waiting))
            await trio.testing.wait_all_tasks_blocked()
            log.defer(Noted(message=deferred))
        store.go.set()
    assert store.transactions == [["first"], ["a", "b", "c", "d"]]


async def test_what_is_deferred_behind_a_condition_that_must_wait_stays_behind_it() -> None:
    """The condition needs a transaction of its own; nothing overtakes it."""
    store = Store()
    log = _open_log(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.record, RunEnded(exit_code=0))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(log.record, RunEnded(exit_code=0))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(log.record_unless, lambda: None, Noted(message="begins"))
        await trio.testing.wait_all_tasks_blocked()
        log.defer(Noted(message="later"))
        store.go.set()
    assert store.transactions == [[], [], ["begins", "later"]]


async def test_a_caller_cancelled_during_a_write_that_fails_leaves_nothing_behind() -> None:
    """Its events were in another caller's transaction; they do not go with the next one."""
    store = Store()
    log = _open_log(store)
    failed, record = _recording(log)
    scope = trio.CancelScope()

    async def give_up() -> None:
        with scope:
            await log.record(Noted(message="given up"))

    async with trio.open_nursery() as nursery:
        log._writing = True  # as while another transaction is written
        nursery.start_soon(record, "first")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(give_up)
        await trio.testing.wait_all_tasks_blocked()
        log._writing = False
        log._idle.unpark_all()
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        store.fails_at = "first"
        store.go.set()
    assert failed == ["first"]
    await log.record(Noted(message="next"))
    assert store.transactions == [["next"]]


def _full(log: EventLog) -> KillSwitch | None:
    return KillSwitch(name="full", detail="", hint="") if log.snapshot.notes else None


@pytest.mark.parametrize("ahead", [0, 1])
async def test_a_condition_sees_every_earlier_event(ahead: int) -> None:
    """An event counts although it is still being written, or only waits for that."""
    store = Store()
    log = _open_log(store)
    answers: list[KillSwitch | None] = []

    async def begin() -> None:
        answers.append(await log.record_unless(lambda: _full(log), Noted(message="begins")))

    async with trio.open_nursery() as nursery:
        for _ in range(ahead):  # holds the disk, so that the next one only waits
            nursery.start_soon(log.record, RunEnded(exit_code=0))
            await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(log.record, Noted(message="the end"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(begin)
        await trio.testing.wait_all_tasks_blocked()
        store.go.set()
    assert [found and found.name for found in answers] == ["full"]
    assert _messages(log) == ["the end"]
    assert [message for transaction in store.transactions for message in transaction] == ["the end"]


async def test_conditions_that_all_hold_share_one_transaction() -> None:
    """Many stories that start together cost one flush of the disk, as with anything else."""
    store = Store()
    log = _open_log(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.record, RunEnded(exit_code=0))
        await trio.testing.wait_all_tasks_blocked()
        for name in ("a", "b"):
            nursery.start_soon(log.record_unless, lambda: _full(log), Noted(message=name))
            await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(log.record, Noted(message="the end"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(log.record_unless, lambda: _full(log), Noted(message="too late"))
        await trio.testing.wait_all_tasks_blocked()
        store.go.set()
    assert [messages for messages in store.transactions if messages] == [["a", "b", "the end"]]


async def test_a_strict_condition_also_sees_what_another_one_let_through() -> None:
    """Of two that are asked at the same moment, the second is judged after the first is published."""
    store = Store()
    log = _open_log(store)
    answers: list[KillSwitch | None] = []

    async def begin(name: str) -> None:
        answers.append(await log.record_unless(lambda: _full(log), Noted(message=name), strict=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.record, RunEnded(exit_code=0))
        await trio.testing.wait_all_tasks_blocked()
        for name in ("a", "b"):
            nursery.start_soon(begin, name)
            await trio.testing.wait_all_tasks_blocked()
        store.go.set()
    assert [found and found.name for found in answers] == [None, "full"]
    assert _messages(log) == ["a"]


async def test_what_no_condition_refuses_is_recorded_with_what_was_deferred() -> None:
    """It costs no transaction of its own, and one that fails leaves nothing behind for the next."""
    store = Store()
    store.go.set()
    log = _open_log(store)
    log.defer(RunEnded(exit_code=0))
    store.broken = True
    with pytest.raises(JournalError):
        await log.record_unless(lambda: _full(log), Noted(message="lost"))
    store.broken = False
    assert await log.record_unless(lambda: _full(log), Noted(message="begins")) is None
    assert store.transactions == [["begins"]]
    assert _messages(log) == ["begins"]


@pytest.mark.parametrize("body", [Noted(message="x"), RunEnded(exit_code=0)])
async def test_listeners_hear_of_every_event_with_the_new_state(body: Noted | RunEnded) -> None:
    """A listener sees the snapshot after the event."""
    store = Store()
    store.go.set()
    log = _open_log(store)
    heard: list[tuple[object, bool]] = []
    log.subscribe(lambda event, run: heard.append((event.body, run is log.snapshot)))
    await log.record(body)
    assert heard == [(body, True)]
