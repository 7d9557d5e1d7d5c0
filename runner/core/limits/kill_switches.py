"""The kill-switches: from what is known about a story to "continue", or to exactly one named reason to stop.

Time, samples and results come in as values; nothing here waits or reads anything. A session is atomic: what
is decided here is decided before it starts or after it has ended.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from msgspec import Struct

from runner.core.limits.budget import Amount
from runner.core.model import SPIRAL_LIMIT, KillSwitch, Tier

PEER_LIMIT = 6
CARRYOVER_LIMIT = 0.5
STEP_SESSIONS = 5
"""How many work sessions a step has in one loop, unless `max-sessions` limits the loop itself."""
STEP_BREAKS = 20
"""How many sessions of a step may end with a full context: each saved its work, and the next continued it."""
_TOKENS, _COST = "{:,} of {:,} tokens used", "{:.2f} of {:.2f} USD used"


class Switch(StrEnum):
    """Every kill-switch: its name in journals, records and documents, and what the user can do about it.

    They are judged in the order of their declaration; the first that is on is the one that is named.
    """

    hint: str

    def __new__(cls, name: str, hint: str) -> Self:
        """Make a member that is its name and carries its hint."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.hint = hint
        return member

    # Judged before a session.
    USER_ABORT = ("user-abort", "continue with `autopilot-multi resume`.")
    COHORT = (
        "cohort-aborted",
        "check those that went in circles, then `autopilot-multi resume`; or run with --spiral-limit 10.",
    )
    MAX_SESSIONS = (
        "max-sessions-reached",
        "this is an orderly end; `autopilot-multi resume` gives the story new sessions.",
    )
    MAX_HOURS = (
        "max-hours-exceeded",
        "run again with a higher --max-hours; `autopilot-multi logs` shows what was slow.",
    )
    STORY_TIME = (
        "story-time-exceeded",
        "`autopilot-multi resume` gives the story as much time again; for more, raise --story-minutes.",
    )
    TOKEN_BUDGET = (
        "token-budget-exceeded",
        "run again with a higher --token-budget, or with smaller stories.",
    )
    COST_BUDGET = (
        "cost-budget-exceeded",
        "run again with a higher --cost-budget, or with smaller stories.",
    )
    OVERLOAD = (
        "resource-overload",
        "wait until other agent sessions on this machine have ended, or close them, then resume.",
    )
    LOW_CONFIDENCE = (
        "low-confidence-fallback",
        "take the next step by hand, or run again with a lower --confidence-threshold.",
    )
    # Judged after a session.
    SPIRAL = (
        "spiral",
        "look at the story by hand: its agent went in circles, and no retry will help.",
    )
    FAILED_WAVE = (
        "failed-wave",
        "find out why the agents failed (tests that changed, the environment), then resume.",
    )
    CARRYOVER = (
        "carryover-too-high",
        "more was left over than done: make the story smaller or split it, then resume.",
    )
    # Found while sessions run.
    STALL = (
        "stall-timeout",
        "`autopilot-multi logs` shows the last sign of life; if it was working, raise --stall-seconds.",
    )
    INACTIVITY = (
        "inactivity-timeout",
        "`autopilot-multi logs` shows the last output; if it was working, raise --inactivity-timeout.",
    )
    # Found before the first session.
    BASE = (
        "base-not-ready",
        "fix it and run again, or name the command in a story that is to fix it; --no-base-check ignores it.",
    )

    def tripped(self, detail: str) -> KillSwitch:
        """Return the reason to stop that is recorded: this switch, and what turned it on."""
        return KillSwitch(name=str(self), detail=detail, hint=self.hint)


TAKEN_OVER = "taken over by you"
"""What turned `user-abort` on for a story that the user continues by hand; its next session is new work."""

ORDERLY = frozenset({Switch.MAX_SESSIONS})
"""Switches that are an orderly end and do not count as kills."""


class LoopFacts(Struct, frozen=True, kw_only=True):
    """What is known about a story and its run just before a session; None is unknown and stops nothing.

    `max_sessions` limits the sessions of the loop; without it, each step has a limit of its own.
    `story_minutes_used` is the time of the story's sessions, without what it waited for.
    `aborted` says what stopped the story, `cohort` why the stories of this run start nothing more; both are
    empty while they do.
    """

    aborted: str
    loop_sessions: int
    step_sessions: int
    step_breaks: int = 0
    max_sessions: int | None
    overdue: bool
    max_hours: float
    tokens_used: int | None
    token_budget: int | None
    cost_used: float | None
    cost_budget: float | None
    cohort: str = ""
    story_minutes_used: float = 0.0
    story_minutes: float | None = None
    story_tokens_used: int | None = None
    story_token_budget: int | None = None
    story_cost_used: float | None = None
    story_cost_budget: float | None = None
    tier: Tier = Tier.UNKNOWN
    peers: int | None = None
    peer_limit: int = PEER_LIMIT
    confidence: float | None = None
    confidence_threshold: float = 0.0


class AfterFacts(Struct, frozen=True, kw_only=True):
    """What a session that has ended reports about itself and its story; None is unknown.

    `spiral` says what shows that it went in circles; it is empty when nothing does.
    `spirals_before` counts the spirals of all stories of the run, `own_spirals` those of the story;
    `spiral_limit` is the spiral of a run that ends it. `failed_agents` are the agents of the session that
    failed and that no retry made up for.
    """

    spiral: str = ""
    spirals_before: int = 0
    own_spirals: int = 0
    spiral_limit: int = SPIRAL_LIMIT
    failed_agents: int | None = None
    planned: float | None = None
    carryover: float | None = None
    aborted: str = ""


class After(Struct, frozen=True, kw_only=True):
    """What follows a session: one switch, a retry after a spiral, or nothing. A switch may end the cohort."""

    switch: KillSwitch | None = None
    retries: bool = False
    ends_cohort: bool = False


def budget_used_up(used: Amount, budget: Amount) -> KillSwitch | None:
    """Return that the budget of the run is used up; None while something of it is left, or without one."""
    return _first(
        {
            Switch.TOKEN_BUDGET: _spent(used.tokens or 0, budget.tokens, _TOKENS),
            Switch.COST_BUDGET: _spent(used.cost or 0.0, budget.cost, _COST),
        }
    )


def before_session(facts: LoopFacts) -> KillSwitch | None:
    """Return the first reason, in the declared order, why no further session may start."""
    return _first(
        {
            Switch.USER_ABORT: facts.aborted or None,
            Switch.COHORT: facts.cohort or None,
            Switch.MAX_SESSIONS: _sessions(facts),
            Switch.MAX_HOURS: f"{facts.max_hours:g} h have passed" if facts.overdue else None,
            Switch.STORY_TIME: story_time(facts.story_minutes_used, facts.story_minutes),
            Switch.TOKEN_BUDGET: _spent(facts.tokens_used, facts.token_budget, _TOKENS)
            or _spent(facts.story_tokens_used, facts.story_token_budget, f"{_TOKENS} by this story"),
            Switch.COST_BUDGET: _spent(facts.cost_used, facts.cost_budget, _COST)
            or _spent(facts.story_cost_used, facts.story_cost_budget, f"{_COST} by this story"),
            Switch.OVERLOAD: _overload(facts),
            Switch.LOW_CONFIDENCE: _confidence(facts),
        }
    )


def after_session(facts: AfterFacts) -> After:
    """Judge a session that ran to its end.

    The first spiral of a run is forgiven with a real retry; below the limit, so is the first of each story.
    """
    last = facts.spirals_before + 1 >= facts.spiral_limit
    if facts.spiral and (not facts.spirals_before or not (last or facts.own_spirals)):
        return After(retries=True)
    found = _first(
        {
            Switch.SPIRAL: _spiral(facts),
            Switch.FAILED_WAVE: _failed(facts),
            Switch.CARRYOVER: _carryover(facts),
        }
    )
    if found is None and facts.aborted:
        # Last, unlike before a session: the wish to stop must not hide what the session has shown.
        found = Switch.USER_ABORT.tripped(facts.aborted)
    return After(switch=found, ends_cohort=last and found is not None and found.name == Switch.SPIRAL)


def story_time(used: float, limit: float | None) -> str | None:
    """Return why the story has no time left, in minutes of work; None while it has some, or no limit."""
    return _spent(used, limit, "{:.3g} of {:g} minutes of work used")


def parks(found: KillSwitch, facts: LoopFacts) -> bool:
    """Whether the story waits for a decision instead of ending, since nothing has run that could be lost."""
    return found.name == Switch.LOW_CONFIDENCE and not facts.loop_sessions


def _first(details: Mapping[Switch, str | None]) -> KillSwitch | None:
    """Return the first switch, in the order of declaration, that has a detail."""
    on = {switch: detail for switch, detail in details.items() if detail is not None}
    return next((switch.tripped(on[switch]) for switch in Switch if switch in on), None) if on else None


def _spiral(facts: AfterFacts) -> str | None:
    if not facts.spiral:
        return None
    return f"{facts.spiral}; spiral {facts.spirals_before + 1} of this run"


def _failed(facts: AfterFacts) -> str | None:
    failed = facts.failed_agents or 0
    return f"{failed} agent{'s' * (failed > 1)} of the session failed and did not recover" if failed else None


def _carryover(facts: AfterFacts) -> str | None:
    if not facts.planned or facts.planned < 0 or facts.carryover is None:
        return None
    ratio = facts.carryover / facts.planned
    if ratio <= CARRYOVER_LIMIT:
        return None
    return f"{facts.carryover:g} of {facts.planned:g} planned issues were left over ({ratio:.0%})"


def _sessions(facts: LoopFacts) -> str | None:
    if facts.max_sessions is None:
        full = "{} of {} sessions of this step ended with a full context"
        used = _spent(facts.step_sessions, STEP_SESSIONS, "{} of {} sessions of this step used")
        return used or _spent(facts.step_breaks, STEP_BREAKS, full)
    return _spent(facts.loop_sessions, facts.max_sessions, "{} of {} sessions used")


def _spent(used: float | None, budget: float | None, words: str) -> str | None:
    # A sum of prices may come out a little too low, depending on the order in which they are added.
    if used is None or budget is None or (used < budget and not math.isclose(used, budget)):
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
