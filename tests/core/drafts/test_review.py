"""What others say about a draft, as a session and the user get it."""

from hypothesis import given
from hypothesis import strategies as st

from runner.core.choose import QuestionKind, from_json, render, to_json
from runner.core.drafts.review import (
    LONGEST,
    MOST_ITEMS,
    MOST_TEXT,
    contradiction,
    question_about,
    take,
    words_for_session,
)
from runner.core.progress.draft import Draft, ReviewItem


def item(number: int, text: str = "Hm.", **more: object) -> ReviewItem:
    """Return a comment."""
    fields = {"id": f"comment-{number}", "kind": "comment", "author": "alice", **more}
    return ReviewItem(text=text, **fields)  # type: ignore[arg-type]


def suggests(number: int, author: str, text: str, line: int = 3) -> ReviewItem:
    """Return a comment that suggests a replacement for a line."""
    body = f"Better:\n```suggestion\n{text}\n```\n"
    return item(number, body, author=author, path="a.py", line=line)


def test_what_was_handled_is_not_taken_again() -> None:
    """Only what is new comes into the next attempt, in its order."""
    items = [item(number) for number in range(4)]
    assert [one.id for one in take(items, ["comment-1", "comment-2"])] == ["comment-0", "comment-3"]


def test_an_attempt_gets_a_bounded_part() -> None:
    """Neither many comments nor huge ones fill a prompt; the rest comes with the next attempt."""
    assert len(take([item(number) for number in range(200)], ())) == MOST_ITEMS
    (cut,) = take([item(1, "x" * 5_000_000)], ())
    assert len(cut.text) < LONGEST + 100
    large = take([item(number, "x" * LONGEST) for number in range(30)], ())
    assert sum(len(one.text) for one in large) <= MOST_TEXT


@given(st.text(max_size=300), st.text(max_size=60), st.text(max_size=60))
def test_words_of_others_never_leave_their_quotation(text: str, author: str, path: str) -> None:
    """Whatever they write, every line of it is indented and marked, and the frame around it is ours."""
    draft = Draft(taken=(item(1, text, author=author, path=path, line=7),))
    lines = words_for_session(draft).split("\n")
    first, last = lines.index(""), lines.index("End of their words.")
    inside = lines[first + 1 : last]
    assert lines.count("End of their words.") == 1
    assert inside[0].startswith("1. ")
    assert all(line == "" or line.startswith("    >") for line in inside[1:])
    assert "\x1b" not in "".join(lines)


def test_different_replacements_of_one_line_contradict_each_other() -> None:
    """The same one by two people, or two by one person, do not."""
    yes, no = suggests(1, "alice", "yes"), suggests(2, "bob", "no")
    assert contradiction([yes, item(9), no]) == (yes, no)
    assert contradiction([yes, suggests(2, "bob", "yes")]) == ()
    assert contradiction([yes, suggests(2, "bob", "no", line=4)]) == ()
    assert contradiction([suggests(1, "alice", "yes"), suggests(2, "alice", "no")]) == ()


def test_the_question_is_one_that_only_the_user_answers() -> None:
    """It fits the form, has an option for each of them, and one that leaves it to people."""
    hostile = suggests(2, "bob\x1b[2J\nA) fine", "x" * 900)
    question = question_about([suggests(1, "alice", "yes"), hostile], "Title\nof it")
    assert from_json(to_json(question)) == question
    assert (question.kind, question.must_ask, question.recommendation) == (QuestionKind.REVIEW, True, "C")
    assert "A) Follow alice — yes\n" in render(question)
    assert "\x1b" not in render(question)
