"""Kill-switches before and after a session: each alone, all orders, and the two asymmetries."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runner.core.limits.kill_switches import (
    After,
    AfterFacts,
    LoopFacts,
    Switch,
    after_session,
    before_session,
    parks,
)
from runner.core.model import Tier

HINTS = {str(switch): switch.hint for switch in Switch}

CALM = LoopFacts(
    aborted="",
    loop_sessions=1,
    step_sessions=1,
    max_sessions=5,
    overdue=False,
    max_hours=4,
    tokens_used=10,
    token_budget=100,
    cost_used=0.5,
    cost_budget=2.0,
    tier=Tier.GREEN,
    peers=0,
    confidence=1.0,
    confidence_threshold=0.85,
)

SWITCHES: dict[str, tuple[dict[str, Any], str]] = {
    "user-abort": ({"aborted": "stopped by you (Ctrl-C)"}, "stopped by you (Ctrl-C)"),
    "cohort-aborted": ({"cohort": "ended with its cohort"}, "ended with its cohort"),
    "max-sessions-reached": ({"loop_sessions": 5}, "5 of 5 sessions used"),
    "max-hours-exceeded": ({"overdue": True}, "4 h have passed"),
    "story-time-exceeded": (
        {"story_minutes_used": 30.04, "story_minutes": 30.0},
        "30 of 30 minutes of work used",
    ),
    "token-budget-exceeded": ({"tokens_used": 1234, "token_budget": 1000}, "1,234 of 1,000 tokens used"),
    "cost-budget-exceeded": ({"cost_used": 2.0}, "2.00 of 2.00 USD used"),
    "resource-overload": (
        {"tier": Tier.CRITICAL, "peers": 7},
        "the machine is in tier critical, with 7 other agent sessions (limit 6)",
    ),
    "low-confidence-fallback": ({"confidence": 0.849}, "confidence 0.849 is below 0.85"),
}
"""In the documented order: what turns each switch on, and the detail it then gives."""


AFTER: dict[str, tuple[dict[str, Any], str]] = {
    "spiral": (
        {"spiral": "the session reported a spiral", "spirals_before": 1},
        "the session reported a spiral; spiral 2 of this run",
    ),
    "failed-wave": ({"failed_agents": 2}, "2 agents of the session failed and did not recover"),
    "carryover-too-high": (
        {"planned": 100, "carryover": 51},
        "51 of 100 planned issues were left over (51%)",
    ),
    "user-abort": ({"aborted": "stopped by you (Ctrl-C)"}, "stopped by you (Ctrl-C)"),
}
"""The switches after a session, in the documented order."""


def test_a_calm_loop_continues() -> None:
    """Without a reason there is no switch."""
    assert before_session(CALM) is None


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_alone_gives_its_name_detail_and_hint(name: str) -> None:
    """Acceptance 30: exactly that name, a detail, the recovery hint."""
    changes, detail = SWITCHES[name]
    switch = before_session(replace(CALM, **changes))
    assert switch is not None
    assert (switch.name, switch.detail, switch.hint) == (name, detail, HINTS[name])


@given(st.sets(st.sampled_from(sorted(SWITCHES)), min_size=1))
def test_the_documented_order_decides_between_several(on: set[str]) -> None:
    """Acceptance 31: of all that are true, the first of the documented order is named."""
    changes: dict[str, Any] = {}
    for name in on:
        changes |= SWITCHES[name][0]
    switch = before_session(replace(CALM, **changes))
    assert switch is not None
    assert switch.name == next(name for name in SWITCHES if name in on)


@pytest.mark.parametrize(
    "changes",
    [
        {"loop_sessions": 4},
        {"tokens_used": 99},
        {"tokens_used": None},
        {"tokens_used": 10**9, "token_budget": None},
        {"cost_used": None},
        {"cost_used": 1.99},
        {"cost_used": 1e9, "cost_budget": None},
        {"tier": Tier.CRITICAL, "peers": 6},
        {"tier": Tier.CRITICAL, "peers": None},
        {"tier": Tier.DEGRADED, "peers": 99},
        {"confidence": 0.85},
        {"confidence": None},
    ],
)
def test_what_is_below_the_limit_or_unknown_stops_nothing(changes: dict[str, Any]) -> None:
    """The edges lie on the documented side, and unknown is never a reason."""
    assert before_session(replace(CALM, **changes)) is None


def test_a_budget_that_is_just_used_up_starts_no_further_session() -> None:
    """Acceptance 40: at the budget, not only beyond it."""
    switch = before_session(replace(CALM, tokens_used=100))
    assert switch is not None
    assert switch.name == "token-budget-exceeded"


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"step_sessions": 9}, None),
        ({"max_sessions": None, "loop_sessions": 40, "step_sessions": 4}, None),
        ({"max_sessions": None, "step_sessions": 5}, "5 of 5 sessions of this step used"),
    ],
)
def test_a_limit_that_was_given_is_the_loops_and_the_default_is_the_steps(
    changes: dict[str, Any], detail: str | None
) -> None:
    """A flow has many steps: the number that the user gave must hold for all of them together."""
    switch = before_session(replace(CALM, **changes))
    assert (switch.detail if switch else None) == detail


@pytest.mark.parametrize(("sessions", "parked"), [(0, True), (1, False), (2, False)])
def test_low_confidence_parks_first_and_kills_later(sessions: int, parked: bool) -> None:  # noqa: FBT001  a table
    """Acceptance 32: on iteration 1 the story is parked for the user, on 2 and later it is killed."""
    facts = replace(CALM, confidence=0.2, loop_sessions=sessions)
    switch = before_session(facts)
    assert switch is not None
    assert switch.name == "low-confidence-fallback"
    assert parks(switch, facts) is parked


def test_no_other_switch_parks() -> None:
    """On iteration 1 an abort is still an abort."""
    facts = replace(CALM, aborted="Ctrl-C", confidence=0.2, loop_sessions=0)
    switch = before_session(facts)
    assert switch is not None
    assert not parks(switch, facts)


def test_a_quiet_end_continues() -> None:
    """A session that reports nothing, and one that reports only good things, end nothing."""
    assert after_session(AfterFacts()) == After()
    assert after_session(AfterFacts(failed_agents=0, planned=4, carryover=0)) == After()


@pytest.mark.parametrize("name", AFTER)
def test_each_switch_after_a_session_alone(name: str) -> None:
    """Acceptance 30: after a session, too, exactly that name, a detail, the recovery hint."""
    changes, detail = AFTER[name]
    found = after_session(AfterFacts(**changes)).switch
    assert found is not None
    assert (found.name, found.detail, found.hint) == (name, detail, HINTS[name])


@given(st.sets(st.sampled_from(sorted(AFTER)), min_size=1))
def test_the_documented_order_decides_after_a_session(on: set[str]) -> None:
    """Acceptance 31: of all that are true after a session, the first of the documented order is named."""
    changes: dict[str, Any] = {}
    for name in on:
        changes |= AFTER[name][0]
    after = after_session(AfterFacts(**changes))
    assert after.switch is not None
    assert after.switch.name == next(name for name in AFTER if name in on)
    assert after.ends_cohort is (after.switch.name == "spiral")
    assert not after.retries


@pytest.mark.parametrize(
    ("planned", "carryover", "stops"),
    [(100, 50, False), (100, 51, True), (2, 1, False), (3, 2, True), (0, 5, False), (None, 5, False)],
)
def test_carryover_stops_only_beyond_the_half(
    planned: float | None,
    carryover: float,
    stops: bool,  # noqa: FBT001  a table
) -> None:
    """Acceptance 33: exactly 0.50 continues, 0.51 stops; without a plan no ratio exists."""
    after = after_session(AfterFacts(planned=planned, carryover=carryover))
    assert (after.switch is not None) is stops


@given(failed=st.integers(0, 3), carryover=st.integers(0, 4), aborted=st.booleans())
def test_the_first_spiral_is_retried_whatever_else_is_true(
    failed: int,
    carryover: int,
    aborted: bool,  # noqa: FBT001  an example
) -> None:
    """Acceptance 37: one real retry, and only for the first spiral of the run."""
    facts = AfterFacts(
        spiral="circles", failed_agents=failed, planned=4, carryover=carryover, aborted="Ctrl-C" * aborted
    )
    assert after_session(facts) == After(retries=True)
    second = after_session(replace(facts, spirals_before=1))
    assert second.switch is not None
    assert (second.switch.name, second.ends_cohort, second.retries) == ("spiral", True, False)


@pytest.mark.parametrize(
    ("before", "own", "retries", "ends_cohort"),
    [(1, 0, True, False), (1, 1, False, False), (2, 0, False, True), (0, 1, True, False)],
)
def test_below_the_limit_a_spiral_is_the_storys_own(
    before: int,
    own: int,
    retries: bool,  # noqa: FBT001  a table
    ends_cohort: bool,  # noqa: FBT001
) -> None:
    """With a limit of 3 each story has its retry and ends alone; the third spiral ends the run."""
    facts = AfterFacts(spiral="circles", spirals_before=before, own_spirals=own, spiral_limit=3)
    after = after_session(facts)
    assert (after.retries, after.switch is None, after.ends_cohort) == (retries, retries, ends_cohort)


def test_a_storys_own_budget_counts_like_the_runs() -> None:
    """Acceptance 40: the story's budget ends the story, and says whose it was."""
    switch = before_session(replace(CALM, story_tokens_used=7, story_token_budget=7))
    assert switch is not None
    assert switch.detail == "7 of 7 tokens used by this story"
    switch = before_session(replace(CALM, story_cost_used=3.0, story_cost_budget=2.5))
    assert switch is not None
    assert (switch.name, switch.detail) == ("cost-budget-exceeded", "3.00 of 2.50 USD used by this story")


def test_every_switch_has_a_hint() -> None:
    """Acceptance 30: no kill-switch leaves the user without a next step."""
    assert {*SWITCHES, *AFTER, "stall-timeout", "inactivity-timeout", "base-not-ready"} == set(Switch)
    assert all(switch.hint.endswith(".") for switch in Switch)


def test_the_page_lists_every_switch_in_its_order() -> None:
    """The table and the order on the page are those of the declaration."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "exit-codes.md").read_text()
    section = page.partition("## Kill-switches")[2]
    assert re.findall(r"^\| `([\w-]+)` \|", section, flags=re.MULTILINE) == list(Switch)
    order = section.partition("Before a session:")[2]
    before, _, after = order.partition("After a session:")
    assert re.findall(r"`([\w-]+)`", before) == list(SWITCHES)
    assert re.findall(r"`([\w-]+)`", after.partition(".")[0]) == list(AFTER)


def test_sessions_with_a_full_context_have_a_limit_of_their_own() -> None:
    """Twenty of a step may end so beside its five; a limit that is set counts them all."""
    assert before_session(replace(CALM, max_sessions=None, step_sessions=4, step_breaks=19)) is None
    found = before_session(replace(CALM, max_sessions=None, step_sessions=0, step_breaks=20))
    assert found is not None
    assert found.name == Switch.MAX_SESSIONS
    assert found.detail == "20 of 20 sessions of this step ended with a full context"
    assert before_session(replace(CALM, loop_sessions=3, step_breaks=20, max_sessions=4)) is None


def test_prices_that_add_up_to_the_budget_have_used_it_up() -> None:
    """In one order of adding, ten times ten cents come to a little less than a dollar."""
    used = sum(0.1 for _ in range(10))
    assert used < 1.0
    switch = before_session(replace(CALM, cost_used=used, cost_budget=1.0))
    assert switch is not None
    assert switch.detail == "1.00 of 1.00 USD used"
