"""Joining the state files of two branches: always a result, never a lost item."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from runner.core.work_items.tracker import Tracker
from runner.flows.state import merging
from runner.flows.state.combine import further, join_items, join_writers
from runner.flows.state.errors import StateError
from runner.flows.state.merging import KEPT, keep_whole, merge_states
from runner.flows.state.model import (
    AWAITING,
    CompletedRow,
    Dialect,
    LastSession,
    Phase,
    StateFile,
    StepStatus,
)
from runner.flows.state.reading import parse_state
from runner.flows.state.writing import TEMPLATES, new_state, render
from tests.flows.state.samples import states, text_of

BASE = TEMPLATES[Dialect.AUTODEV]


def autodev(**values: object) -> str:
    """Return an autodev file with some values changed."""
    return render(replace(parse_state(BASE), **values))


def test_the_furthest_step_wins() -> None:
    """Of two that moved, the one further along the flow counts, in both directions."""
    near = autodev(step="3", name="Plan", status=StepStatus.COMPLETED)
    far = autodev(step="10", name="Deploy", sub_step=Phase(phase=2, name="x"), retry_count=1)
    for ours, theirs in ((near, far), (far, near)):
        assert parse_state(merge_states(BASE, ours, theirs)) == parse_state(far)
    done = autodev(step="done", name="Done", status=StepStatus.COMPLETED)
    assert parse_state(merge_states("", far, done)).done


@pytest.mark.parametrize(
    ("near", "far"), [("2", "2a"), ("2e", "2ea"), ("2ea", "2f"), ("2hc", "2i"), ("2i", "3"), ("5c", "6")]
)
def test_lettered_steps_stand_in_their_order(near: str, far: str) -> None:
    """The rich dialect's letters are ordered as a project meets them."""
    one, two = (replace(new_state(Dialect.RICH), step=step, name="Plan") for step in (near, far))
    assert parse_state(merge_states("", render(two), render(one))).step == far


def test_a_later_cycle_is_further_than_a_later_step() -> None:
    """The second round's beginning comes after the first round's end."""
    first = autodev(flow="existing-code", step="done", name="Done")
    second = autodev(flow="existing-code", step="2", name="Plan", cycle=2)
    assert parse_state(merge_states(BASE, first, second)).cycle == 2


def test_only_one_side_moved() -> None:
    """A rollback on one side is no conflict: the side that moved counts, even backwards."""
    base = autodev(step="5", name="Decompose")
    back = autodev(step="3", name="Plan")
    noted = base + "\n## Notes\nx\n"
    for ours, theirs in ((noted, back), (back, noted)):
        merged = merge_states(base, ours, theirs)
        assert parse_state(merged).step == "3"
        assert merged.count("## Notes\nx") == 1


def test_equal_sides_and_untouched_sides_are_taken_as_they_are() -> None:
    """Nothing is rewritten where nothing must be joined."""
    moved = autodev(step="5")
    assert merge_states(BASE, moved, moved) == moved
    assert merge_states(BASE, moved, BASE) == moved
    assert merge_states(BASE, BASE, moved) == moved


def test_failures_are_not_hidden_by_a_sibling_at_the_same_step() -> None:
    """At one step failed counts before in progress; then the later phase and the higher counter."""
    failed = autodev(status=StepStatus.FAILED, retry_count=3)
    running = autodev(status=StepStatus.IN_PROGRESS, sub_step=Phase(phase=5, name="x"))
    later = autodev(status=StepStatus.IN_PROGRESS, sub_step=Phase(phase=6, name="y"))
    assert parse_state(merge_states(BASE, running, failed)).status is StepStatus.FAILED
    assert parse_state(merge_states(BASE, running, later)).sub_step == Phase(phase=6, name="y")


def test_lists_are_joined_and_removals_kept() -> None:
    """Both sides' decisions, blockers, rows and trackers; what one side cleared stays cleared."""
    row = CompletedRow(step="0", name="Problem", completed="x", outcome="y")
    base = replace(new_state(Dialect.RICH), blockers=("old",), decisions=("first",))
    base = parse_state(render(base))
    ours = replace(base, blockers=(), decisions=("first", "ours"), tracker=Tracker.ADO)
    theirs = replace(base, blockers=("old", "new"), decisions=("first", "theirs"), completed=(row,))
    theirs = replace(theirs, last_session=LastSession(date="d"))
    merged = parse_state(merge_states(base.text, render(ours), render(theirs)))
    assert merged.blockers == ("new",)
    assert merged.decisions == ("first", "ours", "theirs")
    assert (merged.completed, merged.tracker, merged.last_session) == (
        (row,),
        Tracker.ADO,
        LastSession(date="d"),
    )


def test_skipped_steps_of_both_sides_stay_and_a_rollback_ends_one() -> None:
    """The section belongs to the dialect: both sides' bullets, without what one side removed."""
    base = autodev(skipped=("1 — Problem", "2 — Research"))
    ours = autodev(skipped=("1 — Problem", "2 — Research", "3 — Plan (2026-11-17)"), step="4")
    theirs = autodev(skipped=("2 — Research", "4 — UI Design"), step="5")
    merged = merge_states(base, ours, theirs)
    assert parse_state(merged).skipped == ("2 — Research", "3 — Plan (2026-11-17)", "4 — UI Design")
    assert merged.count("## Skipped Steps") == 1


def test_a_section_of_another_dialect_is_foreign() -> None:
    """Pointer and autodev have no Blockers: what both sides wrote below such a heading is kept."""
    base = BASE + "\n## Blockers\n- a\n"
    ours = base.replace("step: 1", "step: 2")
    theirs = base.replace("step: 1", "step: 3") + "- b\n"
    assert "- a\n- b\n" in merge_states(base, ours, theirs)


def test_foreign_sections_of_both_sides_stay() -> None:
    """Ours as it is; theirs added, or joined line by line where both wrote the same section."""
    base = BASE + "\n## Shared\na\n\n## Ours only changed\nx\n\n## Theirs changed\n1\n\n## Dropped\nold\n"
    ours = (
        base.replace("\na\n", "\na\nours\n")
        .replace("\nx\n", "\nxx\n")
        .replace("\n## Dropped\nold\n", "")
        .replace("step: 1", "step: 2")
    )
    theirs = (
        base.replace("\na\n", "\na\ntheirs\n").replace("\n1\n", "\n2\n").replace("step: 1", "step: 3")
        + "\n## New\nn\n"
    )
    theirs += "\n## New\nagain"
    merged = merge_states(base, ours, theirs)
    assert parse_state(merged).step == "3"
    assert "## Shared\na\nours\ntheirs\n\n## Ours only changed\nxx\n\n## Theirs changed\n2\n" in merged
    assert merged.endswith("\n\n## New\nn\n\n## New\nagain\n")
    assert "Dropped" not in merged
    assert merge_states(base, merged, theirs) == merged
    same = BASE + "\n## Shared\nb\n"
    assert merge_states(BASE, same.replace("step: 1", "step: 2"), same.replace("b\n", "b")) == same.replace(
        "step: 1", "step: 2"
    )


def test_half_a_fence_does_not_swallow_the_rest() -> None:
    """Where joining sections would change what is read, their whole text is kept instead."""
    ours = render(replace(new_state(Dialect.RICH), blockers=("b",))).replace(
        "## Completed", "## Notes\nx\n\n## Completed"
    )
    theirs = TEMPLATES[Dialect.RICH].replace("## Completed", "## Notes\n```\ny\n\n## Completed")
    merged = merge_states("", ours, theirs)
    assert parse_state(merged) == parse_state(ours)
    assert f"## {KEPT}" in merged
    assert theirs in merged


def test_what_cannot_be_joined_is_kept_word_for_word() -> None:
    """An unreadable side, another dialect or another flow never stops a merge."""
    broken, rich = BASE.replace("not_started", "?"), TEMPLATES[Dialect.RICH]
    moved = autodev(step="4")
    for ours, theirs, winner, kept in (
        (moved, broken, moved, broken),
        (broken, moved, moved, broken),
        (moved, rich, moved, rich),
        (rich, moved, rich, moved),
    ):
        merged = merge_states(BASE, ours, theirs)
        assert parse_state(merged) == parse_state(winner)
        assert kept in merged
        assert merge_states(BASE, merged, theirs).count(f"## {KEPT}") <= 2
    both = merge_states(BASE, broken, broken + "x")
    assert both.startswith(broken)
    assert broken + "x\n```" in both
    assert merge_states(rich, moved, autodev(step="5")) == autodev(step="5")
    other = autodev(flow="meta-repo", step="6")
    assert parse_state(merge_states(BASE, moved, other)) == parse_state(moved)


def test_a_result_that_cannot_be_written_is_kept_word_for_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the writer refuses, the merge goes on."""

    def refuse(*_: object, **__: object) -> str:
        raise StateError("no")

    ours, theirs = autodev(step="4"), autodev(step="5")
    monkeypatch.setattr(merging, "render", refuse)
    assert merge_states(BASE, ours, theirs) == keep_whole(ours, KEPT, theirs)


def test_keeping_whole_outgrows_fences_and_happens_once() -> None:
    """The fence is longer than any inside; the same text is not kept twice."""
    text = keep_whole("a", "T", "```\nx\n```")
    assert text == "a\n\n## T\n\n````\n```\nx\n```\n````\n"
    assert keep_whole(text, "T", "```\nx\n```") == text
    assert keep_whole("a\n", "T", "") == "a\n\n## T\n\n```\n```\n"


@given(states(dialect=Dialect.RICH), states(dialect=Dialect.RICH), states(dialect=Dialect.RICH))
@settings(max_examples=150, deadline=None)
def test_any_two_states_merge_without_loss(base: StateFile, ours: StateFile, theirs: StateFile) -> None:
    """The result is readable, holds every new item of both sides, and merging again changes nothing."""
    before, mine, others = render(base), render(ours), render(theirs)
    merged = merge_states(before, mine, others)
    state = parse_state(merged)
    for side in (ours, theirs):
        assert set(side.decisions) - set(base.decisions) <= set(state.decisions)
        assert set(side.completed) - set(base.completed) <= set(state.completed)
        assert set(side.retry_log) - set(base.retry_log) <= set(state.retry_log)
        assert set(side.blockers) - set(base.blockers) <= set(state.blockers)
    assert merge_states(before, merged, merged) == merged


@given(
    st.text(max_size=80),
    st.text(max_size=80),
    st.sampled_from([BASE, text_of("rich-plan")]),
    st.integers(0, 2),
)
@settings(max_examples=300, deadline=None)
def test_any_texts_at_all_merge(one: str, two: str, good: str, place: int) -> None:
    """Never a conflict, never an exception, and both sides' text can be found again."""
    texts = [one, two]
    texts.insert(place, good)
    base, ours, theirs = texts
    merged = merge_states(base, ours, theirs)
    if len(set(texts)) == 3:
        assert ours in merged
        assert theirs in merged


def test_items_keep_their_order() -> None:
    """Ours first, then what only they have."""
    assert join_items((1, 2), (2, 3, 1), (1, 2, 4)) == (2, 3, 1, 4)
    assert join_items((), (1,), (1, 2)) == (1, 2)
    assert join_items((1, 2), (1, 2, 3), (2,)) == (2, 3)


def test_runner_and_sub_skill_each_keep_their_fields() -> None:
    """The runner's place, the sub-skill's sub-step; a step that was left takes its sub-step with it."""
    seen = parse_state(text_of("autodev-implement"))
    agent = replace(seen, sub_step=Phase(phase=8, name="report"), status=StepStatus.COMPLETED)
    runner = replace(seen, retry_count=2)
    assert join_writers(seen, runner, agent) == replace(runner, sub_step=agent.sub_step)
    moved = replace(seen, step="11", sub_step=AWAITING)
    assert join_writers(seen, moved, agent) == moved
    reset = replace(seen, sub_step=AWAITING)
    assert join_writers(seen, reset, seen) == reset
    assert join_writers(seen, reset, agent).sub_step == agent.sub_step
    assert join_writers(None, runner, agent).sub_step == agent.sub_step
    assert join_writers(seen, replace(moved, sub_step=None), agent).sub_step == agent.sub_step


def test_the_side_without_a_base_is_judged_by_distance() -> None:
    """Without a common ancestor the further one counts."""
    near, far = (parse_state(autodev(step=step)) for step in ("2", "4"))
    assert further(None, near, far) is far
    assert further(None, far, near) is far
