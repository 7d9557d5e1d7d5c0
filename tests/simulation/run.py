"""One simulated run from a seed: a random backlog, a random machine, a user who may lose patience."""

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import trio
import trio.testing

from runner.agents.protocol import AgentJob, Launch, Traits
from runner.agents.workers import Worker, Workers
from runner.core.events import events as ev
from runner.core.events.fold import exit_code
from runner.core.events.story_json import to_json
from runner.core.limits.agent_output import AgentUpdate
from runner.core.model import RunId, RunSnapshot, Story, StoryId
from runner.core.schedule.resources import ResourceSample
from runner.core.settings import Settings
from runner.machine.registry import Registry
from runner.plan.settings.json_form import to_json as settings_to_json
from runner.records.event_log import EventLog
from runner.run.orchestrator import Orchestrator, World
from runner.story.context.budget import BudgetLedger
from runner.story.context.context import RunContext
from runner.story.context.memory import MemoryMeter
from runner.story.context.stop import Level, StopControl
from tests.simulation.machine import (
    GB,
    WHOLE_MEMORY,
    Script,
    SimulatedKeeper,
    SimulatedRepository,
    dice_of,
    made_up,
    script,
)

STORIES = 20
SECONDS_AN_HOUR = 3600.0


class PaperAgent:
    """An agent whose program is never really started."""

    name = "paper"
    traits = Traits()

    def launch(self, job: AgentJob) -> Launch:  # noqa: ARG002  there is nothing to choose
        """Return a command; the simulated keeper ignores it."""
        return Launch(argv=("paper",))

    def parse(self, line: bytes) -> AgentUpdate | None:  # noqa: ARG002  it says nothing
        """Find nothing."""
        return None


@dataclass(slots=True)
class Paper:
    """A journal in memory."""

    events: list[ev.Event] = field(default_factory=list)

    def append(self, events: Sequence[ev.Event]) -> None:
        """Keep the events."""
        self.events += events

    def judged(self, story_id: str) -> bool:
        """Return whether a story's result was kept."""
        verdicts = (event.body for event in self.events if isinstance(event.body, ev.StoryFinished))
        return any(verdict.story_id == story_id for verdict in verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a simulated run left."""

    seed: int
    settings: Settings
    stories: tuple[Story, ...]
    events: list[ev.Event]
    run: RunSnapshot
    lasted: float


def backlog(rng: random.Random) -> tuple[Story, ...]:
    """Draw stories that depend on earlier ones."""
    stories: list[Story] = []
    for number in range(STORIES):
        needs = rng.sample([one.id for one in stories], k=min(len(stories), rng.choice([0, 0, 0, 1, 1, 2])))
        verify = rng.choice([(), ("true",), ("true", "true")])
        stories.append(
            Story(
                id=StoryId(f"s{number:02}"),
                title="",
                prompt="",
                depends_on=tuple(needs),
                verify=tuple(verify),
            )
        )
    return tuple(stories)


def draw_settings(rng: random.Random) -> Settings:
    """Draw the limits of a run."""
    return Settings(
        max_stories=rng.choice([1, 2, 3, 5, 8, 20]),
        max_sessions=rng.choice([2, 5]),
        max_hours=rng.choice([0.5, 2.0, 8.0, 24.0]),
        token_budget=rng.choice([None, None, 500_000]),
        cost_budget=rng.choice([None, None, 5.0]),
        story_cost_budget=rng.choice([None, None, 2.0]),
    )


def play(seed: int, folder: Path) -> Played:
    """Play a random run to its end under a fake clock."""
    rng = random.Random(seed)  # noqa: S311  dice, not secrets
    return play_these(seed, folder, rng, settings=draw_settings(rng), stories=backlog(rng))


def play_these(
    seed: int,
    folder: Path,
    rng: random.Random,
    *,
    settings: Settings,
    stories: tuple[Story, ...],
    draw: Callable[[random.Random], Script] = script,
) -> Played:
    """Play a run of these stories, in a new folder: what another run left would be in its way."""
    paper, clock, dice = Paper(), trio.testing.MockClock(autojump_threshold=0), dice_of(seed)
    folder.mkdir(parents=True, exist_ok=True)
    with made_up(seed), tempfile.TemporaryDirectory(dir=folder) as own:
        keeper = SimulatedKeeper(dice, draw)
        git_dir, top = Path(own, "git"), Path(own)
        repository = SimulatedRepository(common_dir=git_dir, top=top, dice=dice, judged=paper.judged)
        run, lasted = trio.run(_play, rng, settings, stories, paper, repository, keeper, clock=clock)
    return Played(seed=seed, settings=settings, stories=stories, events=paper.events, run=run, lasted=lasted)


async def _play(  # noqa: PLR0917  trio.run hands positions on
    rng: random.Random,
    settings: Settings,
    stories: tuple[Story, ...],
    paper: Paper,
    repository: SimulatedRepository,
    keeper: SimulatedKeeper,
) -> tuple[RunSnapshot, float]:
    began = trio.current_time()
    blank = RunSnapshot(run_id=RunId("simulated"), started_at=0.0)
    log = EventLog(store=paper, snapshot=blank, wall_clock=lambda: trio.current_time() - began)
    control = StopControl()
    tools = RunContext(
        repository=cast(Any, repository),
        keeper=cast(Any, keeper),
        log=log,
        control=control,
        settings=settings,
        worktree_root=repository.top,
        populate=trio.CapacityLimiter(2),
        deadline=began + settings.max_hours * SECONDS_AN_HOUR,
        meter=MemoryMeter(),
        budget=BudgetLedger(settings, lambda: log.snapshot),
        registry=Registry(repository.common_dir),
        write_crash=_crash,
    )
    started = ev.RunStarted(
        base="0" * 40,
        isolation="worktree",
        enforcement="none",
        max_stories=settings.max_stories,
        options=settings_to_json(settings),
        stories=tuple(to_json(story) for story in stories),
    )
    await log.record(started)
    world = World(sample=_machine(rng, keeper), requests=lambda _last: ())
    workers = {story.id: Workers(first=Worker(agent=PaperAgent())) for story in stories}
    with trio.fail_after(60 * SECONDS_AN_HOUR):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_person, rng, control)
            await Orchestrator(order=stories, workers=workers, context=tools, world=world).orchestrate()
            nursery.cancel_scope.cancel()
    await log.record(ev.RunEnded(exit_code=exit_code(log.snapshot)))
    return log.snapshot, trio.current_time() - began


def _machine(rng: random.Random, keeper: SimulatedKeeper) -> Any:
    """Return a memory curve: what others take, now and then a lot of it, and what sessions take."""
    waves = [(rng.uniform(0, 6 * GB), rng.uniform(100, 5000), rng.uniform(0, 5000)) for _ in range(3)]
    blind = rng.random() < 0.1

    def sample() -> ResourceSample:
        if blind:
            return ResourceSample()
        now = trio.current_time()
        others = sum(size for size, period, phase in waves if ((now + phase) // period) % 2)
        return ResourceSample(memory_available=max(0, int(WHOLE_MEMORY - others - keeper.memory_used)))

    return sample


async def _person(rng: random.Random, control: StopControl) -> None:
    """Press Ctrl-C in some runs, perhaps more than once."""
    if rng.random() < 0.7:
        return
    await trio.sleep(rng.uniform(0, 20_000))
    control.raise_run(Level.FINISH)
    if rng.random() < 0.5:
        await trio.sleep(rng.uniform(0, 600))
        control.raise_run(Level.STOP)


def _crash(error: BaseException) -> Path:
    raise AssertionError("a pipeline crashed") from error
