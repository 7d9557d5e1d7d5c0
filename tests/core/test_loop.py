"""Kill-switches before a session: each alone, all orders, and the asymmetry of low confidence."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.loop import HINTS, LoopFacts, before_session, parks
from runner.core.model import Tier

CALM = LoopFacts(
    aborted=False,
    sessions_used=1,
    max_sessions=5,
    overdue=False,
    max_hours=8,
    tokens_used=10,
    token_budget=100,
    cost_used=0.5,
    cost_budget=2.0,
    tier=Tier.GREEN,
    peers=0,
    confidence=1.0,
    confidence_threshold=0.85,
    iteration=2,
)

SWITCHES: dict[str, tuple[dict[str, Any], str]] = {
    "user-abort": ({"aborted": True}, "a person asked to stop"),
    "max-sessions-reached": ({"sessions_used": 5}, "5 of 5 sessions used"),
    "max-hours-exceeded": ({"overdue": True}, "8 h have passed"),
    "token-budget-exceeded": ({"tokens_used": 1234, "token_budget": 1000}, "1,234 of 1,000 tokens used"),
    "cost-budget-exceeded": ({"cost_used": 2.0}, "2.00 of 2.00 USD used"),
    "resource-overload": (
        {"tier": Tier.CRITICAL, "peers": 7},
        "the machine is in tier critical, with 7 other agent sessions (limit 6)",
    ),
    "low-confidence-fallback": ({"confidence": 0.849}, "confidence 0.849 is below 0.85"),
}
"""In the documented order: what turns each switch on, and the detail it then gives."""


def test_a_calm_loop_goes_on() -> None:
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
        {"sessions_used": 4},
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


@pytest.mark.parametrize(("iteration", "parked"), [(1, True), (2, False), (3, False)])
def test_low_confidence_parks_first_and_kills_later(iteration: int, parked: bool) -> None:  # noqa: FBT001  a table
    """Acceptance 32: on iteration 1 the story is parked for a person, on 2 and later it is killed."""
    facts = replace(CALM, confidence=0.2, iteration=iteration)
    switch = before_session(facts)
    assert switch is not None
    assert switch.name == "low-confidence-fallback"
    assert parks(switch, facts) is parked


def test_no_other_switch_parks() -> None:
    """On iteration 1 an abort is still an abort."""
    facts = replace(CALM, aborted=True, confidence=0.2, iteration=1)
    switch = before_session(facts)
    assert switch is not None
    assert not parks(switch, facts)


def test_every_documented_switch_has_a_hint() -> None:
    """Acceptance 30: no kill-switch leaves a person without a next step."""
    documented = {
        *SWITCHES,
        "stall-timeout",
        "inactivity-timeout",
        "spiral",
        "failed-wave",
        "carryover-too-high",
    }
    assert set(HINTS) == documented
    assert all(hint.endswith(".") for hint in HINTS.values())
