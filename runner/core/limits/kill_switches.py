"""The kill-switches: from what is known to going on, or to exactly one named reason to stop.

Time, samples and results come in as values; nothing here waits or looks. The order in which the
switches are listed is documented and decides when several are on at once. A session is atomic: what
is decided here is decided before it starts or after it has ended.
"""

from collections.abc import Mapping

from isolation.frozen import frozen
from runner.core.model import KillSwitch, Tier

PEER_LIMIT = 6
CARRYOVER_LIMIT = 0.5
LOW_CONFIDENCE = "low-confidence-fallback"
SPIRAL = "spiral"
COHORT = "cohort-aborted"
GRACEFUL = frozenset({"max-sessions-reached"})
"""Switches that are an orderly end and no kill."""

HINTS: Mapping[str, str] = {
    "user-abort": "`autopilot-multi resume` goes on when you are ready.",
    COHORT: "look at the stories that went round in circles first; `autopilot-multi resume` then goes on.",
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
    SPIRAL: "look at the story by hand: its agent went round in circles, and no retry will help.",
    "failed-wave": "find out why the agents failed (tests that changed, the environment), then resume.",
    "carryover-too-high": "more was left over than done: make the story smaller or split it, then resume.",
}
"""What a person can do after each kill-switch."""


@frozen
class LoopFacts:
    """What is known of a story and its run just before a session; None is unknown and stops nothing.

    `iteration` counts the sessions of the story's loop from 1, the coming one included. `cohort` says why
    the stories of this run start nothing more; it is empty while they do.
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
    cohort: str = ""
    story_tokens_used: int | None = None
    story_token_budget: int | None = None
    story_cost_used: float | None = None
    story_cost_budget: float | None = None
    tier: Tier = Tier.UNKNOWN
    peers: int | None = None
    peer_limit: int = PEER_LIMIT
    confidence: float | None = None
    confidence_threshold: float = 0.0
    iteration: int = 1


@frozen
class AfterFacts:
    """What a session that has ended says of itself and of its story; None is unknown.

    `spiral` says what shows that it went round in circles; it is empty when nothing does.
    `spirals_before` counts those of all stories of the run.
    """

    spiral: str = ""
    spirals_before: int = 0
    failed_agents: int | None = None
    planned: float | None = None
    carryover: float | None = None
    aborted: bool = False


@frozen
class After:
    """What follows: one switch, or a retry of what spiralled, or nothing. A switch may end the cohort."""

    switch: KillSwitch | None = None
    retries: bool = False
    ends_cohort: bool = False


def switch(name: str, detail: str) -> KillSwitch:
    """Give a kill-switch with its recovery hint."""
    return KillSwitch(name=name, detail=detail, hint=HINTS[name])


def before_session(facts: LoopFacts) -> KillSwitch | None:
    """Give the first reason, in the documented order, why no further session may start."""
    return _first(_before(facts))


def after_session(facts: AfterFacts) -> After:
    """Judge a session that ran to its end; the first spiral of a run is forgiven with a real retry."""
    if facts.spiral and not facts.spirals_before:
        return After(retries=True)
    found = _first(_after(facts))
    return After(switch=found, ends_cohort=found is not None and found.name == SPIRAL)


def parks(found: KillSwitch, facts: LoopFacts) -> bool:
    """Tell whether the story waits for a person instead of ending: nothing has run that could be lost."""
    return found.name == LOW_CONFIDENCE and facts.iteration == 1


def _first(reasons: tuple[tuple[str, str | None], ...]) -> KillSwitch | None:
    return next((switch(name, detail) for name, detail in reasons if detail is not None), None)


def _before(facts: LoopFacts) -> tuple[tuple[str, str | None], ...]:
    """List the switches in their order, each with its detail when it is on."""
    tokens, cost = "{:,} of {:,} tokens used", "{:.2f} of {:.2f} USD used"
    return (
        ("user-abort", "a person asked to stop" if facts.aborted else None),
        (COHORT, facts.cohort or None),
        ("max-sessions-reached", _sessions(facts)),
        ("max-hours-exceeded", f"{facts.max_hours:g} h have passed" if facts.overdue else None),
        (
            "token-budget-exceeded",
            _spent(facts.tokens_used, facts.token_budget, tokens)
            or _spent(facts.story_tokens_used, facts.story_token_budget, f"{tokens} by this story"),
        ),
        (
            "cost-budget-exceeded",
            _spent(facts.cost_used, facts.cost_budget, cost)
            or _spent(facts.story_cost_used, facts.story_cost_budget, f"{cost} by this story"),
        ),
        ("resource-overload", _overload(facts)),
        (LOW_CONFIDENCE, _confidence(facts)),
    )


def _after(facts: AfterFacts) -> tuple[tuple[str, str | None], ...]:
    failed = facts.failed_agents or 0
    return (
        (SPIRAL, _spiral(facts)),
        ("failed-wave", f"{failed} agent{'s' * (failed > 1)} of the session failed" if failed > 0 else None),
        ("carryover-too-high", _carryover(facts)),
        ("user-abort", "a person asked to stop" if facts.aborted else None),
    )


def _spiral(facts: AfterFacts) -> str | None:
    if not facts.spiral:
        return None
    return f"{facts.spiral}; spiral {facts.spirals_before + 1} of this run"


def _carryover(facts: AfterFacts) -> str | None:
    if not facts.planned or facts.planned < 0 or facts.carryover is None:
        return None
    ratio = facts.carryover / facts.planned
    if ratio <= CARRYOVER_LIMIT:
        return None
    return f"{facts.carryover:g} of {facts.planned:g} planned issues were left over ({ratio:.0%})"


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
