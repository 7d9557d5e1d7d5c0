"""One session: a program under its keeper, its output on disk, and the runner's own judgement of its end.

A session is atomic: it is only ended by a person's stop or by its own silence, and once the
runner has ended it, nothing that it prints changes that.
"""

from collections.abc import Callable
from pathlib import Path

import trio
from msgspec import Struct, field

from isolation.errors import KeeperError
from isolation.guard import refused
from isolation.keeper.client import Session
from isolation.model import Attempts, Exit, SessionSpec
from runner.agents.listener import OutputListener
from runner.agents.protocol import Agent
from runner.agents.result import Result, load_result
from runner.core.events.events import ConversationSeen, OutputSeen, StallSeen
from runner.core.limits.agent_output import Final, since
from runner.core.limits.stall import Signs, announced_wait, sign_of_life
from runner.core.limits.stuck import Stuck
from runner.core.model import Outcome, StoryId, Usage
from runner.core.text.screen import LineTail
from runner.records.event_log import EventLog
from runner.story.context.context import RunContext
from runner.story.context.error_groups import unwrapped
from runner.story.context.stop import Level, StopControl
from runner.story.session.activity import changed_since
from runner.story.session.log import SessionLog, read_tail

SHOW_EVERY = 0.1
LOOK_EVERY = 1.0
FAILURE_TAIL_BYTES = 4096
LOOK_FOR_LIFE = 15.0
LOOKS_A_WINDOW = 4


class SessionOrder(Struct, frozen=True, kw_only=True):
    """All that one session needs; `result_file` only where a result is expected.

    `progress` tells from the time now and that of the last output whether the session is stuck. Signs of
    life are looked for at least every `look_seconds`, and changed files in `places`, else in its folder. A
    session of the journal has its `session_id`. `agent` reads its output; `conversation` is what it is known
    to talk in, `used_before` what that had used already.
    """

    story_id: StoryId
    spec: SessionSpec
    log: Path
    log_cap: int
    grace: float
    stall_seconds: float
    result_file: Path | None = None
    progress: Callable[[float, float], Stuck | None] | None = None
    session_id: str = ""
    places: tuple[Path, ...] = ()
    look_seconds: float = LOOK_FOR_LIFE
    agent: Agent | None = None
    conversation: str = ""
    used_before: Usage = field(default_factory=Usage)


class SessionVerdict(Struct, frozen=True, kw_only=True):
    """How it ended; `output` is the end of what it printed, for the next attempt's prompt.

    `said` is an agent's own last word, `usage` and `tools` what it told on the way. `attempts` are writes
    that were refused; None where nobody looked on.
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


class _Life(Struct):
    """What is watched while a session runs."""

    ended_by: Outcome | None = None
    why: str = ""
    printed_at: float = 0.0
    peak_memory: int | None = None


class _Ear(Struct, frozen=True, kw_only=True):
    """Where what a session prints goes."""

    log: SessionLog
    tail: LineTail
    life: _Life
    hearing: OutputListener

    @property
    def line(self) -> str:
        """Give the newest thing that it said, to be shown."""
        return self.hearing.line or ("" if self.hearing.traits.says_end else self.tail.line)


async def run_session(order: SessionOrder, run: RunContext) -> SessionVerdict:
    """Run one session to its end and judge it; afterwards none of its processes is left."""
    life, recorder = _Life(), run.recorder
    with SessionLog(order.log, cap=order.log_cap, redactor=recorder.redactor) as log:
        ear = _Ear(log=log, tail=LineTail(), life=life, hearing=OutputListener(order.agent))
        try:
            with unwrapped():
                async with run.keeper.start(order.spec) as session, trio.open_nursery() as nursery:
                    nursery.start_soon(_obey, order, session, run.control, life)
                    nursery.start_soon(_watch, order, session, ear, recorder)
                    nursery.start_soon(_watch_progress, order, session, life)
                    with run.meter.watching(order.story_id, session) as reading:
                        await _drain(order, session, ear, recorder)
                        ended = await session.wait()
                    life.peak_memory = reading.peak
                    ear.hearing.end(trio.current_time())
                    nursery.cancel_scope.cancel()
        except KeeperError as error:
            log.write(f"autopilot-multi: {error.message}\n".encode())
            ended, complaint = None, error.message
        else:
            complaint = ""
    return _judge(order, ended, complaint=complaint, ear=ear, at=recorder.now())


async def _drain(order: SessionOrder, session: Session, ear: _Ear, recorder: EventLog) -> None:
    """Move what the session prints to its log, and show its newest line now and then."""
    shown, next_show, conversation = "", 0.0, order.conversation
    while chunk := await session.receive():
        now = trio.current_time()
        ear.log.write(chunk)
        ear.tail.feed(chunk)
        ear.hearing.feed(chunk, now)
        ear.life.printed_at = now
        recorder.touch()
        if now >= next_show and ear.line != shown:
            shown, next_show = ear.line, now + SHOW_EVERY
            recorder.show(OutputSeen(story_id=order.story_id, line=shown, tools=ear.hearing.tally.uses))
        named = ear.hearing.tally.conversation
        if named and named != conversation and order.session_id:
            conversation = named
            await recorder.record(
                ConversationSeen(story_id=order.story_id, session_id=order.session_id, conversation=named)
            )
        if ear.hearing.hopeless:
            session.stop(grace=order.grace)


async def _obey(order: SessionOrder, session: Session, control: StopControl, life: _Life) -> None:
    """End the session when a person asks for it."""
    await control.wait_for(order.story_id, Level.STOP)
    life.ended_by = life.ended_by or Outcome.STOPPED
    session.stop(grace=order.grace)
    await control.wait_for(order.story_id, Level.KILL)
    session.kill()


async def _watch(order: SessionOrder, session: Session, ear: _Ear, recorder: EventLog) -> None:
    """End the session when it has shown no sign of life for two whole windows."""
    looked_at = alive_at = trio.current_time()
    before, warned = _signs(session, ear), False
    while True:
        await trio.sleep(min(order.stall_seconds / LOOKS_A_WINDOW, order.look_seconds, LOOK_FOR_LIFE))
        now, signs = trio.current_time(), _signs(session, ear)
        alive = bool(sign_of_life(before, signs, seconds=now - looked_at)) or _awaited(ear, now)
        before, looked_at, silent = signs, now, now - alive_at
        if not alive and silent >= order.stall_seconds:
            # Looking at every file costs something, so it is the last thing to be asked.
            since = recorder.now() - silent
            places = order.places or (order.spec.cwd,)
            alive = await trio.to_thread.run_sync(_any_changed, places, since)
        if alive:
            alive_at, warned = now, False
            recorder.touch()
        elif silent >= 2 * order.stall_seconds:
            ear.life.ended_by = ear.life.ended_by or Outcome.STALLED
            session.stop(grace=order.grace)
            return
        elif silent >= order.stall_seconds and not warned:
            warned = True
            if order.session_id:
                seen = StallSeen(story_id=order.story_id, session_id=order.session_id, seconds=silent)
                await recorder.record(seen)


def _any_changed(places: tuple[Path, ...], since: float) -> bool:
    return any(changed_since(place, since) for place in places)


def _signs(session: Session, ear: _Ear) -> Signs:
    usage = session.usage()
    if usage is None:
        return Signs(printed=ear.log.bytes_seen)
    return Signs(printed=ear.log.bytes_seen, cpu_seconds=usage.cpu_seconds, processes=usage.processes)


def _awaited(ear: _Ear, now: float) -> bool:
    """Tell whether silence is no wonder: a tool runs, or it has said that it waits until later than now."""
    if ear.hearing.tally.busy(now):
        return True
    wait = announced_wait(ear.line)
    return wait > 0 and now < ear.life.printed_at + wait


async def _watch_progress(order: SessionOrder, session: Session, life: _Life) -> None:
    """End the session when it works without getting anywhere."""
    if order.progress is None:
        return
    while True:
        await trio.sleep(LOOK_EVERY)
        stuck = await trio.to_thread.run_sync(order.progress, trio.current_time(), life.printed_at)
        if stuck is not None:
            life.ended_by, life.why = life.ended_by or Outcome.STUCK, stuck.reason
            session.stop(grace=order.grace)
            return


def _judge(
    order: SessionOrder, ended: Exit | None, *, complaint: str, ear: _Ear, at: float
) -> SessionVerdict:
    result = load_result(order.result_file) if order.result_file else Result()
    hearing, last_line = ear.hearing, ear.line or ear.tail.line
    said = hearing.verdict(ended.returncode, last_line, at) if ended else None
    outcome, detail = _outcome(ended, complaint, ear.life, result, said)
    output = read_tail(order.log, FAILURE_TAIL_BYTES)
    confinement = order.spec.confinement
    # One that could not be started has tried nothing.
    if outcome is Outcome.FAILED and ended and confinement:
        words = refused(output, confinement, order.spec.cwd)
        detail += f"; {words}" if words else ""
    if ended and ended.survivors:
        detail += f"; could not end processes {', '.join(map(str, ended.survivors))}"
    usage = hearing.tally.usage
    return SessionVerdict(
        outcome=outcome,
        exit_code=ended.returncode if ended else None,
        detail=detail,
        output=output,
        last_line=last_line,
        result=result,
        peak_memory=ear.life.peak_memory,
        said=said,
        usage=since(usage, order.used_before) if hearing.traits.whole_thread else usage,
        # A program of plain text tells of no tools, so nobody knows how many there were.
        tools=hearing.tally.uses if hearing.traits.says_end else None,
        attempts=ended.attempts if ended else None,
    )


def _outcome(  # noqa: PLR0911  one return a way to end
    ended: Exit | None, complaint: str, life: _Life, result: Result, said: Final | None
) -> tuple[Outcome, str]:
    if life.ended_by is not None:
        why = "asked to stop" if life.ended_by is Outcome.STOPPED else "no output and no work"
        return life.ended_by, life.why or why
    if ended is None:
        return Outcome.FAILED, complaint
    if said is not None and not said.ok:
        return Outcome.FAILED, said.message
    if ended.returncode < 0:
        return Outcome.FAILED, f"ended by signal {-ended.returncode}"
    if ended.returncode > 0:
        return Outcome.FAILED, f"exit code {ended.returncode}"
    match result.status:
        case "failed":
            return Outcome.FAILED, result.notes or "it reported failure"
        case "partial":
            return Outcome.PARTIAL, result.notes
        case "needs-decision":
            return Outcome.ASKS, result.question or "it needs a decision"
        case _:
            return Outcome.OK, ""
