"""The questions of a run as one queue: which are open, and what answers them.

Pure over snapshots. An answer counts once: a second one is refused with what was
chosen. The unattended default never destroys anything, and never answers the same question twice.
"""

from msgspec import Struct

from runner.core import choose
from runner.core.errors import JournalError, NotFoundError, RunnerError
from runner.core.events import events as ev
from runner.core.model import Decision, RunSnapshot, StoryId, StorySnapshot
from runner.core.text.names import did_you_mean, shown
from runner.story.flow.answers import EARLIER, PERSON, RECOMMENDED

_BY = {PERSON: "the user", EARLIER: "the user", RECOMMENDED: "the unattended default"}


class AlreadyAnsweredError(RunnerError):
    """The question is answered; another answer is refused."""

    code = "answered"


class OpenQuestion(Struct, frozen=True, kw_only=True):
    """One question that a story waits for, and since when, in seconds since the epoch."""

    story_id: StoryId
    decision_id: str
    question: choose.Question
    asked_at: float


def open_questions(run: RunSnapshot) -> tuple[OpenQuestion, ...]:
    """Return the open questions of all stories, in the order in which they were asked."""
    asked = [_asked(story.id, story.decision) for story in run.open_decisions if story.decision]
    return tuple(sorted(asked, key=lambda one: one.asked_at))


def is_open(run: RunSnapshot, story_id: StoryId, decision_id: str) -> bool:
    """Return whether exactly this question still waits for its answer."""
    story = run.stories.get(story_id)
    decision = story.decision if story else None
    return decision is not None and decision.id == decision_id and not decision.letter


def require_open(run: RunSnapshot, story_id: StoryId) -> OpenQuestion:
    """Return the open question of a story; raise an error that says why it has none."""
    story = _require_story(run, story_id)
    if story.decision is not None and not story.decision.letter:
        return _asked(story_id, story.decision)
    answered = last_answer(run, story_id)
    if answered is not None:
        raise already_answered(story_id, answered)
    raise NotFoundError(f"story {story_id} waits for no decision", hint=_open_words(run))


def last_answer(run: RunSnapshot, story_id: StoryId, decision_id: str = "") -> Decision | None:
    """Return the answered decision of that id, or without an id the newest one of the story."""
    story = _require_story(run, story_id)
    known = [*story.decided, *([story.decision] if story.decision else [])]
    answered = [one for one in known if one.letter and decision_id in {"", one.id}]
    return answered[-1] if answered else None


def answer_event(
    run: RunSnapshot, story_id: StoryId, text: str, *, decision_id: str = "", by: str = PERSON
) -> ev.DecisionAnswered:
    """Turn what the user wrote into the event to record; raises a `RunnerError` when it does not count.

    With a `decision_id` only that question is answered, never one that the story asked since.
    """
    if decision_id and not is_open(run, story_id, decision_id):
        answered = last_answer(run, story_id, decision_id)
        if answered is not None:
            raise already_answered(story_id, answered)
        raise NotFoundError(
            f"story {story_id} no longer asks what this answers",
            hint="`autopilot-multi decide` lists what is open now.",
        )
    asked = require_open(run, story_id)
    letter = choose.parse_answer(asked.question, text)
    return ev.DecisionAnswered(story_id=story_id, decision_id=asked.decision_id, letter=letter, by=by)


def recommended(run: RunSnapshot, story_id: StoryId) -> ev.DecisionAnswered | None:
    """Return the answer of `--decide-default recommended`; None where only the user may answer.

    That is a question that says so, an option that destroys something, and a question that the default has
    answered before in this story: the recommendation after a failure is to try again, which would never end
    without the user.
    """
    story = _require_story(run, story_id)
    if story.decision is None or story.decision.letter:
        return None
    asked = _asked(story_id, story.decision)
    letter = asked.question.recommendation
    if asked.question.must_ask or choose.must_confirm(asked.question, letter):
        return None
    if _answered_before(story, asked.question):
        return None
    return ev.DecisionAnswered(
        story_id=story_id, decision_id=asked.decision_id, letter=letter, by=RECOMMENDED
    )


def already_answered(story_id: StoryId, decision: Decision) -> AlreadyAnsweredError:
    """Return the error that says what was chosen before, and by whom."""
    by = _BY.get(decision.by, decision.by)
    return AlreadyAnsweredError(
        f"story {story_id}: already decided by {by}: {_option_words(story_id, decision)}",
        hint="an answer is final; `autopilot-multi status` shows the result.",
    )


def _asked(story_id: StoryId, decision: Decision) -> OpenQuestion:
    return OpenQuestion(
        story_id=story_id,
        decision_id=decision.id,
        question=_question(story_id, decision),
        asked_at=decision.asked_at,
    )


def _question(story_id: StoryId, decision: Decision) -> choose.Question:
    try:
        return choose.from_json(decision.question)
    except choose.QuestionError as error:
        raise JournalError(
            f"story {story_id}: the journal holds a question that cannot be asked: {error}",
            hint="a newer version of autopilot-multi may have written it; update, then try again.",
        ) from error


def _require_story(run: RunSnapshot, story_id: StoryId) -> StorySnapshot:
    story = run.stories.get(story_id)
    if story is None:
        raise NotFoundError(
            f"run {run.run_id} has no story {shown(story_id)}",
            hint=did_you_mean(story_id, run.stories) or _open_words(run),
        )
    return story


def _open_words(run: RunSnapshot) -> str:
    # Not by `open_questions`: one that cannot be parsed must not hide the others.
    waiting = [story.id for story in run.open_decisions]
    if not waiting:
        return f"no decision is open in run {run.run_id}."
    return f"open decisions of run {run.run_id}: {', '.join(waiting)}."


def _option_words(story_id: StoryId, decision: Decision) -> str:
    question = _question(story_id, decision)
    return next(
        (f"{one.letter}) {one.text}" for one in question.options if one.letter == decision.letter),
        decision.letter,
    )


def _answered_before(story: StorySnapshot, question: choose.Question) -> bool:
    """Return whether the default has answered this before; a boundary is passed only by progress."""
    if question.kind is choose.QuestionKind.BOUNDARY:
        return False
    subject = (question.kind.value, question.title)
    return any(
        one.by == RECOMMENDED and (one.question.get("kind"), one.question.get("title")) == subject
        for one in story.decided
    )
