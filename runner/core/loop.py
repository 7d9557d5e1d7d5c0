"""The kill-switches: from what is known to going on, or to exactly one named reason to stop.

The order in `before_session` is documented and decides when several are true at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from runner.core.model import KillSwitch, Tier

PEER_LIMIT = 6
LOW_CONFIDENCE = "low-confidence-fallback"

HINTS: Mapping[str, str] = {
    "user-abort": "`autopilot-multi resume` goes on when you are ready.",
    "max-sessions-reached": "this is an orderly end; `autopilot-multi resume` gives the story new sessions.",
    "max-hours-exceeded": "run again with a higher --max-hours; `autopilot-multi logs` shows what was slow.",
    "inactivity-timeout": "`autopilot-multi logs` shows where each story fell silent; was it work, "
    "raise --inactivity-timeout.",
    "token-budget-exceeded": "run again with a higher --token-budget, or with smaller stories.",
    "cost-budget-exceeded": "run again with a higher --cost-budget, or with smaller stories.",
    "resource-overload": "wait until other agent sessions here have ended, or close them, then resume.",
    LOW_CONFIDENCE: "take the next step by hand, or run again with a lower --confidence-threshold.",
    "stall-timeout": "`autopilot-multi logs` shows the last sign of life; was the silence work, "
    "raise --stall-seconds.",
    "spiral": "look at the story by hand: its agent went round in circles, and no retry will help.",
    "failed-wave": "find out why the agents failed (tests that changed, the environment), then resume.",
    "carryover-too-high": "more was left over than done: make the story smaller or split it, then resume.",
}
"""What a person can do after each kill-switch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """What is known of a story and its run just before a session; None is unknown and stops nothing.

    `iteration` counts the story's sessions from 1, the coming one included.
    """

    aborted: bool
    sessions_used: int
    max_sessions: int
    overdue: bool
    max_hours: float
    tokens_used: int | None
    token_budget: int | None
    cost_used: float | None
    cost_budget: float | None
    tier: Tier = Tier.UNKNOWN
    peers: int | None = None
    peer_limit: int = PEER_LIMIT
    confidence: float | None = None
    confidence_threshold: float = 0.0
    iteration: int = 1


def before_session(facts: LoopFacts) -> KillSwitch | None:
    """Give the first reason, in the documented order, why no further session may start."""
    for name, detail in _reasons(facts):
        if detail is not None:
            return KillSwitch(name=name, detail=detail, hint=HINTS[name])
    return None


def parks(switch: KillSwitch, facts: LoopFacts) -> bool:
    """Tell whether the story waits for a person instead of ending: nothing has run that could be lost."""
    return switch.name == LOW_CONFIDENCE and facts.iteration == 1


def _reasons(facts: LoopFacts) -> tuple[tuple[str, str | None], ...]:
    """List the switches in their order, each with its detail when it is on."""
    return (
        ("user-abort", "a person asked to stop" if facts.aborted else None),
        ("max-sessions-reached", _sessions(facts)),
        ("max-hours-exceeded", f"{facts.max_hours:g} h have passed" if facts.overdue else None),
        ("token-budget-exceeded", _spent(facts.tokens_used, facts.token_budget, "{:,} of {:,} tokens used")),
        ("cost-budget-exceeded", _spent(facts.cost_used, facts.cost_budget, "{:.2f} of {:.2f} USD used")),
        ("resource-overload", _overload(facts)),
        (LOW_CONFIDENCE, _confidence(facts)),
    )


def _sessions(facts: LoopFacts) -> str | None:
    if facts.sessions_used < facts.max_sessions:
        return None
    return f"{facts.sessions_used} of {facts.max_sessions} sessions used"


def _spent(used: float | None, budget: float | None, words: str) -> str | None:
    if used is None or budget is None or used < budget:
        return None
    return words.format(used, budget)


def _overload(facts: LoopFacts) -> str | None:
    if facts.tier is not Tier.CRITICAL or facts.peers is None or facts.peers <= facts.peer_limit:
        return None
    return (
        f"the machine is in tier critical, with {facts.peers} other agent sessions (limit {facts.peer_limit})"
    )


def _confidence(facts: LoopFacts) -> str | None:
    if facts.confidence is None or facts.confidence >= facts.confidence_threshold:
        return None
    return f"confidence {facts.confidence:.3g} is below {facts.confidence_threshold:.3g}"
