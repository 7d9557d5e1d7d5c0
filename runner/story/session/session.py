"""One session: a program under its keeper, its output on disk, and how the runner judges its end.

A session that works is not cut off. What ends one early: the user, a time limit of the user, silence, work
without anything new, and a full context, the last between two pieces of work. Once the runner has ended it,
nothing that it prints changes that.
"""

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct, field
from msgspec.structs import replace

from isolation.errors import KeeperError, RepositoryError
from isolation.files import threads
from isolation.git.commits import named
from isolation.git.contained.object_store import removed_from, take_over
from isolation.git.contained.private_refs import is_deleted, others_written
from isolation.git.repository import Repository
from isolation.guard.guard import refused
from isolation.guard.seal import reached_words
from isolation.guard.submodules import settle_submodules
from isolation.keeper.client import Session
from isolation.model import Attempts, Confinement, Exit, SessionSpec
from runner.agents.listener import OutputListener
from runner.agents.protocol import Agent
from runner.agents.result import Result, load_result
from runner.core.events.agents import ConversationSeen
from runner.core.events.events import OutputSeen, StallSeen
from runner.core.limits.agent_output import Final
from runner.core.limits.context_zone import Zone
from runner.core.limits.stall import Signs, announced_wait, sign_of_life
from runner.core.limits.stuck import Stuck
from runner.core.model import Outcome, StoryId, Usage
from runner.core.text.screen import LineTail
from runner.records.event_log import EventLog
from runner.story.context.context import RunContext
from runner.story.context.error_groups import unwrapped
from runner.story.context.stop import Level, StopControl
from runner.story.session.context_watch import ContextOrder, ContextWatch
from runner.story.session.environment import SessionSeal, denied_words
from runner.story.session.log import SessionLog, read_tail
from runner.story.session.progress import changed_since

SHOW_EVERY = 0.1
LOOK_EVERY = 1.0
FAILURE_TAIL_BYTES = 4096
LOOK_FOR_LIFE = 15.0
LOOKS_A_WINDOW = 4
AFTER_RESULT = 10.0
"""How long a program may stay, without a word and idle, after its final result."""
LONGEST_AFTER_RESULT = 300.0
"""How long it may stay while something that it left running works; that may lead to another result."""
BACKGROUND_SHARE = 0.1
"""A share of a core below which what a program left running counts as idle, such as a server."""


class TimeLimit(Struct, frozen=True, kw_only=True):
    """How long a session may run; when it is ended for that, `outcome` and `words` say so."""

    seconds: float
    outcome: Outcome
    words: str


class SessionOrder(Struct, frozen=True, kw_only=True):
    """All that one session needs; `result_file` only where a result is expected.

    `progress` returns from the time now, that of the last output and the places of its work whether the
    session is stuck. Signs of life are checked at least every `look_seconds`, and changed files in `places`,
    else in its folder. `seal` is what is kept from it. A session of the journal has its `session_id`. `agent`
    parses its output; `conversation` is the one that it is known to use, `used_before` what that had used
    already. `context` is for a session whose context is watched. `beside` runs while the session does. With
    `sealed` the spec is under the seal already.
    """

    story_id: StoryId
    spec: SessionSpec
    log: Path
    log_cap: int
    grace: float
    stall_seconds: float
    result_file: Path | None = None
    progress: Callable[[float, float, tuple[Path, ...]], Stuck | None] | None = None
    seal: SessionSeal | None = None
    sealed: bool = False
    session_id: str = ""
    places: tuple[Path, ...] = ()
    look_seconds: float = LOOK_FOR_LIFE
    agent: Agent | None = None
    model: str = ""
    conversation: str = ""
    used_before: Usage = field(default_factory=Usage)
    context: ContextOrder | None = None
    limit: TimeLimit | None = None
    beside: Callable[[], Awaitable[None]] | None = None


class SessionVerdict(Struct, frozen=True, kw_only=True):
    """How a session ended; `output` is the end of what it printed, for the prompt of the next attempt.

    `said` is the agent's own final result, `usage` and `tools` what it reported on the way. `attempts` are
    writes that were refused; None where they were not witnessed. `overdue`: its time limit ended it.
    `zone` is how full its context was; None if that was not watched. `question` is what the agent asked at
    its end, where it reported nothing else.
    """

    outcome: Outcome
    exit_code: int | None
    detail: str
    output: str
    last_line: str
    result: Result = field(default_factory=Result)
    peak_memory: int | None = None
    said: Final | None = None
    usage: Usage = field(default_factory=Usage)
    tools: int | None = None
    attempts: Attempts | None = None
    overdue: bool = False
    zone: Zone | None = None
    question: str = ""


class _State(Struct):
    """What is watched while a session runs."""

    ended_by: Outcome | None = None
    why: str = ""
    printed_at: float = 0.0
    peak_memory: int | None = None
    overdue: bool = False
    said: Final | None = None
    """The final result of a program that was ended since it did not exit by itself."""


class _Reader(Struct, frozen=True, kw_only=True):
    """What reads the output of a session, and notes its end."""

    log: SessionLog
    tail: LineTail
    state: _State
    listener: OutputListener
    context: ContextWatch | None = None

    @property
    def zone(self) -> Zone | None:
        """How full the context of the session is; None if that is not watched."""
        return self.context.zone if self.context else None

    @property
    def zone_shown(self) -> str:
        """The zone if it is worth showing."""
        return "" if self.zone is None or self.zone is Zone.SAFE else self.zone

    @property
    def line(self) -> str:
        """The newest line that is worth showing."""
        return self.listener.line or ("" if self.listener.traits.says_end else self.tail.line)


async def run_session(order: SessionOrder, run: RunContext) -> SessionVerdict:
    """Run one session to its end and judge it; afterwards none of its processes is left."""
    if order.seal and order.spec.confinement and not order.sealed:
        order = replace(order, spec=await threads.run(order.seal.around, order.spec))
    state, events = _State(), run.log
    with SessionLog(order.log, cap=order.log_cap, redactor=events.redactor) as log:
        reader = _Reader(
            log=log,
            tail=LineTail(),
            state=state,
            listener=OutputListener(order.agent),
            context=ContextWatch(order.context) if order.context else None,
        )
        try:
            with unwrapped():
                async with run.keeper.start(order.spec) as session, trio.open_nursery() as nursery:
                    nursery.start_soon(_obey, order, session, run.control, state)
                    nursery.start_soon(_watch, order, session, reader, events)
                    if reader.listener.traits.says_end:
                        nursery.start_soon(_watch_end, order, session, reader)
                    if order.progress is not None:
                        nursery.start_soon(_watch_progress, order.progress, order, session, state)
                    if order.beside is not None:
                        nursery.start_soon(order.beside)
                    if order.limit is not None:
                        nursery.start_soon(_watch_time, order.limit, order.grace, session, state)
                    with run.meter.watching(order.story_id, session) as reading:
                        await _drain(order, session, reader, events)
                        ended = await session.wait()
                    state.peak_memory = reading.peak
                    reader.listener.end(trio.current_time())
                    nursery.cancel_scope.cancel()
        except KeeperError as error:
            log.write(f"autopilot-multi: {error.message}\n".encode())
            ended, complaint = None, error.message
        else:
            complaint = ""
        if state.overdue:  # the next attempt reads the output, and must know why it stops here
            log.write(f"\nautopilot-multi: ended: {state.why}\n".encode())
    strayed = await _take_over(order, run.repository)
    return _judge(order, ended, complaint=complaint, reader=reader, at=events.now(), strayed=strayed)


async def _drain(order: SessionOrder, session: Session, reader: _Reader, events: EventLog) -> None:
    """Write what the session prints to its log, and show its newest line now and then."""
    shown, next_show, conversation = "", 0.0, order.conversation
    while chunk := await session.receive():
        now = trio.current_time()
        reader.log.write(chunk)
        reader.tail.feed(chunk)
        reader.listener.feed(chunk, now)
        reader.state.printed_at = now
        events.touch()
        if now >= next_show and reader.line != shown:
            shown, next_show = reader.line, now + SHOW_EVERY
            used, zone = reader.listener.tally.uses, reader.zone_shown
            events.show(OutputSeen(story_id=order.story_id, line=shown, tools=used, zone=zone))
        found = reader.listener.tally.conversation
        if found and found != conversation and order.session_id:
            conversation = found
            await events.record(
                ConversationSeen(story_id=order.story_id, session_id=order.session_id, conversation=found)
            )
        if reader.listener.hopeless:
            session.stop(grace=order.grace)
        elif reader.context is not None and reader.state.ended_by is None:
            await _watch_context(reader.context, order, session, reader)


async def _watch_context(
    context: ContextWatch, order: SessionOrder, session: Session, reader: _Reader
) -> None:
    """End the session between two pieces of work when its context is full; a fresh one continues."""
    why, state = await context.see(reader.listener.tally, trio.current_time()), reader.state
    if why and state.ended_by is None:
        state.ended_by, state.why = Outcome.PARTIAL, why
        session.stop(grace=order.grace)


async def _obey(order: SessionOrder, session: Session, control: StopControl, state: _State) -> None:
    """End the session when the user asks for it."""
    await control.wait_for(order.story_id, Level.STOP)
    state.ended_by = state.ended_by or Outcome.STOPPED
    session.stop(grace=order.grace)
    await control.wait_for(order.story_id, Level.KILL)
    session.kill()


async def _watch(order: SessionOrder, session: Session, reader: _Reader, events: EventLog) -> None:
    """End the session when it has shown no sign of life for two whole windows."""
    looked_at = alive_at = trio.current_time()
    before: Signs | None = None
    warned = False
    while True:
        await trio.sleep(min(order.stall_seconds / LOOKS_A_WINDOW, order.look_seconds, LOOK_FOR_LIFE))
        now, signs = trio.current_time(), _signs(session, reader)
        # The first look has nothing to compare with: most sessions end before it, and reading what they
        # use would cost each of them a walk through its processes.
        moved = before is not None and bool(sign_of_life(before, signs, seconds=now - looked_at))
        alive = moved or _awaited(reader, now)
        before, looked_at, silent = signs, now, now - alive_at
        if not alive and silent >= order.stall_seconds:
            # Checking every file is expensive, so it comes last.
            since = events.now() - silent
            alive = await threads.run(_any_changed, _places(order), since)
        if alive:
            alive_at, warned = now, False
            events.touch()
        elif silent >= 2 * order.stall_seconds:
            reader.state.ended_by = reader.state.ended_by or Outcome.STALLED
            session.stop(grace=order.grace)
            return
        elif silent >= order.stall_seconds and not warned:
            warned = True
            if order.session_id:
                seen = StallSeen(story_id=order.story_id, session_id=order.session_id, seconds=silent)
                await events.record(seen)


async def _watch_end(order: SessionOrder, session: Session, reader: _Reader) -> None:
    """End a program that has reported its final result and does not exit, since it left something running."""
    state, ended_at, before = reader.state, 0.0, None
    while True:
        await trio.sleep(AFTER_RESULT / 2)
        now, tally = trio.current_time(), reader.listener.tally
        if not tally.at_end or tally.final is None:
            ended_at, before = 0.0, None
            continue
        ended_at, usage = ended_at or state.printed_at, session.usage()
        spent = usage.cpu_seconds if usage else 0.0
        works = before is None or spent - before >= BACKGROUND_SHARE * AFTER_RESULT / 2
        before = spent
        stays = now - ended_at
        if stays >= LONGEST_AFTER_RESULT or (now - state.printed_at >= AFTER_RESULT and not works):
            state.said = reader.listener.verdict(0, "", now) if state.ended_by is None else None
            state.why = (
                f"ended {stays:.0f} s after its final result, since something that it started still ran"
            )
            session.stop(grace=min(order.grace, AFTER_RESULT))
            return


def _any_changed(places: tuple[Path, ...], since: float) -> bool:
    return any(changed_since(place, since) for place in places)


def _signs(session: Session, reader: _Reader) -> Signs:
    usage = session.usage()
    if usage is None:
        return Signs(printed=reader.log.bytes_seen)
    return Signs(printed=reader.log.bytes_seen, cpu_seconds=usage.cpu_seconds, processes=usage.processes)


def _awaited(reader: _Reader, now: float) -> bool:
    """Whether silence is expected: a tool runs, or the session has announced a wait that is not over."""
    if reader.listener.tally.busy(now):
        return True
    wait = announced_wait(reader.line)
    return wait > 0 and now < reader.state.printed_at + wait


async def _watch_progress(
    progress: Callable[[float, float, tuple[Path, ...]], Stuck | None],
    order: SessionOrder,
    session: Session,
    state: _State,
) -> None:
    """End the session when it works without progress."""
    while True:
        await trio.sleep(LOOK_EVERY)
        look = partial(progress, trio.current_time(), state.printed_at, _places(order))
        stuck = await threads.run(look)
        if stuck is not None:
            state.ended_by, state.why = state.ended_by or Outcome.STUCK, stuck.reason
            session.stop(grace=order.grace)
            return


def _places(order: SessionOrder) -> tuple[Path, ...]:
    return order.places or (order.spec.cwd,)


async def _watch_time(limit: TimeLimit, grace: float, session: Session, state: _State) -> None:
    """End the session when its time is over."""
    await trio.sleep(limit.seconds)
    if state.ended_by is None:
        state.ended_by, state.why, state.overdue = limit.outcome, limit.words, True
        session.stop(grace=grace)


async def _take_over(order: SessionOrder, repository: Repository) -> str:
    """Move the story's branch to where the session moved it; describe what it did to others."""
    confinement = order.spec.confinement
    if not confinement or not (confinement.tree or confinement.store):
        return ""  # as in a shared tree
    return await threads.run(_take_over_from, confinement, repository)


def _take_over_from(confinement: Confinement, repository: Repository) -> str:
    if confinement.tree:
        settle_submodules(repository, confinement.tree)
    store = confinement.store
    if not store:
        return ""
    common = repository.common_dir
    words = ["it deleted the branch of its story, which stays as it was"] if is_deleted(common, store) else []
    with suppress(RepositoryError):  # the next git command there tries again, and says why not
        repository.take_over(store)
    if others := others_written(common, store):
        strayed = "it wrote to branches that are not its story's, which has no effect outside of its worktree"
        words.append(f"{strayed}: {named(others)}")
    with suppress(OSError):  # the next git command there tries again
        take_over(common, store)
    if flawed := removed_from(common, store):
        words.append(
            f"it left what is no object of git among its objects, which was removed: {named(flawed)}"
        )
    return "; ".join(words)


def _judge(
    order: SessionOrder, ended: Exit | None, *, complaint: str, reader: _Reader, at: float, strayed: str
) -> SessionVerdict:
    result = load_result(order.result_file) if order.result_file else Result()
    listener, last_line = reader.listener, reader.line or reader.tail.line
    said = reader.state.said or (listener.verdict(ended.returncode, last_line, at) if ended else None)
    outcome, detail = _outcome(ended, complaint, reader.state, result, said)
    printed = read_tail(order.log, FAILURE_TAIL_BYTES)
    # Raw events would only fill the next prompt.
    output = (listener.recap if listener.traits.says_end else "") or printed
    confinement = order.spec.confinement
    # One that could not be started has not tried to write anything.
    if outcome is Outcome.FAILED and ended and confinement:
        words = refused(printed, confinement, order.spec.cwd)
        detail += f"; {words}" if words else ""
    kept_off = _kept_off(order, ended, printed, failed=outcome is Outcome.FAILED)
    kept_off = "; ".join(filter(None, (strayed, kept_off)))
    if kept_off:
        detail += f"; {kept_off}" if outcome is Outcome.FAILED else ""
        output = f"{output.rstrip()}\nautopilot-multi: {kept_off}\n"
        with SessionLog(order.log, cap=order.log_cap) as log:
            log.write(f"autopilot-multi: {kept_off}\n".encode())
    if ended and ended.survivors:
        detail += f"; could not end processes {', '.join(map(str, ended.survivors))}"
    return SessionVerdict(
        outcome=outcome,
        exit_code=ended.returncode if ended else None,
        detail=detail,
        output=output,
        last_line=last_line,
        result=result,
        peak_memory=reader.state.peak_memory,
        said=said,
        usage=listener.usage(order.spec.prompt, order.used_before),
        # A program that prints plain text does not report its tools, so their number is unknown.
        tools=listener.tally.uses if listener.traits.says_end else None,
        attempts=ended.attempts if ended else None,
        overdue=reader.state.overdue,
        zone=reader.zone,
        question=listener.question if outcome is Outcome.OK and not result.status else "",
    )


def _kept_off(order: SessionOrder, ended: Exit | None, output: str, *, failed: bool) -> str:
    """Describe what the seal kept from a session: hosts in any case, and what it seems to have missed."""
    confinement = order.spec.confinement
    if ended is None or confinement is None or order.seal is None:
        return ""
    missed = order.seal.missed(output, confinement) if failed else ""
    reached = reached_words(ended, confinement, os.environ)
    return "; ".join(filter(None, (denied_words(ended.denied), reached, missed)))


def _outcome(  # noqa: PLR0911  one return a way to end
    ended: Exit | None, complaint: str, state: _State, result: Result, said: Final | None
) -> tuple[Outcome, str]:
    if state.ended_by is not None:
        why = "asked to stop" if state.ended_by is Outcome.STOPPED else "no output and no work"
        return state.ended_by, state.why or why
    if ended is None:
        return Outcome.FAILED, complaint
    if said is not None and not said.ok:
        return Outcome.FAILED, said.message
    if state.said is not None:
        return _reported(result, state.why)  # the exit code is that of our signal
    if ended.returncode < 0:
        return Outcome.FAILED, f"ended by signal {-ended.returncode}"
    if ended.returncode > 0:
        return Outcome.FAILED, f"exit code {ended.returncode}"
    return _reported(result)


def _reported(result: Result, detail: str = "") -> tuple[Outcome, str]:
    match result.status:
        case "failed":
            return Outcome.FAILED, result.notes or "it reported failure"
        case "partial":
            return Outcome.PARTIAL, result.notes
        case "needs-decision":
            return Outcome.ASKS, result.question or "it needs a decision"
        case _:
            return Outcome.OK, detail
