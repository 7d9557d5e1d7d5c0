"""Past runs from their records: newest first, honest shares, and no trust in what others wrote."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runner.core.past_runs import of_story, past_runs, summary, summary_of_story
from runner.report.terminal.history import runs_document, runs_text, story_text
from runner.report.terminal.table import PLAIN


def run_record(name: str, hour: int, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "run",
        "autopilot_run_id": name,
        "started_at": f"2026-01-02T{hour:02}:00:00.000Z",
        "counts": {"done": 1},
        **fields,
    }


def story_record(run: str, name: str, verdict: str = "done", **fields: Any) -> dict[str, Any]:
    return {
        "kind": "story",
        "autopilot_run_id": f"{run}/{name}",
        "parent_run_id": run,
        "story_id": name,
        "verdict": verdict,
        "started_at": "2026-01-02T12:00:00.000Z",
        **fields,
    }


def test_the_newest_run_comes_first() -> None:
    """The lines' order says nothing: a run that was resumed keeps its place in the file."""
    runs = past_runs([run_record("b", 12), run_record("c", 13), run_record("a", 11)])
    assert [run.id for run in runs] == ["c", "b", "a"]


def test_success_is_the_share_of_the_started_that_are_done() -> None:
    """Stories that were skipped, or done by an earlier run, say nothing about this one."""
    records = [
        run_record("r", 12),
        story_record("r", "a"),
        story_record("r", "b", "failed"),
        story_record("r", "c", "parked"),
        story_record("r", "d", "skipped", started_at=None),
        story_record("r", "e", "done", started_at=None),
    ]
    (run,) = past_runs(records)
    assert run.success_rate == 0.3333
    total = summary([run])
    assert (total.started, total.done, total.success_rate) == (3, 1, 0.3333)
    assert summary([]).success_rate is None


def test_a_switch_that_ended_the_run_counts_once() -> None:
    """Of one that ended single stories each counts; a limit that the user set is no kill."""
    records = [
        run_record("r", 12, kill_switch="user-abort"),
        *(story_record("r", name, "stopped", kill_switch="user-abort") for name in "abc"),
        *(story_record("r", name, "stopped", kill_switch="stall-timeout") for name in "de"),
        story_record("r", "f", "stopped", kill_switch="max-sessions-reached"),
        run_record("s", 13),
        story_record("s", "a", "stopped", kill_switch="stall-timeout"),
    ]
    runs = past_runs(records)
    assert [dict(run.kills) for run in runs] == [{"stall-timeout": 1}, {"user-abort": 1, "stall-timeout": 2}]
    assert summary(runs).kills == {"stall-timeout": 3, "user-abort": 1}
    assert summary_of_story(of_story(runs, "a")).kills == {"stall-timeout": 1, "user-abort": 1}
    assert summary_of_story(of_story(runs, "f")).kills == {}


def test_what_is_known_adds_up() -> None:
    """The median of the stories' times, and the runs' tokens and costs; unknown is not zero."""
    records = [
        run_record("r", 12, total_tokens_used=100, total_cost_usd=0.5),
        run_record("s", 13, total_tokens_used=None, total_cost_usd=None),
        *(story_record("r", name, duration_seconds=time) for name, time in (("a", 1), ("b", 30), ("c", 2))),
    ]
    total = summary(past_runs(records))
    assert (total.runs, total.tokens, total.cost_usd, total.median_seconds) == (2, 100, 0.5, 2)
    unknown = summary(past_runs(records)[:1])
    assert (unknown.tokens, unknown.cost_usd, unknown.median_seconds) == (None, None, None)


def test_numbers_that_are_none_count_as_unknown() -> None:
    """What JSON readers let pass is no number to reckon with."""
    (run,) = past_runs([run_record("r", 12, total_tokens_used=math.nan, total_cost_usd=True)])
    assert (run.tokens, run.cost_usd) == (None, None)


names = st.sampled_from(
    [
        *("kind", "autopilot_run_id", "parent_run_id", "story_id", "started_at", "counts", "sessions"),
        *(
            "total_tokens_used",
            "total_cost_usd",
            "duration_seconds",
            "kill_switch",
            "completed_at",
            "verdict",
        ),
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
beginnings = st.sampled_from(
    [{}, run_record("theirs", 1), story_record("theirs", "x"), story_record("ours", "x")]
)


@given(
    st.lists(st.tuples(beginnings, st.dictionaries(names, values | st.just(10**400), max_size=4)), max_size=6)
)
def test_no_record_of_another_writer_is_an_error(
    foreign: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    """Whatever the file contains, our records are found and the rest is ignored or converted."""
    records = [{**beginning, **fields} for beginning, fields in foreign]
    runs = past_runs([*records, run_record("ours", 12), story_record("ours", "a")])
    (ours,) = [run for run in runs if run.id == "ours"]
    assert "a" in [story.id for story in ours.stories]
    total = summary(runs)
    assert runs_text(runs, total, left_out=0, look=PLAIN)
    assert json.dumps(runs_document(runs, total))
    for story in ours.stories:
        parts = of_story(runs, story.id)
        assert story_text(parts, summary_of_story(parts), left_out=0, look=PLAIN)
