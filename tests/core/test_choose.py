"""The Choose form: what is drawn is compared, letter by letter, with the documents it comes from."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.choose import (
    RULE,
    AnswerError,
    Option,
    Question,
    QuestionError,
    QuestionKind,
    blocked,
    decision,
    from_json,
    lettered,
    low_confidence,
    must_confirm,
    parse_answer,
    promotion_offer,
    recovery,
    render,
    rollback,
    session_boundary,
    skill_failed,
    to_json,
    tracker_failed,
)
from runner.core.model import Step

DECISION = """\
══════════════════════════════════════
DECISION REQUIRED: another research round or proceed?
══════════════════════════════════════
A) Another round — two drafts disagree on storage
B) Proceed — the first draft is good enough
C) Stop — the problem is not understood
══════════════════════════════════════
Recommendation: B — the difference is small
══════════════════════════════════════"""

BOUNDARY = """\
══════════════════════════════════════
DECISION REQUIRED: Decompose complete — start implementation?
══════════════════════════════════════
A) Start a new conversation for implementation (recommended for context freshness)
B) Continue implementation in this conversation
══════════════════════════════════════
Recommendation: A — implementation is the longest phase, fresh context helps
══════════════════════════════════════"""

SHARED_BOUNDARY = (
    "══════════════════════════════════════ DECISION REQUIRED: New Task complete — start implementation? "
    "══════════════════════════════════════ A) Start a new conversation for implementation "
    "(recommended for context freshness) B) Continue in this conversation (NOT recommended — context may "
    "degrade) Warning: if context fills mid-implementation, state will be saved and you will still be asked "
    "to resume in a new conversation — option B only delays that. ══════════════════════════════════════ "
    "Recommendation: A — implementation is long; fresh context helps ══════════════════════════════════════"
)

FAILED = """\
══════════════════════════════════════
SKILL FAILED: Test Spec — 3 consecutive failures
══════════════════════════════════════
Step: 2 — Test Spec
SubStep: 1b — Test Case Generation
Last failure reason: docker is not running
══════════════════════════════════════
A) Retry with fresh context (new conversation)
B) Skip this step with warning
C) Abort — investigate and fix manually
══════════════════════════════════════
Recommendation: A — fresh context often resolves
persistent failures
══════════════════════════════════════"""

RECOVERY = """\
══════════════════════════════════════
RECOVERY: plan stuck at 4 — Architecture Review
══════════════════════════════════════
A) Retry with fresh context (new conversation)
B) Skip this sub-step with warning
C) Abort and fix manually
══════════════════════════════════════
Recommendation: A — fresh context often resolves stuck loops
══════════════════════════════════════"""

ROLLBACK = """\
══════════════════════════════════════
ROLLBACK: Re-run Plan?
══════════════════════════════════════
A) Re-run the step (overwrites current artifacts)
B) Stay on current step
══════════════════════════════════════
Warning: This will overwrite files in _docs/02_document/
══════════════════════════════════════
"""

TRACKER = """\
══════════════════════════════════════
Tracker authentication failed
══════════════════════════════════════
A) Retry authentication (retry mcp_auth)
B) Continue without tracker (tasks saved locally only)
══════════════════════════════════════
Recommendation: A — Tracker IDs drive task referencing,
dependency tracking, and implementation batching.
Without tracker, task files use numeric prefixes instead.
══════════════════════════════════════"""


def _research() -> Question:
    return decision(
        "another research round or proceed?",
        [
            "Another round — two drafts disagree on storage",
            "Proceed — the first draft is good enough",
            "Stop — the problem is not understood",
        ],
        recommendation="B",
        why="the difference is small",
    )


def _failed() -> Question:
    return skill_failed(
        number="2",
        name="Test Spec",
        sub_step="1b — Test Case Generation",
        reason="docker is not\n running",
    )


BUILT = [
    _research(),
    _failed(),
    recovery(skill="plan", step="3", sub_step="4 — Architecture Review"),
    rollback(name="Plan", folders=["_docs/02_document/"]),
    tracker_failed(),
    session_boundary(finished="Decompose", upcoming="Implement", shared=False),
    session_boundary(finished="New Task", upcoming="Implement"),
    low_confidence(
        confidence=0.5,
        threshold=0.85,
        candidates=[Step(number="3", name="Plan"), Step(number="5", name="Decompose")],
    ),
    low_confidence(confidence=0, threshold=0.85, candidates=[]),
    blocked(others=["housekeeping session cleanup-1 (pid 4711 on workshop)"]),
    blocked(others=["deep session x", "feature session y"], mode="housekeeping"),
    promotion_offer(others=["deep session x"]),
]


def test_each_variant_is_drawn_as_the_documents_draw_it() -> None:
    """Acceptance 61: the rules, titles, options and recommendations stand as given."""
    assert render(_research()) == DECISION
    assert render(_failed()) == FAILED
    assert render(recovery(skill="plan", step="3", sub_step="4 — Architecture Review")) == RECOVERY
    assert render(tracker_failed()) == TRACKER
    assert render(session_boundary(finished="Decompose", upcoming="Implement", shared=False)) == BOUNDARY


def test_the_shared_boundary_template_is_kept_word_by_word() -> None:
    """Acceptance 61: the document lost its line breaks, so words are compared."""
    drawn = render(session_boundary(finished="New Task", upcoming="Implement"))
    assert " ".join(drawn.split()) == SHARED_BOUNDARY
    assert drawn.split("\n")[5].startswith("Warning: ")


def test_a_rollback_is_drawn_as_given_and_recommends_to_stay() -> None:
    """Acceptance 61: the given form has no recommendation; every question has one, so it follows."""
    drawn = render(rollback(name="Plan", folders=["_docs/02_document/"]))
    assert drawn.startswith(ROLLBACK)
    assert drawn.removeprefix(ROLLBACK).startswith("Recommendation: B — ")


@pytest.mark.parametrize("question", BUILT, ids=lambda question: question.title)
def test_every_built_question_obeys_the_form(question: Question) -> None:
    """Acceptance 61: rules 38 wide, 2 to 4 one-line options in order, exactly one recommendation."""
    lines = render(question).split("\n")
    assert RULE == "═" * 38
    assert lines[0] == lines[2] == lines[-1] == RULE
    letters = [line[0] for line in lines if re.match(r"[A-Z]\) ", line)]
    assert 2 <= len(letters) <= 4
    assert letters == list("ABCD"[: len(letters)])
    assert len([line for line in lines if line.startswith("Recommendation: ")]) == 1


def test_a_boundary_shows_the_summary_between_title_and_options() -> None:
    """The numbers of tasks, batches and points stand where a failure shows its details."""
    question = session_boundary(finished="Decompose", upcoming="Implement Tests", details=["7 tasks", ""])
    assert render(question).split("\n")[3:5] == ["7 tasks", RULE]
    assert "start implementation?" in question.title


def test_a_boundary_before_another_kind_of_step_names_it() -> None:
    """Only steps that implement are called implementation."""
    assert session_boundary(finished="Plan", upcoming="UI Design").title == "Plan complete — start ui design?"


def test_a_failure_without_details_says_that_none_are_recorded() -> None:
    """An empty line would not be a line, and a guess would be worse."""
    question = skill_failed(number="3", name="Plan", sub_step="", reason="", across_runs=True)
    assert question.details[1:] == ("SubStep: none recorded", "Last failure reason: none recorded")
    assert question.title == "Plan — 3 consecutive failures across runs"


def test_a_block_names_those_in_the_way_and_recommends_to_wait() -> None:
    """Other sessions are listed before the options, as safe text; a story that runs alone says so."""
    asked = blocked(others=["deep session \x1b[31mx\ny"], mode="housekeeping")
    assert asked.details == ("deep session x y",)
    assert asked.title.startswith("a story of mode housekeeping runs alone")
    assert "Wait" in asked.option(asked.recommendation).text
    assert "Continue anyway" not in render(asked)
    assert "Continue anyway" in render(promotion_offer(others=["deep session x"]))


def test_low_confidence_offers_the_candidates_and_a_way_out() -> None:
    """With candidates the likeliest is recommended, without any nothing is started."""
    several = low_confidence(
        confidence=0.5,
        threshold=0.85,
        candidates=[Step(number=one, name=one) for one in "1234"],
        rationale=["why"],
    )
    assert [option.text for option in several.options] == [
        "Continue at step 1 (1)",
        "Continue at step 2 (2)",
        "Continue at step 3 (3)",
        "Abort — look and fix manually",
    ]
    assert several.recommendation == "A"
    assert several.details == ("why",)
    assert low_confidence(confidence=0, threshold=0.85, candidates=[]).recommendation == "B"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"options": lettered(["only"])}, "2 to 4 options, not 1"),
        ({"options": (Option(letter="B", text="x"), Option(letter="A", text="y"))}, "in order, not B, A"),
        ({"recommendation": "C"}, "recommendation 'C' is none"),
        ({"recommendation": ""}, "recommendation '' is none"),
        ({"recommendation": "AB"}, "recommendation 'AB' is none"),
        ({"title": "two\nlines"}, "title is not one plain line"),
        ({"title": " "}, "title is empty"),
        ({"options": lettered(["x", "two\nlines"])}, "option B is not one plain line"),
        ({"options": lettered(["x", " y"])}, "option B is not one plain line"),
        ({"options": lettered(["x", "\x1b[2J"])}, "option B is not one plain line"),
        ({"options": lettered(["Same", "same"])}, "two options say the same"),
        ({"why": ""}, "a line of the reason"),
        ({"warning": "a\nb"}, "a line of the reason, the warning"),
        ({"details": ("",)}, "or the details is empty"),
    ],
)
def test_a_question_that_breaks_a_rule_cannot_be_built(change: dict[str, object], words: str) -> None:
    """Acceptance 61: the rules are kept by every question that exists."""
    values: dict[str, object] = {
        "kind": QuestionKind.DECISION,
        "title": "t",
        "options": lettered(["x", "y"]),
        "recommendation": "A",
        "why": "because",
    }
    with pytest.raises(QuestionError, match=re.escape(words)):
        Question(**{**values, **change})  # type: ignore[arg-type]


def test_five_options_are_refused() -> None:
    """Acceptance 61: nothing is cut off to make it fit."""
    with pytest.raises(QuestionError, match="2 to 4 options, not 5"):
        decision("t", list("abcde"), recommendation="A", why="w")


@pytest.mark.parametrize(
    "text", ["b", "B", " B) ", "b.", "(B)", "B:", "B) Stay on current step", "b stay on CURRENT step"]
)
def test_an_answer_is_read_in_the_ways_people_type_it(text: str) -> None:
    """A letter, with what the form puts around it, or the whole line."""
    assert parse_answer(rollback(name="Plan", folders=["_docs/"]), text) == "B"


@pytest.mark.parametrize("text", ["", " ", "C", "AB", "yes", "1", "B) something else", "A B", "ä"])
def test_nonsense_is_refused_and_the_letters_are_named(text: str) -> None:
    """Nothing is taken for an answer that is none; not even silence for the recommendation."""
    with pytest.raises(AnswerError) as caught:
        parse_answer(rollback(name="Plan", folders=["_docs/"]), text)
    assert caught.value.hint == "answer with A or B."
    assert "Re-run Plan?" in caught.value.message


@given(text=st.text(max_size=12), question=st.sampled_from(BUILT))
def test_an_answer_is_one_of_the_letters_or_refused(text: str, question: Question) -> None:
    """Whatever is typed, nothing else comes out."""
    try:
        letter = parse_answer(question, text)
    except AnswerError:
        return
    assert letter in {option.letter for option in question.options}
    assert letter.lower() in text.lower()


def test_only_destructive_answers_are_confirmed() -> None:
    """Acceptance 63: to re-run over artifacts is confirmed, to stay is not, nor is anything else here."""
    question = rollback(name="Plan", folders=["_docs/02_document/"])
    assert must_confirm(question, "A")
    assert not must_confirm(question, "B")
    others = [one for one in BUILT if one.kind is not QuestionKind.ROLLBACK]
    assert not any(must_confirm(one, option.letter) for one in others for option in one.options)


@pytest.mark.parametrize("question", BUILT, ids=lambda question: question.title)
def test_the_journal_gives_back_the_same_question(question: Question) -> None:
    """What is asked again after a crash is what was asked."""
    assert from_json(to_json(question)) == question


@pytest.mark.parametrize(
    "data", [{}, {**to_json(BUILT[0]), "kind": "?"}, {**to_json(BUILT[0]), "options": [1]}]
)
def test_a_record_that_is_no_question_is_refused(data: dict[str, object]) -> None:
    """A damaged journal is reported, not guessed at."""
    with pytest.raises(QuestionError, match="not a recorded question"):
        from_json(data)


def test_a_recorded_question_must_obey_the_form_too() -> None:
    """Acceptance 61: also what comes out of the journal."""
    with pytest.raises(QuestionError, match="2 to 4 options"):
        from_json({**to_json(BUILT[0]), "options": []})
