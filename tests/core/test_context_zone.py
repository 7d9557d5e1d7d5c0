"""The zones of a context: which counts lead where, and how they are counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.limits.context_zone import (
    ContextCount,
    ContextUse,
    Judgment,
    ToolResult,
    Zone,
    judge,
    reached_context_limit,
)
from runner.core.model import Outcome, SessionKind, SessionRecord, Step
from runner.core.work_settings import ContextSettings

LIMITS = ContextSettings()
KB = 1000


@pytest.mark.parametrize(
    ("use", "zone", "words"),
    [
        (ContextUse(tools=19, artifacts=4, large_files=2, truncated=2, failures=5), Zone.SAFE, ""),
        (ContextUse(tools=20), Zone.CAUTION, "20 tool calls"),
        (ContextUse(artifacts=5, large_files=3), Zone.CAUTION, "5 artifacts read, 3 large files read"),
        (ContextUse(tools=200), Zone.DANGER, "200 tool calls"),
        (ContextUse(tools=30, truncated=3), Zone.DANGER, "3 truncated results"),
        (ContextUse(failures=6), Zone.DANGER, "6 failed tool calls in a row"),
    ],
)
def test_counts_lead_to_zones(use: ContextUse, zone: Zone, words: str) -> None:
    """The defaults of the protocol; the worst sign decides, and is named."""
    judged = judge(use, LIMITS)
    assert (judged.zone, judged.words) == (zone, words)


def test_a_limit_of_zero_leaves_its_sign_out() -> None:
    """Zero would otherwise be reached before the first tool call."""
    nothing = ContextSettings(
        caution_tools=0,
        caution_artifacts=0,
        caution_large_files=0,
        danger_truncated=0,
        danger_failures=0,
        danger_tools=0,
    )
    many = ContextUse(tools=999, artifacts=99, large_files=99, truncated=99, failures=99)
    assert judge(many, nothing) == Judgment(zone=Zone.SAFE)


def test_artifacts_are_distinct_files_under_docs() -> None:
    """One file counts once, however it is named; code and the state file do not count.

    A setting may name another folder.
    """
    counted = ContextCount()
    paths = ("/w/_docs/plan.md", "_docs/plan.md", "_docs/a/_autodev_state.md", "src/a.py", "my_docs/x.md")
    for number, path in enumerate((*paths, "_docs/stories/a/other.md")):
        counted.add(tools=1, reads=[(str(number), path)])
    assert counted.use(KB).artifacts == 2
    assert counted.use(KB, docs=("_docs", "my_docs")).artifacts == 3


def test_a_file_is_large_by_what_reading_it_returned() -> None:
    """Also in a later look; a command over several files, or one that failed, says nothing about them."""
    counted = ContextCount()
    counted.add(tools=1, reads=[("1", "a.md")], results=[ToolResult(id="1", size=KB - 1)])
    assert counted.use(KB).large_files == 0
    counted.add(tools=1, reads=[("2", "a.md")], results=[ToolResult(id="2", size=KB)])
    counted.add(tools=1, reads=[("3", "b"), ("3", "c")], results=[ToolResult(id="3", size=9 * KB)])
    counted.add(tools=1, reads=[("4", "d")], results=[ToolResult(id="4", size=9 * KB, failed=True)])
    assert counted.use(KB).large_files == 1


def test_failures_count_in_a_row_and_truncated_results_add_up() -> None:
    """A tool call that succeeds shows that tools work."""
    counted = ContextCount()
    fails, works = ToolResult(id="", failed=True), ToolResult(id="", truncated=True)
    for result in (fails, fails, works, fails, works, fails):
        counted.add(tools=1, results=[result])
    used = counted.use(KB, tools_before=10)
    assert (used.failures, used.truncated, used.tools) == (1, 2, 16)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans())))
def test_more_use_is_never_a_better_zone(steps: list[tuple[int, bool, bool]]) -> None:
    """Except for failures, which a success forgives; the session keeps the worst zone that it has reached."""
    limits = ContextSettings(danger_failures=0, caution_tools=2, danger_tools=5, danger_truncated=2)
    counted, before = ContextCount(), Zone.SAFE
    for tools, truncated, failed in steps:
        result = ToolResult(id="x", truncated=truncated, failed=failed)
        counted.add(tools=tools, results=[result])
        zone = judge(counted.use(KB), limits).zone
        assert list(Zone).index(zone) >= list(Zone).index(before)
        before = zone


def test_only_a_session_that_left_work_reached_its_context_limit() -> None:
    """One that did its step, or failed, ended for that reason."""

    def session(outcome: Outcome, zone: str) -> SessionRecord:
        step = Step(number="1", name="Plan")
        return SessionRecord(
            id="s",
            kind=SessionKind.WORK,
            step=step,
            attempt=1,
            started_at=0,
            log="",
            outcome=outcome,
            zone=zone,
        )

    assert reached_context_limit(session(Outcome.PARTIAL, "danger"))
    assert reached_context_limit(session(Outcome.PARTIAL, "caution"))
    assert not reached_context_limit(session(Outcome.PARTIAL, "safe"))
    assert not reached_context_limit(session(Outcome.PARTIAL, ""))
    assert not reached_context_limit(session(Outcome.OK, "danger"))
