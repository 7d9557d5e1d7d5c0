"""The figures of a run, as values: what `/metrics` and OpenTelemetry both show.

A counter never falls while a run lasts. Stories can lose a verdict again, by `resume` or `retry`, so how many
have which is a gauge.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from runner.core.model import RunSnapshot, SessionRecord, Status, StorySnapshot, Tier
from runner.report.run_document import settled

Labels = tuple[tuple[str, str], ...]
"""Names and values, in the order in which they are shown."""


class Kind(StrEnum):
    """How a figure changes: a counter only grows, a gauge goes up and down."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Measure(Struct, frozen=True, kw_only=True):
    """One figure, or one for each set of labels; `unit` is in the words of OpenTelemetry."""

    name: str
    kind: Kind
    help: str
    points: Mapping[Labels, float]
    unit: str = "1"


def measures_of(run: RunSnapshot, *, alive: bool) -> tuple[Measure, ...]:
    """Return all figures of a run; without a coordinator nothing in it is running."""
    shown = settled(run, alive=alive and not run.ended)
    return (*_of_the_run(shown, alive=alive), *_of_stories(shown), *_of_sessions(shown))


def _gauge(name: str, text: str, value: float, unit: str = "1") -> Measure:
    return Measure(name=name, kind=Kind.GAUGE, help=text, points={(): value}, unit=unit)


def _of_the_run(run: RunSnapshot, *, alive: bool) -> Iterator[Measure]:
    facts = (("run", run.run_id), ("isolation", run.isolation), ("enforcement", run.enforcement))
    yield Measure(
        name="autopilot.run.info",
        kind=Kind.GAUGE,
        help="Which run the figures are of; always 1.",
        points={(*facts, ("base", run.base)): 1.0},
    )
    yield _gauge("autopilot.run.active", "Whether a process works on the run.", alive and not run.ended)
    yield _gauge("autopilot.run.paused", "Whether no more stories start, because of `pause`.", run.paused)
    yield _gauge("autopilot.run.start_time", "When the run began.", run.started_at, unit="s")
    if run.ended_at is not None:
        yield _gauge("autopilot.run.end_time", "When the run ended.", run.ended_at, unit="s")
    yield _gauge("autopilot.window", "How many stories may run at once now.", run.window)
    yield _gauge("autopilot.max_stories", "How many stories may run at once at most.", run.max_stories)
    yield Measure(
        name="autopilot.tier",
        kind=Kind.GAUGE,
        help="How loaded the machine is: 1 for the current tier, 0 for the others.",
        points={(("tier", tier.value),): float(tier is run.tier) for tier in Tier},
    )
    yield _gauge("autopilot.decisions.open", "Stories that wait for an answer.", len(run.open_decisions))
    landed = sum(1 for story in run.stories.values() if story.workspace.landed)
    yield _gauge("autopilot.stories.landed", "Stories whose work was landed.", landed)


def _of_stories(run: RunSnapshot) -> Iterator[Measure]:
    counts = run.counts
    yield Measure(
        name="autopilot.stories",
        kind=Kind.GAUGE,
        help="Stories by status or verdict.",
        points={(("status", status.value),): float(counts[status]) for status in Status},
    )
    stories = run.stories.values()
    yield Measure(
        name="autopilot.story.info",
        kind=Kind.GAUGE,
        help="The stories of the run, each with its title and status; always 1.",
        points={_facts(story): 1.0 for story in stories},
    )
    yield Measure(
        name="autopilot.story.cost",
        kind=Kind.COUNTER,
        help="What a story has cost in US dollars, as far as it is known.",
        points={(("story", story.id),): _cost(story) for story in stories if story.sessions},
        unit="USD",
    )


def _facts(story: StorySnapshot) -> Labels:
    return ("story", story.id), ("title", story.title), ("status", story.status.value)


def _cost(story: StorySnapshot) -> float:
    return story.usage.cost_usd or 0.0


def _of_sessions(run: RunSnapshot) -> Iterator[Measure]:
    sessions = [session for story in run.stories.values() for session in story.sessions]
    ended: Counter[Labels] = Counter()
    tokens: Counter[Labels] = Counter()
    costs: dict[Labels, float] = {}
    for session in sessions:
        who = (("agent", session.agent), ("model", session.model))
        if session.outcome is not None:
            ended[(("kind", session.kind.value), ("outcome", session.outcome.value))] += 1
        for kind, count in _tokens(session):
            tokens[(("type", kind), *who)] += count
        if session.usage.cost_usd is not None:
            costs[who] = costs.get(who, 0.0) + session.usage.cost_usd
    yield Measure(
        name="autopilot.sessions",
        kind=Kind.COUNTER,
        help="Sessions that have ended, by what they were for and how they ended.",
        points={labels: float(count) for labels, count in ended.items()},
    )
    yield Measure(
        name="autopilot.tokens",
        kind=Kind.COUNTER,
        help="Tokens that agents have reported; `cached` is the part of `input` that came from a cache.",
        points={labels: float(count) for labels, count in tokens.items()},
        unit="{token}",
    )
    yield Measure(
        name="autopilot.cost",
        kind=Kind.COUNTER,
        help="What sessions have cost in US dollars, as far as it is known.",
        points=costs,
        unit="USD",
    )


def _tokens(session: SessionRecord) -> Iterator[tuple[str, int]]:
    usage = session.usage
    for kind, count in (
        ("input", usage.input_tokens),
        ("output", usage.output_tokens),
        ("cached", usage.cached_tokens),
    ):
        if count is not None:
            yield kind, count
