"""The queue of questions, what answers them, and the call for attention."""

from pathlib import Path

import pytest

from runner.core import choose
from runner.core.errors import JournalError, NotFoundError
from runner.core.events import events as ev
from runner.core.model import StoryId
from runner.story.flow.decisions import (
    AlreadyAnsweredError,
    answer_event,
    open_questions,
    recommended,
)
from tests.records.sample_runs import event, snapshot, started
from tests.report.asking import COLOUR, DELETE, FAILED, OVERWRITE, answered, applied, asks, journalled


def test_open_questions_form_one_queue_in_the_order_they_were_asked(tmp_path: Path) -> None:
    """Acceptance 61: the journal gives every question back as it was asked, whichever story began first."""
    run = journalled(
        tmp_path / "journal.db",
        [
            started("a", "b", "c", "d"),
            *asks("c", 1, FAILED),
            *asks("a", 2, COLOUR),
            *asks("b", 3, OVERWRITE),
            answered("a", 4, "A"),
        ],
    )
    queue = open_questions(run)
    assert [(one.story_id, one.decision_id) for one in queue] == [("c", "c-1"), ("b", "b-1")]
    assert [one.question for one in queue] == [FAILED, OVERWRITE]
    assert queue[0].asked_at < queue[1].asked_at


def test_an_answer_is_validated_by_the_form() -> None:
    """Acceptance 63: a letter or the option's own line counts; anything else says what would."""
    run = snapshot([started("a"), *asks("a", 1, COLOUR)])
    for text in ("b", "B)", "B) Blue"):
        answer = answer_event(run, StoryId("a"), text)
        assert (answer.decision_id, answer.letter, answer.by) == ("a-1", "B", "person")
    with pytest.raises(choose.AnswerError) as refused:
        answer_event(run, StoryId("a"), "C")
    assert refused.value.hint == "answer with A or B."


def test_a_second_answer_is_refused_with_what_was_chosen() -> None:
    """Acceptance 63: an answer counts once, before it has had its effect and afterwards."""
    events = [started("a"), *asks("a", 1, COLOUR), answered("a", 2, "A")]
    for more in ([], [applied("a", 3)]):
        with pytest.raises(AlreadyAnsweredError, match=r"already decided by the user: A\) Red"):
            answer_event(snapshot([*events, *more]), StoryId("a"), "B")


def test_an_answer_to_an_older_question_never_answers_the_newer_one() -> None:
    """What was meant for one decision is refused once the story asks another."""
    past = [*asks("a", 1, COLOUR), answered("a", 2, "A"), applied("a", 3)]
    run = snapshot([started("a"), *past, *asks("a", 4, DELETE, number=2)])
    with pytest.raises(AlreadyAnsweredError, match=r"A\) Red"):
        answer_event(run, StoryId("a"), "A", decision_id="a-1")
    with pytest.raises(NotFoundError, match="no longer asks"):
        answer_event(run, StoryId("a"), "A", decision_id="a-0")
    assert answer_event(run, StoryId("a"), "A", decision_id="a-2").decision_id == "a-2"


def test_a_story_without_a_question_names_those_that_have_one() -> None:
    """Who asks about the wrong story learns which ones wait."""
    run = snapshot([started("api", "web", "ui"), *asks("web", 1, COLOUR), *asks("ui", 2, COLOUR)])
    with pytest.raises(NotFoundError) as quiet:
        answer_event(run, StoryId("api"), "A")
    assert "web, ui" in quiet.value.hint
    with pytest.raises(NotFoundError) as unknown:
        answer_event(run, StoryId("wep"), "A")
    assert unknown.value.hint == "did you mean 'web'?"


def test_a_question_that_cannot_be_read_is_an_error_in_words() -> None:
    """A journal of a newer version ends in no traceback, and hides no other story's question."""
    strange = ev.DecisionAsked(story_id=StoryId("a"), decision_id="a-1", question={"kind": "riddle"})
    run = snapshot([started("a", "b"), event(1, strange), *asks("b", 2, COLOUR)])
    with pytest.raises(JournalError, match="story a"):
        open_questions(run)
    assert answer_event(run, StoryId("b"), "A").letter == "A"


def test_the_default_takes_the_recommendation() -> None:
    """`--decide-default recommended` answers as recommended, and says that it was the default."""
    run = snapshot([started("a"), *asks("a", 1, COLOUR)])
    answer = recommended(run, StoryId("a"))
    assert answer is not None
    assert (answer.letter, answer.by) == ("B", "recommended")
    assert recommended(snapshot([started("a")]), StoryId("a")) is None


def test_the_default_never_destroys() -> None:
    """Acceptance 63: only the user confirms a destructive option, also a recommended one."""
    run = snapshot([started("a"), *asks("a", 1, DELETE)])
    assert recommended(run, StoryId("a")) is None


def test_the_default_does_not_answer_in_a_circle() -> None:
    """After a failure it retries once; the same failure again waits for the user."""
    again = [*asks("a", 1, FAILED), answered("a", 2, "A", by="recommended"), applied("a", 3)]
    run = snapshot([started("a"), *again, *asks("a", 4, FAILED, number=2)])
    assert recommended(run, StoryId("a")) is None
    other = snapshot([started("a"), *again, *asks("a", 4, COLOUR, number=2)])
    assert recommended(other, StoryId("a")) is not None
    by_hand = [*asks("a", 1, FAILED), answered("a", 2, "A"), applied("a", 3)]
    first = snapshot([started("a"), *by_hand, *asks("a", 4, FAILED, number=2)])
    assert recommended(first, StoryId("a")) is not None


def test_boundaries_are_passed_again_by_default() -> None:
    """A later cycle reaches the same boundary, which is progress and no circle."""
    boundary = choose.session_boundary(finished="Decompose", upcoming="Implement")
    events = [*asks("a", 1, boundary), answered("a", 2, "A", by="recommended"), applied("a", 3)]
    run = snapshot([started("a"), *events, *asks("a", 4, boundary, number=2)])
    assert recommended(run, StoryId("a")) is not None
