"""Stories that ask, and what answers them, as events of a journal."""

from pathlib import Path

from runner.core import choose
from runner.core.events import events as ev
from runner.core.model import RunSnapshot, StoryId
from runner.records.journal import Journal
from tests.records.sample_runs import RUN, event, snapshot

COLOUR = choose.decision("Red or blue?", ["Red", "Blue"], recommendation="B", why="it is calmer")
FAILED = choose.skill_failed(number="3", name="Implement", sub_step="", reason="exit code 1")
OVERWRITE = choose.rollback(name="Decompose", folders=["_docs/02_tasks"])
DELETE = choose.Question(
    kind=choose.QuestionKind.DECISION,
    title="Drop the old table?",
    options=choose.lettered(["Drop it", "Keep it"], destructive="A"),
    recommendation="A",
    why="nobody reads it",
)


def asks(name: str, at: float, question: choose.Question, *, number: int = 1) -> list[ev.Event]:
    """Let a story ask, and park it."""
    story = StoryId(name)
    asked = ev.DecisionAsked(
        story_id=story, decision_id=f"{name}-{number}", question=choose.to_json(question)
    )
    parked = ev.StoryFinished(story_id=story, verdict="parked", reason=question.title)
    return [event(at, asked), event(at, parked)]


def answered(name: str, at: float, letter: str, *, number: int = 1, by: str = "person") -> ev.Event:
    """Answer a story's question."""
    body = ev.DecisionAnswered(story_id=StoryId(name), decision_id=f"{name}-{number}", letter=letter, by=by)
    return event(at, body)


def applied(name: str, at: float, *, number: int = 1) -> ev.Event:
    """Let an answer have its effect."""
    return event(at, ev.DecisionApplied(story_id=StoryId(name), decision_id=f"{name}-{number}"))


def journalled(path: Path, events: list[ev.Event]) -> RunSnapshot:
    """Fold what a real journal gives back."""
    with Journal.open(path) as journal:
        journal.append(events)
        return snapshot(journal.events(RUN))
