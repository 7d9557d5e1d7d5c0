"""The text of a draft."""

from pathlib import Path

import pytest

from isolation.git.diffstat import ChangedPath
from runner.core.errors import SettingsError
from runner.core.model import IMPLEMENT, SessionKind, SessionRecord, Status, StoryId, StorySnapshot
from runner.run.drafts.body import BEGIN, DEFAULT, END, DraftFacts, joined, load_template, render, title_of

HOSTILE = "@everybody closes #1 <img src=x> [a](javascript:b) `$(id)` | \x1b[2J **bold**"


def story(**more: object) -> StorySnapshot:
    """Return a story that is done."""
    session = SessionRecord(
        id="s", kind=SessionKind.WORK, step=IMPLEMENT, attempt=1, started_at=0.0, log="", notes=HOSTILE
    )
    fields = {"id": StoryId("a"), "title": HOSTILE, "status": Status.DONE, "sessions": (session,), **more}
    return StorySnapshot(**fields)  # type: ignore[arg-type]


def facts(**more: object) -> DraftFacts:
    """Return what the draft of this story is made of."""
    changed = ChangedPath(path=HOSTILE, added=1, removed=None)
    fields = {"run_id": "run-1", "story": story(), "commits": [HOSTILE], "changes": [changed], **more}
    return DraftFacts(**fields)  # type: ignore[arg-type]


def test_words_of_others_neither_mention_nor_format() -> None:
    """Nothing in titles, notes, subjects and paths is a mention, a reference, markup or an escape."""
    text = render(facts(verify=[f"echo {HOSTILE}"]), DEFAULT)
    assert "@everybody" not in text
    assert "\x1b" not in text
    before_code = text.partition("### Verify")[0]
    for part in (" <img", " [a](", " #1", " **bold**", " `$(id)`"):
        assert part not in before_code, part


def test_a_mark_in_somebodys_words_does_not_end_our_part() -> None:
    """Only the marks of the program are marks."""
    text = render(facts(story=story(title=END, reason=END), commits=[END, BEGIN]), DEFAULT)
    assert (text.count(BEGIN), text.count(END)) == (1, 1)


def test_our_part_is_replaced_and_the_rest_stays() -> None:
    """What people wrote before and behind it is theirs, also if they had written all of it."""
    first, second = f"{BEGIN}\none\n{END}", f"{BEGIN}\ntwo\n{END}"
    assert joined("", first) == first
    assert joined(f"before\r\n\r\n{first}\n\nbehind", second) == f"before\n\n{second}\n\nbehind"
    assert joined("theirs", first) == f"theirs\n\n{first}"
    assert joined(f"cut {BEGIN} off", first) == f"cut {BEGIN} off\n\n{first}"


def test_a_part_without_content_leaves_no_gap() -> None:
    """Its line is dropped, with the blank ones behind it."""
    text = render(facts(story=story(sessions=()), commits=(), changes=()), DEFAULT)
    assert "\n\n\n" not in text
    assert "What was done" not in text
    assert "Autopilot-Run: run-1\nAutopilot-Story: a\n" in text


def test_a_text_has_a_limit() -> None:
    """GitHub refuses more than 65,536 characters; the trailers are there in any case."""
    changes = [ChangedPath(path="x" * 4000, added=1, removed=1)] * 40
    text = render(facts(changes=changes), DEFAULT)
    assert len(text) < 65_536
    assert text.endswith(f"Autopilot-Story: a\n{END}")
    assert len(title_of(story(title="x" * 1000))) <= 200


@pytest.mark.parametrize(
    ("text", "words"),
    [("$nope", "unknown name $nope"), ("$ x", "a `$` without a name"), (None, "cannot read")],
)
def test_an_unusable_template_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    """With what is wrong, and where."""
    if text is not None:
        (tmp_path / "draft.md").write_text(text)
    with pytest.raises(SettingsError, match="draft-template: ") as caught:
        load_template(tmp_path, "draft.md")
    assert words in caught.value.message
