"""A story survives the journal, and its digest changes with the work and with nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runner.core.events.story_json import digest, from_json, to_json
from runner.core.model import Story, StoryId

texts = st.text(max_size=20)
tuples = st.lists(texts, max_size=3).map(tuple)
stories = st.builds(
    Story,
    id=st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True).map(StoryId),
    title=texts,
    prompt=texts,
    priority=st.integers(-5, 5),
    estimate=st.none() | st.floats(0.1, 1e6),
    depends_on=st.lists(st.from_regex(r"[a-z]{1,3}", fullmatch=True).map(StoryId), max_size=3).map(tuple),
    owns=tuples,
    agent=st.none() | texts,
    command=st.none() | tuples,
    verify=tuples,
    mode=texts,
    source=texts,
)

STORY = Story(id=StoryId("a"), title="A", prompt="do a", source="stories/a.md")


@given(stories)
def test_a_story_survives_the_journal(story: Story) -> None:
    """Acceptance 68: writing, storing as JSON and reading gives the same story."""
    assert from_json(json.loads(json.dumps(to_json(story)))) == story


@given(stories)
def test_the_digest_survives_the_journal(story: Story) -> None:
    """The digest is the same before and after."""
    assert digest(from_json(json.loads(json.dumps(to_json(story))))) == digest(story)


def test_fields_of_a_newer_program_are_ignored() -> None:
    """A journal that knows more can be read."""
    assert from_json({**to_json(STORY), "colour": "red"}) == STORY


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "elsewhere.md"},
        {"priority": 9},
        {"mode": "deep"},
        {"estimate": 9.5},
        {"max_attempts": 2, "story_minutes": 30.0, "verify_minutes": 1.0},
        {"allow_no_change": True},
    ],
)
def test_the_digest_ignores_what_is_not_the_work(changes: dict[str, Any]) -> None:
    """Moving a story, its priority, its mode, its estimate or its limits do not make it other work."""
    assert digest(replace(STORY, **changes)) == digest(STORY)


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": "do b"},
        {"title": "B"},
        {"depends_on": ("b",)},
        {"owns": ("src/**",)},
        {"agent": "claude"},
        {"command": ("make",)},
        {"verify": ("make test",)},
        {"flow": "greenfield"},
    ],
)
def test_the_digest_changes_with_the_work(changes: dict[str, Any]) -> None:
    """Whatever changes what is to be done changes the digest."""
    assert digest(replace(STORY, **changes)) != digest(STORY)


def test_the_digest_is_the_same_in_every_process() -> None:
    """It is stored, so it must not depend on this process or this version's field order."""
    assert digest(STORY) == "d3e503ba0b5a8549d7044e278e36bf79f33a14f7861f1cc284c48535278d425e"
    reordered = dict(reversed(list(to_json(STORY).items())))
    assert digest(from_json(reordered)) == digest(STORY)
