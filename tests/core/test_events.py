"""Events: what is written can be read again, newer fields are ignored, newer kinds refused."""

import json
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.events import events as ev
from runner.core.model import StoryId

KINDS = get_args(ev.Body)
WRITTEN_KINDS = (
    "AdmissionEnded",
    "AgentPaused",
    "AgentRefused",
    "AttemptFailed",
    "CheckpointPlanned",
    "Checkpointed",
    "ConversationSeen",
    "DecisionAnswered",
    "DecisionApplied",
    "DecisionAsked",
    "LoopEnded",
    "Noted",
    "OutputSeen",
    "PlaceFound",
    "Remembered",
    "RunEnded",
    "RunResumed",
    "RunStarted",
    "SelectionMade",
    "SessionEnded",
    "SessionStarted",
    "SpiralSeen",
    "StallSeen",
    "StepFinished",
    "StoryFinished",
    "StoryQueued",
    "StoryRequeued",
    "StoryStarted",
    "WindowChanged",
    "WorkspaceClosed",
    "WorkspaceOpened",
    "WorkspacePlanned",
)


@st.composite
def bodies(draw: st.DrawFn) -> ev.Body:
    """Draw an event of any kind, with every field filled by its type."""
    kind = draw(st.sampled_from(KINDS))
    values = {name: draw(_values(hint)) for name, hint in get_type_hints(kind).items()}
    body: ev.Body = kind(**values)
    return body


def _values(hint: Any) -> st.SearchStrategy[Any]:
    """Draw JSON values that fit a field's type."""
    texts = st.text(max_size=5)
    if hint == tuple[Mapping[str, Any], ...]:
        return st.lists(st.dictionaries(texts, texts | st.lists(texts, max_size=2), max_size=2)).map(tuple)
    if hint == tuple[str, ...]:
        return st.lists(texts, max_size=3).map(tuple)
    if hint == tuple[Any, ...] | None:
        return st.none() | st.lists(texts | st.dictionaries(texts, st.integers()), max_size=3).map(tuple)
    for mapping, values in (
        (Mapping[str, int], st.integers()),
        (Mapping[str, float], st.floats(allow_nan=False)),
        (Mapping[str, str], texts),
        (Mapping[str, Any], texts | st.integers() | st.none()),
        (Mapping[str, Mapping[str, Any]], st.dictionaries(texts, texts | st.none(), max_size=2)),
    ):
        if hint in {mapping, mapping | None}:
            return st.dictionaries(texts, values, max_size=2)
    # NaN is no JSON, and equals nothing, not even itself.
    return st.from_type(hint).filter(lambda value: value == value)  # noqa: PLR0124  NaN


@given(bodies())
def test_what_is_written_can_be_read_again(body: ev.Body) -> None:
    """Acceptance 68: encode, store as JSON, decode gives the same event."""
    kind, data = ev.encode(body)
    assert ev.decode(kind, json.loads(json.dumps(data))) == body


@given(bodies())
def test_fields_of_a_newer_program_are_ignored(body: ev.Body) -> None:
    """A field that we do not know changes nothing."""
    kind, data = ev.encode(body)
    assert ev.decode(kind, {**data, "invented_later": 1}) == body


def test_a_kind_of_a_newer_program_is_refused() -> None:
    """An event that we do not know is never skipped in silence."""
    with pytest.raises(ev.UnknownEventError, match="StoryCelebrated"):
        ev.decode("StoryCelebrated", {})


def test_every_body_has_a_kind_of_its_own() -> None:
    """No body is missing from the table, and no kind has two classes."""
    assert set(ev._KINDS.values()) == set(KINDS)
    assert len(ev._KINDS) == len(KINDS)


def test_kinds_in_old_journals_keep_their_meaning() -> None:
    """These words stand in journals on users' disks: a kind may be added, none may be renamed or removed."""
    assert set(ev._KINDS) >= set(WRITTEN_KINDS)


def test_events_name_their_story() -> None:
    """A story's event names it; a run's event names none."""
    assert ev.story_of(ev.StoryStarted(story_id=StoryId("a"))) == "a"
    assert ev.story_of(ev.Noted(message="x")) is None
    assert ev.story_of(ev.RunEnded(exit_code=0)) is None
