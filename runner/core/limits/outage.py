"""What follows when an agent's service fails: wait and retry, start a new conversation, or give up.

A failure of the service is not a failure of the work, so it uses up none of a step's attempts. That is why
it is bounded here, by a count and by a time; only a limit is waited out, however long it lasts. What the
service says about waiting is respected.
"""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from runner.core.limits.agent_output import Fault
from runner.core.limits.stall import LONGEST_WAIT

MOST_OUTAGES = 12
LONGEST_OUTAGE = 6 * 3600.0
FIRST_WAIT = 10.0
LONGEST_BACKOFF = 600.0
LONGEST_LIMIT = 40 * 86400.0
"""Limits of a month are waited out; a later time is rather a mistake."""
PATIENCE = 60.0
"""A story with several agents waits this long for one before it turns to the next."""
NEXT = "next"
"""The value of `on-limit` with which it turns to the next."""
FAILURES = 2
"""After so many failed attempts of one agent at a step, the next one tries."""
JITTER = 0.5
"""Stories that fail together retry at different times, by up to this share of the wait."""


class OutageFacts(Struct, frozen=True, kw_only=True):
    """What is known about a session whose service failed.

    `outages` counts the failures in a row before it, `since` is when they began. `until` is the time of day
    that the service named, 0 when it named none; `chance` is between 0 and 1.
    """

    fault: Fault
    at: float
    outages: int = 0
    since: float | None = None
    until: float = 0.0
    chance: float = 0.0
    resumed: bool = False


class Pause(Struct, frozen=True, kw_only=True):
    """The session is repeated, not before `until`; with `everyone`, all stories of this agent wait."""

    until: float
    everyone: bool = False
    fresh: bool = False


class Refusal(Struct, frozen=True, kw_only=True):
    """No retry will help; `because` says why when the agent's own words do not."""

    because: str = ""


def after_outage(facts: OutageFacts) -> Pause | Refusal | None:  # noqa: PLR0911  one return per fault
    """Decide what follows; None means that the failure is an ordinary one and uses up an attempt."""
    match facts.fault:
        case Fault.PERMANENT:
            return Refusal()
        case Fault.LOST:
            # Only a resumed conversation can be replaced; a fresh one that is lost would be lost again.
            return Pause(until=facts.at, fresh=True) if facts.resumed else None
        case Fault.SPENT if facts.outages < MOST_OUTAGES:
            return Pause(until=facts.at)
        case Fault.SPENT:
            return Refusal(because=f"reached its limit {facts.outages + 1} times in a row")
        case Fault.LIMIT:
            return Pause(until=facts.at + _wait(facts, LONGEST_LIMIT), everyone=True)
        case Fault.TRANSIENT:
            lasted = 0.0 if facts.since is None else facts.at - facts.since
            if facts.outages >= MOST_OUTAGES or lasted > LONGEST_OUTAGE:
                return Refusal(because=f"failed {facts.outages + 1} times in a row in {lasted / 60:.0f} min")
            return Pause(until=facts.at + _wait(facts, LONGEST_WAIT))


def remaining(until: float, now: float) -> float:
    """Return how many seconds a pause still lasts; none if it is longer than any: then the clock was set.

    Infinite is for what never ends.
    """
    left = until - now
    return left if 0 < left <= LONGEST_LIMIT + FIRST_WAIT or math.isinf(left) else 0.0


def soonest(names: Sequence[str], current: str, waits: Mapping[str, float]) -> str:
    """Return which of several agents works next: the current one, unless another has much less to wait.

    `waits` are seconds; an agent without any can work now.
    """
    position = names.index(current) if current in names else 0
    others = (*names[position + 1 :], *names[:position])
    best = min(others, key=lambda name: waits.get(name, 0.0), default=current)
    return best if waits.get(best, 0.0) + PATIENCE < waits.get(current, 0.0) else current


def _wait(facts: OutageFacts, most: float) -> float:
    backoff = min(LONGEST_BACKOFF, FIRST_WAIT * 2.0 ** min(facts.outages, MOST_OUTAGES))
    named = min(most, facts.until - facts.at)
    if named > 0:
        # No story retries before the named time, and all of them at slightly different times.
        return named + facts.chance * JITTER * min(named, FIRST_WAIT)
    return backoff * (1 - JITTER * facts.chance)
