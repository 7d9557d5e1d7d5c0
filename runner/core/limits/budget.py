"""A budget shared by parallel sessions: what a session may spend is set aside before it starts.

What running sessions have set aside counts as spent, so that several stories never start on the same
last dollar. A session that would not fit waits for the others; alone it gets what is left. Until one
session has shown what it spends, and without an estimate in the settings, each sets aside all that is left.
"""

from collections.abc import Iterable

from msgspec import Struct

from runner.core.model import Usage


class Amount(Struct, frozen=True, kw_only=True):
    """Tokens and dollars; None means no limit, or unknown."""

    tokens: float | None = None
    cost: float | None = None


def spent(usage: Usage) -> Amount:
    """Return what was used as an amount."""
    return Amount(tokens=usage.tokens, cost=usage.cost_usd)


def estimate(sessions: Iterable[Usage], fallback: Amount) -> Amount:
    """Expect the next session to spend what the most expensive one has spent; `fallback` before any is known.

    Where sessions ended without reporting what they spent, 0 is expected.
    """
    known = [spent(usage) for usage in sessions]
    if not known:
        return fallback
    # The maximum: with a low estimate, parallel sessions would exceed the budget together.
    tokens = [each.tokens for each in known if each.tokens is not None]
    cost = [each.cost for each in known if each.cost is not None]
    return Amount(tokens=max(tokens, default=0.0), cost=max(cost, default=0.0))


def set_aside(limit: Amount, used: Amount, reserved: Iterable[Amount], expected: Amount) -> Amount | None:
    """Return what the next session may set aside; None when it must wait for another to end."""
    others = list(reserved)
    tokens = _part(limit.tokens, used.tokens, [each.tokens for each in others], expected.tokens)
    cost = _part(limit.cost, used.cost, [each.cost for each in others], expected.cost)
    if tokens is None or cost is None:
        return None
    return Amount(tokens=None if limit.tokens is None else tokens, cost=None if limit.cost is None else cost)


def _part(
    limit: float | None, used: float | None, reserved: list[float | None], expected: float | None
) -> float | None:
    """Return the part of one currency; None when the session must wait for it."""
    if limit is None:
        return 0.0
    left = max(0.0, limit - (used or 0.0))
    taken = sum(part for part in reserved if part)
    wanted = left if expected is None else expected
    if wanted <= left - taken:
        return wanted
    # When no other session holds a part, waiting would never end: it gets what is left.
    return None if taken else left
