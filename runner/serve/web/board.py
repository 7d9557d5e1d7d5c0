"""The board as values: four columns of cards. What is equal to before is not drawn again."""

from collections.abc import Mapping

from msgspec import Struct

from runner.core import choose
from runner.core.model import RunSnapshot, Status, StoryId, StorySnapshot
from runner.core.outlook.left import left_words
from runner.core.outlook.waiting import Cause, waiting
from runner.core.schedule.offers import is_offered, lands
from runner.core.text.screen import neutral
from runner.core.text.words import SYMBOLS, attempt, because, count, doing, machine, phase, state, worked
from runner.report.report_data import usage_text
from runner.serve.web.source import Seen

COLUMNS: Mapping[str, str] = {
    "working": "Working",
    "needs-you": "Needs you",
    "ready": "Ready to land",
    "ended": "Landed or ended",
}
WAITS = "waits"
"""The list of stories that have not started, below those that run."""

_LONGEST = 400


class Clock(Struct, frozen=True, kw_only=True):
    """A duration: fixed, or running since an instant, so that a browser can count by itself.

    One that runs has no seconds here: it would differ at each look, and everything around it be sent again.
    """

    seconds: float = 0.0
    since: float | None = None


class Asked(Struct, frozen=True, kw_only=True):
    """An open question with what answers it."""

    story_id: str
    decision_id: str
    title: str
    details: tuple[str, ...]
    options: tuple[choose.Option, ...]
    recommendation: str
    why: str
    warning: str
    destructive: bool


class Card(Struct, frozen=True, kw_only=True):
    """One story on the board."""

    id: str
    title: str
    column: str
    tone: str
    symbol: str
    state: str
    step: str = ""
    attempt: str = ""
    clock: Clock | None = None
    spent: str = ""
    left: str = ""
    reason: str = ""
    made: str = ""
    asked: Asked | None = None
    can_retry: bool = False
    can_stop: bool = False


class Head(Struct, frozen=True, kw_only=True):
    """What is at the top of every page about a run."""

    run_id: str
    headline: str
    phase: str
    active: bool
    paused: bool
    counts: tuple[tuple[str, str, int], ...]
    machine: str
    spent: str
    clock: Clock
    left: str = ""
    problem: str = ""
    hint: str = ""
    can_land: int = 0
    can_continue: bool = False
    landing: bool = False
    newest: bool = True


def text(value: str, most: int = _LONGEST) -> str:
    """Return text of unknown origin as one safe line of bounded length."""
    plain = neutral(value)
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def head(seen: Seen) -> Head:
    """Return the summary of a run."""
    run = seen.run
    statuses = [phase(story) for story in run.stories.values()]
    tally = tuple((status.value, SYMBOLS[status], statuses.count(status)) for status in SYMBOLS)
    done = run.count(Status.DONE)
    switch = run.kill_switch
    ready = sum(column_of(story) == "ready" for story in run.stories.values())
    left = any(_is_open(story) for story in run.stories.values())
    return Head(
        run_id=run.run_id,
        headline=f"{done} of {count(len(run.stories), 'story', 'stories')} done",
        phase=_phase(seen),
        active=seen.active,
        paused=run.paused,
        counts=tuple(each for each in tally if each[2]),
        machine=machine(run) if seen.active else "",
        spent=usage_text(run.usage),
        clock=Clock(since=run.started_at)
        if seen.active
        else Clock(seconds=round((run.ended_at or run.started_at) - run.started_at, 1)),
        left=left_words(seen.outlook.left),
        problem=text(f"{switch.name}: {switch.detail}") if switch else "",
        hint=text(switch.hint) if switch else "",
        can_land=0 if seen.alive or seen.landing_id else ready,
        can_continue=not seen.alive and not seen.landing_id and left,
        landing=bool(seen.landing_id),
        newest=seen.newest,
    )


def cards(seen: Seen, now: float) -> dict[StoryId, Card]:
    """Return the card of each story, in the order of the run."""
    return {story.id: card(seen, story, now) for story in seen.run.stories.values()}


def card(seen: Seen, story: StorySnapshot, now: float) -> Card:
    """Return the card of a story."""
    final = story.status.final
    failed = final and story.status is not Status.DONE
    reason = because(story) if failed else story.workspace.unlanded if story.status is Status.DONE else ""
    return Card(
        id=story.id,
        title=text(story.title),
        column=column_of(story),
        tone=phase(story).value,
        symbol=SYMBOLS[phase(story)],
        state=state(story),
        step=text(story.step.name) if story.started_at and not final else "",
        attempt=attempt(story) if story.progress.attempt > 1 else "",
        clock=clock_of(story, now),
        spent=usage_text(story.usage),
        left=left_words(seen.outlook.stories.get(story.id)) if not final else "",
        reason=text(reason or (because(story) if story.status is Status.RUNNING else "")),
        made="" if failed or not final else text(doing(story)),
        asked=asked_by(story),
        can_retry=failed,
        can_stop=seen.active and not final,
    )


def line_of(seen: Seen, story: StorySnapshot, now: float) -> str:
    """Return what a story does or waits for now; one line, which changes often."""
    waits = waiting(story, seen.run, now) if seen.active else None
    if waits is not None and waits.cause is not Cause.YOU:
        return text(f"{waits.words} ({waits.detail})" if waits.detail else waits.words)
    return text(seen.lines.get(story.id, "")) if story.status is Status.RUNNING else ""


def clock_of(story: StorySnapshot, now: float) -> Clock | None:
    """Return how long a story has worked; None before its start."""
    took = worked(story, now)
    if took is None or story.started_at is None:
        return None
    if story.status.final or story.waiting_since is not None:
        return Clock(seconds=round(took, 1))
    return Clock(since=story.started_at + story.waited)


def column_of(story: StorySnapshot) -> str:
    """Return the column in which a story belongs."""
    if story.decision is not None and not story.decision.letter:
        return "needs-you"
    if not story.status.final:
        return "working"
    if story.status in {Status.FAILED, Status.PARKED}:
        return "needs-you"
    return "ready" if is_offered(story) and lands(story) else "ended"


def lists(run: RunSnapshot) -> dict[str, list[str]]:
    """Return which cards are in which list, in their order."""
    found: dict[str, list[str]] = {f"list-{name}": [] for name in (*COLUMNS, WAITS)}
    for story in run.stories.values():
        column = column_of(story)
        waits = column == "working" and story.status is not Status.RUNNING
        found[f"list-{WAITS if waits else column}"].append(f"card-{story.id}")
    found["list-ended"].reverse()  # what ended last is first
    return found


def asked_by(story: StorySnapshot) -> Asked | None:
    """Return the open question of a story; None without one, or if it cannot be read."""
    decision = story.decision
    if decision is None or decision.letter:
        return None
    try:
        question = choose.from_json(decision.question)
    except choose.QuestionError:
        return None
    return Asked(
        story_id=story.id,
        decision_id=decision.id,
        title=question.title,
        details=question.details,
        options=question.options,
        recommendation=question.recommendation,
        why=question.why,
        warning=question.warning,
        destructive=any(option.destructive for option in question.options),
    )


def _phase(seen: Seen) -> str:
    if seen.landing_id:
        return "landing"
    if seen.run.ended:
        return "ended"
    if not seen.alive:
        return "interrupted"
    return "paused" if seen.run.paused else "running"


def _is_open(story: StorySnapshot) -> bool:
    """Whether `resume` would work on a story again."""
    answered = story.decision is None or bool(story.decision.letter)
    parked = story.status is Status.PARKED and answered
    return not story.status.final or story.status in {Status.STOPPED, Status.SKIPPED} or parked
