"""Learnings about the selector, and the signals it gets: built from a run, read from files of any quality."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.core.limits.confidence import Accuracy
from runner.core.model import (
    Outcome,
    RunId,
    RunSnapshot,
    SessionKind,
    SessionRecord,
    Status,
    Step,
    StoryId,
    StorySnapshot,
)
from runner.records.learnings import learnings_file, learnings_of, load_accuracies, load_tail
from runner.records.signals import signals

SESSION = SessionRecord(
    id="r/a/1",
    kind=SessionKind.WORK,
    step=Step(number="1", name="Implement"),
    attempt=1,
    started_at=10.0,
    ended_at=20.0,
    outcome=Outcome.OK,
    log="x",
    mode="deep",
    selected=0.7,
)


def a_run(*sessions: SessionRecord) -> RunSnapshot:
    """Return a run of one story."""
    story = StorySnapshot(id=StoryId("a"), title="A", status=Status.RUNNING, sessions=sessions)
    return RunSnapshot(run_id=RunId("r"), started_at=0.0, stories={story.id: story})


@pytest.mark.parametrize(
    ("changes", "accurate"),
    [
        ({}, True),
        ({"outcome": Outcome.PARTIAL}, True),
        ({"summary": {"spiral": 1}}, False),
        ({"summary": {"failed": 2, "recovered": 1}}, False),
        ({"summary": {"failed": 2, "recovered": 2}}, True),
        ({"outcome": Outcome.FAILED}, False),
        ({"outcome": Outcome.STALLED}, False),
        ({"outcome": Outcome.STOPPED}, None),
        ({"outcome": Outcome.ASKS}, None),
    ],
)
def test_whether_a_selection_was_right(changes: dict[str, object], accurate: bool | None) -> None:  # noqa: FBT001  a table
    """By how the session ended; what the user did says nothing about it."""
    (learning,) = learnings_of(a_run(replace(SESSION, **changes)))
    assert (learning["accurate"], learning["chosen"], learning["confidence"]) == (accurate, "deep", 0.7)
    assert learning["created_at"] < learning["expires_at"]


@pytest.mark.parametrize(
    "changes", [{"selected": None}, {"mode": ""}, {"ended_at": None}, {"unserved": True}], ids=str
)
def test_what_teaches_nothing(changes: dict[str, object]) -> None:
    """No selector, no choice, no end, or a service that failed."""
    assert learnings_of(a_run(replace(SESSION, **changes))) == []


def test_only_learnings_that_can_be_used_are_read(tmp_path: Path) -> None:
    """Other types, other forms and torn lines are passed over; without a file there are none."""
    assert load_accuracies(tmp_path) == ()
    path = learnings_file(tmp_path)
    path.parent.mkdir(parents=True)
    kind = "mode-selector-accuracy"
    lines = [
        {"type": kind, "confidence": 0.7, "accurate": True},
        {"type": kind, "confidence": 1, "accurate": False},
        {"type": kind, "confidence": True, "accurate": False},
        {"type": kind, "confidence": "0.7", "accurate": True},
        {"type": kind, "confidence": 0.7, "accurate": None},
        {"type": "other", "confidence": 0.7, "accurate": True},
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '[1]\n{"torn')
    assert load_accuracies(tmp_path) == (
        Accuracy(confidence=0.7, right=True),
        Accuracy(confidence=1.0, right=False),
    )


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    """A line that is cut off at the front is no record."""
    path = tmp_path / "long.jsonl"
    path.write_text("".join(f'{{"number": {number}}}\n' for number in range(100)))
    assert [record["number"] for record in load_tail(path, most_bytes=40)] == [98, 99]


@pytest.mark.parametrize(
    "text", ["", "no front matter", "---\nrecommended-mode: deep\n", "---\n[: \n---\n", "---\n- 1\n---\n"]
)
def test_a_state_file_that_recommends_nothing_is_no_signal(tmp_path: Path, text: str) -> None:
    """Missing rules, broken YAML, other things than fields."""
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "STATE.md").write_text(text)
    found = signals(a_run(), tmp_path)
    assert (found["recommendation"], found["sessions"], found["learnings"]) == (None, [], [])
    assert [story["id"] for story in found["backlog"]] == ["a"]


def test_a_recommendation_is_plain_data(tmp_path: Path) -> None:
    """Dates of YAML become text, and a file without a recommendation leaves it to the next."""
    for folder, text in {
        ".claude": "status: idle",
        ".cursor": "rationale: 2026-04-24\ntop-priorities: [1]",
    }.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "STATE.md").write_text(f"---\n{text}\n---\n")
    assert signals(a_run(), tmp_path)["recommendation"] == {
        "file": ".cursor/STATE.md",
        "rationale": "2026-04-24",
        "top_priorities": [1],
    }
