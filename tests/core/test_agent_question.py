"""What agents write as a question, made into one that may be asked, without a guess."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.agent_question import MAX_CELLS, from_result
from runner.core.choose import LETTERS, Option, from_json, render, to_json


def test_an_agents_question_is_taken_as_it_is() -> None:
    """Strings and tables both serve; context and long descriptions go into the details."""
    reading = from_result(
        {
            "question": "Which store?",
            "context": "The data grows\nby 1 GB a day.",
            "options": ["A) Postgres", {"label": "SQLite", "description": "x" * 120, "destructive": True}],
            "recommendation": "a",
            "reason": "it is there",
        }
    )
    assert reading.notes == ()
    assert reading.question.options[0] == Option(letter="A", text="Postgres")
    assert reading.question.options[1] == Option(letter="B", text="SQLite", destructive=True)
    assert reading.question.details == ("The data grows by 1 GB a day.", f"B) SQLite — {'x' * 120}")
    assert (reading.question.recommendation, reading.question.why) == ("A", "it is there")


def test_padding_is_left_out_and_the_recommendation_follows_its_option() -> None:
    """Empty and repeated options go; the letter meant the agent's own list."""
    reading = from_result(
        {"question": "q", "options": ["keep", "", "KEEP", "drop"], "recommendation": "D", "reason": "r"}
    )
    assert [option.text for option in reading.question.options] == ["keep", "drop"]
    assert reading.question.recommendation == "B"
    assert reading.notes == ("left out 2 empty or repeated options",)


@pytest.mark.parametrize(
    ("options", "recommendation"),
    [
        (["keep", "drop"], "B"),
        (["keep", "drop"], "Option B"),
        (["keep", "drop"], "Drop"),
        (["keep", "drop"], "B) drop"),
        (["keep", "drop (recommended)"], None),
        ([{"label": "keep"}, {"text": "drop", "recommended": True}], ""),
    ],
)
def test_a_recommendation_may_be_a_letter_a_text_or_a_mark(
    options: list[object], recommendation: object
) -> None:
    """All of these say which one is meant, so nothing is guessed."""
    question = from_result({"question": "q", "options": options, "recommendation": recommendation}).question
    assert question.recommendation == "B"
    assert question.options[1].text == "drop"
    assert question.why == "the agent gave no reason"


@pytest.mark.parametrize(
    ("decided", "words"),
    [
        ({}, "0 usable options"),
        ({"options": "A or B", "recommendation": "A"}, "0 usable options"),
        ({"options": ["one"], "recommendation": "A"}, "1 usable options"),
        ({"options": list("abcde"), "recommendation": "A"}, "5 usable options"),
    ],
)
def test_what_would_have_to_be_guessed_becomes_a_plain_question(
    decided: dict[str, object], words: str
) -> None:
    """Continue or abort, with the agent's words; to abort is recommended, since its plan is unknown."""
    reading = from_result({"question": "What now?", **decided})
    assert words in reading.notes[0]
    assert reading.question.title == "What now?"
    assert [option.text.split(" ")[0] for option in reading.question.options] == ["Continue", "Abort"]
    assert reading.question.recommendation == "B"
    offered = decided.get("options", [])
    if isinstance(offered, list):
        assert len(reading.question.details) == len(offered)


@pytest.mark.parametrize(
    "decided",
    [
        {"options": ["a", "b"]},
        {"options": ["a", "b"], "recommendation": "C"},
        {"options": ["a", "b"], "recommendation": "either"},
        {"options": ["a", "", "b"], "recommendation": "B"},
        {"options": ["a (recommended)", "b (recommended)"]},
        {"options": ["a", "b"], "recommendation": 1},
    ],
)
def test_options_without_a_recommendation_are_kept_for_the_user(decided: dict[str, object]) -> None:
    """The options are the agent's, and the unattended default never picks one of them."""
    reading = from_result({"question": "What now?", **decided})
    assert [option.text for option in reading.question.options] == ["a", "b"]
    assert reading.question.must_ask
    assert "recommends none" in reading.notes[-1]


def test_a_plain_question_quotes_descriptions_and_counts_what_it_leaves_out() -> None:
    """A flood of options does not flood the terminal."""
    reading = from_result({"options": [{"label": f"o{n}", "description": "d"} for n in range(20)]})
    assert reading.question.title == "The agent asks for help"
    assert reading.question.details[0] == "It offered: o0 — d"
    assert reading.question.details[-1] == "It offered 8 more."


def test_long_titles_and_options_are_cut_and_told_in_full() -> None:
    """One line each, and nothing is lost; options that look the same when cut keep their letters."""
    long = "x" * 150
    question = from_result(
        {"question": long, "options": [long + "1", long + "2"], "recommendation": "A"}
    ).question
    assert len(question.title) == MAX_CELLS
    assert question.details == (long, f"A) {long}1", f"B) {long}2")
    assert question.options[1].text.endswith("… (B)")


_VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=30)
_OPTIONS = _VALUES | st.lists(
    _VALUES | st.dictionaries(st.sampled_from(["label", "text", "description", "recommended"]), _VALUES),
    max_size=6,
)


@given(
    decided=st.fixed_dictionaries(
        {},
        optional={
            "question": _VALUES,
            "context": _VALUES,
            "options": _OPTIONS,
            "recommendation": _VALUES | st.sampled_from(LETTERS),
            "reason": _VALUES,
        },
    )
)
def test_whatever_an_agent_writes_there_is_a_question_to_ask(decided: dict[str, object]) -> None:
    """Acceptance 61: any question obeys the form, and can be recorded."""
    question = from_result(decided).question
    assert from_json(to_json(question)) == question
    assert all(letter in render(question) for letter in "AB")
