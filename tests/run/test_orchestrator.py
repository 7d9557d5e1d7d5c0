"""The orchestrator with real sessions; only the machine's samples are made up."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from runner.core.events import events as ev
from runner.core.limits.kill_switches import Switch
from runner.core.model import RunSnapshot, Status, StoryId, Tier
from runner.core.schedule.resources import ResourceSample
from runner.core.schedule.schedule import ScheduleDecision
from runner.plan.plan import RunRequest, make_plan
from runner.records.event_log import EventLog
from runner.run import window as window_keeper
from runner.run.coordinator import start_run
from runner.run.interaction import LiveRun
from runner.run.orchestrator import Orchestrator
from runner.run.result.ended import Ended
from runner.story import results
from runner.story.context.judged import record_judged
from runner.story.context.memory import largest_peak
from runner.story.flow.decisions import answer_event
from runner.story.pipeline import Pipeline
from tests.acceptance.program import write_story, writes
from tests.conftest import git

GB = 1 << 30
PLENTY, LITTLE = ResourceSample(memory_available=32 * GB), ResourceSample(memory_available=1 * GB)
ONLY_TIERS = {"memory-per-story-gb": "0"}
"""Settings under which what stories use is left out of the window."""


class Watcher:
    """A view that remembers, and lets a test wait for an event."""

    def __init__(self, on_event: Callable[[ev.Event, RunSnapshot], None] = lambda _event, _run: None) -> None:
        self.events: list[ev.Body] = []
        self.on_event = on_event

    def seen(self, event: ev.Event, run: RunSnapshot) -> None:
        """Remember an event."""
        self.events.append(event.body)
        self.on_event(event, run)

    def say(self, line: str) -> None:
        """Hear a line."""

    async def refresh(self, hint: Callable[[], str]) -> None:  # noqa: ARG002  the view's protocol
        """Show nothing."""
        await trio.sleep_forever()

    def pause(self) -> None:
        """Hold still."""

    def resume(self) -> None:
        """Continue."""


async def _run(repo: Path, view: Watcher, *, sample: ResourceSample | None = None, stories: int = 3) -> Ended:
    plan = make_plan(RunRequest(directory=repo, flags={"max-stories": str(stories), **ONLY_TIERS}))
    with trio.fail_after(60):
        return await start_run(plan, view, sample=lambda _path: sample or PLENTY)


async def test_a_falling_window_starts_nothing_and_ends_no_story(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance 28: running stories continue while the machine is low; the rest starts when it recovers."""
    monkeypatch.setattr(window_keeper, "TICK_SECONDS", 0.05)
    for name in ("a", "b"):
        write_story(
            repo, name, command=f"until test -f {tmp_path}/{name}; do sleep 0.02; done; echo x > {name}"
        )
    write_story(repo, "c", command=writes("c"))
    machine, looks_with_a_free_place = [PLENTY], 0
    view = Watcher()

    def react(event: ev.Event, run: RunSnapshot) -> None:
        match event.body:
            case ev.SessionStarted() if run.count(Status.RUNNING) == 2 and not looks_with_a_free_place:
                machine[0] = LITTLE
            case ev.WindowChanged(window=1) if run.tier is Tier.CRITICAL:
                assert run.count(Status.RUNNING) == 2, "no running story is ended"
                (tmp_path / "a").touch()
            case ev.StoryStarted(story_id="c"):
                assert looks_with_a_free_place >= 5, "nothing new starts while low"
                assert run.stories[StoryId("b")].status is Status.RUNNING
                (tmp_path / "b").touch()
            case _:
                pass

    def sample(_path: Path) -> ResourceSample:
        nonlocal looks_with_a_free_place
        if any(isinstance(body, ev.StoryFinished) for body in view.events):
            looks_with_a_free_place += 1
        if looks_with_a_free_place == 5:
            machine[0] = PLENTY
        return machine[0]

    view.on_event = react
    plan = make_plan(RunRequest(directory=repo, flags={"max-stories": "2", **ONLY_TIERS}))
    with trio.fail_after(60):
        ended = await start_run(plan, view, sample=sample)
    assert ended.run.count(Status.DONE) == 3
    changes = [(body.window, body.tier) for body in view.events if isinstance(body, ev.WindowChanged)]
    assert changes == [(2, "green"), (1, "critical"), (2, "green")]


async def test_a_story_that_fails_while_it_is_queued_stays_failed(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as by its base, in the moment in which the story that it waits for is done: the run ends."""
    write_story(repo, "a", command=writes("a"))
    write_story(repo, "x", command=writes("x"), depends_on=["a"])
    read_again, x = Orchestrator._read_again, StoryId("x")

    async def fail_first(orchestrator: Orchestrator, decision: ScheduleDecision) -> bool:
        again = await read_again(orchestrator, decision)
        if x in decision.queue and not again:
            await orchestrator._context.log.record(results.failed(x, "its base is not ready"))
        return again

    monkeypatch.setattr(Orchestrator, "_read_again", fail_first)
    ended = await _run(repo, Watcher())
    assert {each.id: each.status for each in ended.run.stories.values()} == {
        "a": Status.DONE,
        "x": Status.FAILED,
    }


CIRCLES = """echo '{"agent_summary": {"spiral": 1}}' > $AUTOPILOT_RESULT_FILE"""


def _write_circles(repo: Path) -> None:
    for name in ("a", "b"):
        write_story(repo, name, command=CIRCLES, priority=9)
    for name in ("c", "d"):
        write_story(repo, name, command=writes(name))


def _require_ended_by_spirals(ended: Ended, view: Watcher) -> list[bool]:
    """Require that no good story was started, and return which spirals were forgiven."""
    assert ended.run.kill_switch is not None
    assert ended.run.kill_switch.name == Switch.SPIRAL
    assert not {body.story_id for body in view.events if isinstance(body, ev.StoryStarted)} & {"c", "d"}
    return [body.retries for body in view.events if isinstance(body, ev.SpiralSeen)]


async def test_of_two_spirals_in_the_same_moment_the_second_ends_the_run(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is judged as the second, although the first is not in the journal when it comes."""
    _write_circles(repo)
    arrived, both = 0, trio.Event()

    async def meet(log: EventLog, judge: Callable[[], tuple[ev.Body, ...]], *before: ev.Body) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 2:
            both.set()
        await both.wait()
        await record_judged(log, judge, *before)

    monkeypatch.setattr("runner.story.pipeline.record_judged", meet)
    view = Watcher()
    ended = await _run(repo, view, stories=2)
    assert _require_ended_by_spirals(ended, view) == [True, False]


async def test_spirals_on_several_machines_end_the_run(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker knows that its story was the last; the run counts them."""
    _write_circles(repo)
    view, b = Watcher(), StoryId("b")

    async def elsewhere(log: EventLog, judge: Callable[[], tuple[ev.Body, ...]], *before: ev.Body) -> None:
        await record_judged(log, judge, *before)
        if not log.snapshot.stories[b].spirals:
            log.defer(ev.SpiralSeen(story_id=b, reason="as another worker saw it", retries=True))

    monkeypatch.setattr("runner.story.pipeline.record_judged", elsewhere)
    ended = await _run(repo, view, stories=1)
    assert _require_ended_by_spirals(ended, view) == [True, True]


async def test_a_low_machine_runs_one_story_alone(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceptance 45: critical admits one when nothing runs; short stories do not wait for the next look."""
    monkeypatch.setattr(window_keeper, "TICK_SECONDS", 3600)
    for name in ("a", "b", "c"):
        write_story(repo, name, command=writes(name))
    most = 0

    def count(_event: ev.Event, run: RunSnapshot) -> None:
        nonlocal most
        most = max(most, run.count(Status.RUNNING))

    ended = await _run(repo, Watcher(count), sample=LITTLE)
    assert ended.run.count(Status.DONE) == 3
    assert most == 1
    assert (ended.run.window, ended.run.tier, ended.run.tier_reason) == (1, Tier.CRITICAL, "1.0 GB free")


async def test_a_fixed_window_is_kept_and_said_once(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--window fixed` runs as many as were asked for, whatever the machine says."""
    monkeypatch.setattr(window_keeper, "TICK_SECONDS", 0.02)
    for name in ("a", "b", "c"):
        write_story(repo, name, command=f"sleep 0.3; echo x > {name}")
    most = 0

    def count(_event: ev.Event, run: RunSnapshot) -> None:
        nonlocal most
        most = max(most, run.count(Status.RUNNING))

    plan = make_plan(RunRequest(directory=repo, flags={"window": "fixed"}))
    view = Watcher(count)
    with trio.fail_after(60):
        ended = await start_run(plan, view, sample=lambda _path: LITTLE)
    assert most == 3
    assert [body.window for body in view.events if isinstance(body, ev.WindowChanged)] == [3]
    (fixed,) = [note.message for note in ended.run.notes if "fixed" in note.message]
    assert fixed == "fixed number of slots: 3, regardless of the machine's load"


async def test_what_a_story_uses_limits_how_many_run(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of a real process tree is measured, narrows the window, and is in the record."""
    monkeypatch.setattr(window_keeper, "TICK_SECONDS", 0.05)
    tiers = "".join(f"tiers.{tier}.memory-gb = 0\n" for tier in ("green", "warn", "degraded"))
    (repo / "autopilot-multi.toml").write_text(f"memory-per-story-gb = 0.05\n{tiers}")
    wait = f"until test -f {tmp_path}/go; do sleep 0.02; done"
    hungry = f"b = bytearray(b'x') * (300 << 20); print(file=open('{tmp_path}/full', 'w')); sh('{wait}')"
    lines = f"from os import system as sh; {hungry}; print('x', file=open('hungry', 'w'))"
    write_story(repo, "hungry", command=[sys.executable, "-c", lines])
    write_story(repo, "small", command=f"{wait}; echo x > small")
    looks = 0

    def sample(_path: Path) -> ResourceSample:
        nonlocal looks
        looks += (tmp_path / "full").exists()
        if looks == 2:  # so the sessions were looked at once with all their memory
            (tmp_path / "go").touch()
        return ResourceSample(memory_available=GB // 5)

    plan = make_plan(RunRequest(directory=repo, flags={"max-stories": "2"}))
    view = Watcher()
    with trio.fail_after(60):
        ended = await start_run(plan, view, sample=sample)
    assert ended.run.count(Status.DONE) == 2
    first, second, *_ = [body for body in view.events if isinstance(body, ev.WindowChanged)]
    assert (first.window, first.reason) == (2, "0.1 GB free")
    assert second.window == 1
    assert re.fullmatch(r"0\.[1-3] GB per story, 0\.1 GB free", second.reason)
    peaks = {story.id: story.sessions[0].peak_memory or 0 for story in ended.run.stories.values()}
    assert 300 << 20 <= peaks[StoryId("hungry")] < 400 << 20
    assert 0 < peaks[StoryId("small")] < 50 << 20
    assert largest_peak(ended.run) == peaks[StoryId("hungry")], "a resume knows what was learnt"


async def test_the_cap_of_the_tier_reaches_the_session_and_the_record(repo: Path) -> None:
    """Acceptance 46: the agents that a session may use in parallel, in its environment and in its record."""
    write_story(repo, "a", command="echo $AUTOPILOT_AGENTS_PER_WAVE > a")
    ended = await _run(repo, Watcher(), sample=ResourceSample(memory_available=3 * GB))
    assert git(repo, "show", "autopilot/a:a") == "2\n"
    assert [session.agents_per_wave for session in ended.run.stories[StoryId("a")].sessions] == [2]
    (record,) = (repo / ".orchestrator" / "metrics" / "sessions.jsonl").read_text().splitlines()
    assert json.loads(record)["agents_per_wave"] == 2


async def test_a_crash_in_one_story_is_that_storys_failure(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in the pipeline of one story leaves its siblings alone, and its traceback in a log."""
    original = Pipeline._carry

    async def carry(self: Pipeline) -> None:
        if self._story.id == "a":
            raise ZeroDivisionError("a bug")
        await original(self)

    monkeypatch.setattr(Pipeline, "_carry", carry)
    for name in ("a", "b"):
        write_story(repo, name, command=writes(name))
    ended = await _run(repo, Watcher())
    first, second = ended.run.stories.values()
    assert first.status is Status.FAILED
    assert "ZeroDivisionError" in first.reason
    log = trio.Path(first.next.removeprefix("see "))
    assert "Traceback" in await log.read_text()
    assert second.status is Status.DONE


async def test_a_silent_story_is_ended_after_two_windows(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session without output and work is ended; one that prints is not."""
    from runner.core import settings
    from runner.core.declaration import Bounds

    monkeypatch.setitem(settings.BOUNDS, "stall-seconds", Bounds(low=0.1, high=10))
    write_story(repo, "silent", command="sleep 60")
    write_story(repo, "busy", command="for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.2; done; echo x > x")
    plan = make_plan(RunRequest(directory=repo, flags={"stall-seconds": "0.5", "grace-seconds": "1"}))
    with trio.fail_after(60):
        ended = await start_run(plan, Watcher())
    silent, busy = (ended.run.stories[StoryId(name)] for name in ("silent", "busy"))
    assert silent.status is Status.STOPPED
    assert silent.kill_switch is not None
    assert silent.kill_switch.name == "stall-timeout"
    assert busy.status is Status.DONE


async def test_a_stalled_run_is_ended_by_the_inactivity_timeout(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When nothing happens in any story for too long, the run ends and says why."""
    from runner.core import settings
    from runner.core.declaration import Bounds

    monkeypatch.setitem(settings.BOUNDS, "inactivity-timeout", Bounds(low=0.1, high=10))
    write_story(repo, "silent", command="sleep 60")
    plan = make_plan(RunRequest(directory=repo, flags={"inactivity-timeout": "0.5", "grace-seconds": "1"}))
    with trio.fail_after(60):
        ended = await start_run(plan, Watcher())
    assert ended.run.kill_switch is not None
    assert ended.run.kill_switch.name == "inactivity-timeout"
    assert ended.exit_code == 2


@pytest.mark.parametrize(
    ("flag", "usage", "name"),
    [
        ("token-budget", '{"input_tokens": 900, "output_tokens": 200}', "token-budget-exceeded"),
        ("cost-budget", '{"cost_usd": 1500}', "cost-budget-exceeded"),
    ],
)
async def test_a_crossed_budget_starts_no_further_session(
    repo: Path, flag: str, usage: str, name: str
) -> None:
    """Acceptance 40: the session that crosses it ends; the next story's does not start."""
    result = f'{{"status": "done", "usage": {usage}}}'
    for story in ("a", "b"):
        write_story(repo, story, command=f"echo x > {story}; echo '{result}' > $AUTOPILOT_RESULT_FILE")
    plan = make_plan(RunRequest(directory=repo, flags={"max-stories": "1", flag: "1000"}))
    with trio.fail_after(60):
        ended = await start_run(plan, Watcher())
    first, second = ended.run.stories.values()
    assert first.status is Status.DONE
    assert second.status is Status.STOPPED
    assert second.kill_switch is not None
    assert second.kill_switch.name == name
    assert not second.sessions


async def test_a_story_that_is_never_done_ends_at_its_session_limit(repo: Path) -> None:
    """`max-sessions-reached`: partial results continue in new sessions until the limit."""
    write_story(repo, "a", command='echo x >> x; echo \'{"status": "partial"}\' > $AUTOPILOT_RESULT_FILE')
    plan = make_plan(RunRequest(directory=repo, flags={"max-sessions": "3"}))
    with trio.fail_after(60):
        ended = await start_run(plan, Watcher())
    (story,) = ended.run.stories.values()
    assert story.kill_switch is not None
    assert story.kill_switch.name == "max-sessions-reached"
    assert len(story.sessions) == 3
    assert story.workspace.commits == 3


class Person:
    """A user who answers every question with one letter, as soon as it is asked."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self.answered = 0

    def waits(self, run: RunSnapshot) -> bool:
        """Wait for every question."""
        return bool(run.open_decisions)

    async def serve(self, run: LiveRun) -> None:
        """Answer whatever is open."""
        while True:
            for story in run.snapshot().open_decisions:
                if story.status is Status.PARKED:
                    await run.answer(answer_event(run.snapshot(), story.id, self._letter))
                    self.answered += 1
            await run.changed()


async def test_an_answer_at_the_desk_continues_the_story_in_the_same_run(repo: Path) -> None:
    """Acceptance 63: asked, answered, passed to the next session; what waits for it starts then."""
    decision = {"question": "Which?", "options": ["Red", "Blue"], "recommendation": "A", "reason": "warm"}
    result = json.dumps({"status": "needs-decision", "decision": decision})
    ask = f"echo '{result}' > $AUTOPILOT_RESULT_FILE"
    write_story(repo, "a", command=f"grep -q 'Blue' $AUTOPILOT_PROMPT_FILE && echo blue > a || {ask}")
    write_story(repo, "b", command=writes("b"), depends_on=["a"])
    plan = make_plan(RunRequest(directory=repo))
    person, view = Person("B"), Watcher()
    with trio.fail_after(60):
        ended = await start_run(plan, view, dialog=person)
    assert ended.exit_code == 0
    assert ended.run.count(Status.DONE) == 2
    assert person.answered == 1
    assert sum(isinstance(body, ev.StoryRequeued) for body in view.events) == 1
    assert [memory.text for memory in ended.run.stories[StoryId("a")].memories] == ["Which?: B) Blue"]
