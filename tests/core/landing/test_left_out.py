"""A story that a landing left out: its question, its answers, and the prompt of another try."""

import pytest
from msgspec.structs import replace

from runner.core import choose
from runner.core.events import events as ev
from runner.core.events import landing as ld
from runner.core.landing.question import chosen, question_about
from runner.core.left_out.evidence import (
    CONFLICT,
    DEPENDENCY,
    RED_TOGETHER,
    LeftOut,
    Retry,
    words_for_session,
)
from runner.core.model import Status, StoryId
from tests.core.landing.test_order import A, B, after

CLASH = LeftOut(
    landing_id="x",
    onto="main",
    tip="2",
    why=CONFLICT,
    reason="conflicts with a in f",
    files=("f",),
    others=("a",),
)
RED = LeftOut(
    landing_id="x",
    onto="main",
    tip="2",
    why=RED_TOGETHER,
    reason="red together with a",
    others=("a",),
    command="make test",
    output=("    Error: \x1b[31mno\x1b[0m", "", "x" * 400),
    log="/logs/verify.log",
)


def test_the_question_has_the_evidence_and_words_for_answers() -> None:
    """Only a conflict can be resolved; a story that waits for another one is no question."""
    clash = question_about(CLASH, "Mail\nfor all")
    assert clash is not None
    assert clash.title == "Mail for all did not land on main"
    assert clash.details == ("conflicts with a in f", "Files in conflict: f", "Other stories: a")
    assert [choose.parse_answer(clash, text) for text in ("retry", "Resolve", "skip", "c")] == list("ABCC")
    assert choose.from_json(choose.to_json(clash)) == clash
    red = question_about(RED, "Mail")
    assert red is not None
    assert [option.word for option in red.options] == ["retry", "skip"]
    assert "Failing command: make test" in red.details
    assert red.details[-1] == "Log: /logs/verify.log"
    assert "Recommendation: A" in choose.render(red)
    with pytest.raises(choose.AnswerError, match="'resolve' is not an answer"):
        choose.parse_answer(red, "resolve")
    assert (
        question_about(LeftOut(landing_id="x", onto="main", tip="", why=DEPENDENCY, reason="r"), "t") is None
    )


def asked() -> tuple[ev.Body, ...]:
    left = ld.StoryNotLanded(
        story_id=B,
        landing_id="x",
        reason="conflicts with a in f",
        onto="main",
        tip="2",
        why=CONFLICT,
        files=("f",),
    )
    question = question_about(CLASH, "Mail")
    assert question is not None
    return left, ev.DecisionAsked(story_id=B, decision_id="q", question=choose.to_json(question))


def test_a_retry_begins_the_story_again_and_a_landing_closes_the_question() -> None:
    """The state knows the new base, the old tip and the answer; without one, the question stays open."""
    run = after(*asked())
    assert [story.id for story in run.open_decisions] == [B]
    assert run.stories[B].status is Status.QUEUED, "its status does not change by that"
    assert chosen(run.stories[B]) == ""
    answered = ev.DecisionAnswered(story_id=B, decision_id="q", letter="A", by="person")
    assert chosen(after(*asked(), answered).stories[B]) == "retry"
    retry = ld.LandingRetryPlanned(
        story_id=B, landing_id="x", onto="main", base="3", old="2", commit="4", files=("f",)
    )
    story = after(*asked(), answered, retry, ev.RunResumed(requeued=("b",))).stories[B]
    assert (story.workspace.base, story.workspace.head, story.workspace.unlanded) == ("3", "4", "")
    assert (story.decision, story.decided[0].letter, story.flow) == (None, "A", "quick")
    left = story.workspace.left_out
    assert left is not None
    assert left.retry == Retry(base="3", old="2", commit="4", files=("f",))
    landed = ld.Landed(landing_id="y", onto="main", commit="5", stories=("b",))
    over = after(*asked(), landed)
    assert not over.open_decisions
    assert over.stories[B].workspace.left_out is None
    elsewhere = ld.Landed(landing_id="y", onto="main", commit="5", stories=(A,))
    assert [story.id for story in after(*asked(), elsewhere).open_decisions] == [StoryId("b")]


def test_the_prompt_of_another_try_says_why() -> None:
    """Files in conflict, or the red command with its output; nothing without another try."""
    assert words_for_session(CLASH, {}) == ""
    retry = Retry(base="3" * 40, old="2" * 40, commit="4" * 40, files=("f", "g"))
    words = words_for_session(tried_again(CLASH, retry), {"a": "Search"})
    assert "could not land on `main`: conflicts with a in f." in words
    assert "- f\n- g\n" in words
    assert "The other side is story a: Search" in words
    red = words_for_session(tried_again(RED, Retry(base="3", old="2", commit="4")), {})
    assert "Both are merged without a conflict" in red
    assert "This command failed on the joined work: `make test`" in red
    fresh = words_for_session(tried_again(CLASH, Retry(base="3", old="2", commit="4", fresh=True)), {})
    assert "make your changes there again" in fresh


def tried_again(left: LeftOut, retry: Retry) -> LeftOut:
    return replace(left, retry=retry)
