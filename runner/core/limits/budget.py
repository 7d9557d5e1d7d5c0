"""A budget shared by parallel sessions: what a session is expected to spend is reserved before it starts.

What is reserved for running sessions counts as spent, so that several stories never start on the same last
dollar. A session that would not fit waits for the others; alone it gets what is left. What it is expected to
spend is known from sessions of the same agent and model: in this run, or in earlier ones; before there are
any, a stated estimate counts, so that the first session does not hold up the others.

What is reserved decides only who starts. What a session may spend, its allowance, is all that is really
left: the budget without what was spent and what is reserved for other sessions. So a session that turns out
expensive is not cut off while there is money. Sessions that are all more expensive than expected can exceed
the budget together; then no further one starts.
"""

from collections.abc import Iterable, Sequence
from math import ceil

from msgspec import Struct

from runner.core.model import Usage

USUAL_COST = 1.0
USUAL_TOKENS = 500_000.0
"""What a session is expected to spend while nothing is known about its agent."""

PERCENTILE = 0.9
ENOUGH = 3
"""How many sessions of one step say more about the next one than all sessions of the agent and its model."""


class Amount(Struct, frozen=True, kw_only=True):
    """Tokens and dollars; None means no limit, or unknown."""

    tokens: float | None = None
    cost: float | None = None


class Part(Struct, frozen=True, kw_only=True):
    """What one session holds of a budget: what is reserved for it, and what it may spend."""

    reserved: Amount
    allowance: Amount


class Kind(Struct, frozen=True, kw_only=True):
    """What makes sessions alike in what they spend."""

    agent: str
    model: str = ""
    step: str = ""


class Spending(Struct, frozen=True, kw_only=True):
    """What one session of a kind has spent."""

    kind: Kind
    amount: Amount


class Expected(Struct, frozen=True, kw_only=True):
    """What a session is expected to spend, and what that is based on."""

    amount: Amount
    basis: str = ""


class OtherJobs(Struct, frozen=True, kw_only=True):
    """What the other jobs of a pipeline have used, and how much of the rest this one may use.

    `seconds` is the time in which at least one of them worked. A share below 1 means that other jobs run at
    the same time: they cannot see each other's sessions, so none starts one that would exceed its share.
    """

    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    share: float = 1.0

    def left_of(self, limit: Amount) -> Amount:
        """Return what this job may spend of the budget of the whole pipeline."""
        return Amount(
            tokens=None if limit.tokens is None else int(max(0.0, limit.tokens - self.tokens) * self.share),
            cost=None if limit.cost is None else max(0.0, limit.cost - self.cost) * self.share,
        )


def budget_notes(limit: Amount, others: OtherJobs) -> tuple[str, ...]:
    """Say what a job may spend of each budget, if other jobs have spent or may spend the rest."""
    left = others.left_of(limit)
    said = (
        ("cost-budget", limit.cost, others.cost, left.cost, "${:,.2f}"),
        ("token-budget", limit.tokens, others.tokens, left.tokens, "{:,.0f} tokens"),
    )
    return tuple(
        "{}: other jobs have spent {} of {}; this job may spend {}".format(
            name, *(form.format(value) for value in (used, whole, part))
        )
        for name, whole, used, part, form in said
        if whole is not None and part is not None and part < whole
    )


def spent(usage: Usage) -> Amount:
    """Return what was used as an amount."""
    return Amount(tokens=usage.tokens, cost=usage.cost_usd)


def expect(
    kind: Kind, *, run: Iterable[Spending], past: Iterable[Spending], said: Amount, guess: Amount
) -> Expected:
    """Return what the next session of a kind is expected to spend.

    The most expensive session of this run counts, then what the user has `said`, then most of the past
    sessions, then the `guess`. Sessions of this run that did not report what they spent are expected to
    spend nothing: a budget cannot limit them.
    """
    now = [one.amount for one in run if _same_worker(one.kind, kind)]
    before = _alike(kind, past)
    tokens, why_tokens = _expect([one.tokens for one in now], [one.tokens for one in before], said.tokens)
    cost, why_cost = _expect([one.cost for one in now], [one.cost for one in before], said.cost)
    return Expected(
        amount=Amount(
            tokens=guess.tokens if tokens is None else tokens, cost=guess.cost if cost is None else cost
        ),
        basis=why_cost or why_tokens or "assumed: no earlier session shows it",
    )


def guessed(limit: Amount, slots: int, *, usual: Amount) -> Amount:
    """Return what to expect of a session of which nothing is known: at most one share of the budget."""
    return Amount(
        tokens=_smaller(usual.tokens, limit.tokens, slots), cost=_smaller(usual.cost, limit.cost, slots)
    )


def set_aside(
    limit: Amount, used: Amount, held: Sequence[Part], expected: Amount, *, strict: bool = False
) -> Part | None:
    """Return what the next session holds; None when it must wait for another to end.

    If `strict`, a session that is alone gets nothing either when it is expected to spend more than what is
    left.
    """
    tokens = _part(
        limit.tokens,
        used.tokens,
        sum(one.reserved.tokens or 0.0 for one in held),
        expected.tokens,
        strict=strict,
    )
    cost = _part(
        limit.cost,
        used.cost,
        sum(one.reserved.cost or 0.0 for one in held),
        expected.cost,
        strict=strict,
    )
    if tokens is None or cost is None:
        return None
    return Part(
        reserved=Amount(tokens=tokens[0], cost=cost[0]), allowance=Amount(tokens=tokens[1], cost=cost[1])
    )


def shortage(limit: Amount, used: Amount, held: Sequence[Part], expected: Expected) -> str:
    """Return in words why a session must wait for its part."""
    tokens = (limit.tokens, used.tokens, [one.reserved.tokens for one in held], expected.amount.tokens)
    cost = (limit.cost, used.cost, [one.reserved.cost for one in held], expected.amount.cost)
    lacking = [_lack(*cost, "${:,.2f}"), _lack(*tokens, "{:,.0f} tokens")]
    because = f" ({expected.basis})" if expected.basis else ""
    return "; ".join(words for words in lacking if words) + because


def _lack(
    limit: float | None, used: float | None, reserved: list[float | None], wanted: float | None, form: str
) -> str:
    if limit is None or wanted is None:
        return ""
    left = max(0.0, limit - (used or 0.0))
    taken = sum(part for part in reserved if part)
    if wanted <= left - taken:
        return ""
    words = (
        "a session is expected to spend {}, and {} of {} is free ({} spent, {} reserved for running sessions)"
    )
    return words.format(*map(form.format, (wanted, max(0.0, left - taken), limit, used or 0.0, taken)))


def _expect(
    run: Sequence[float | None], past: Sequence[float | None], said: float | None
) -> tuple[float | None, str]:
    if run:
        return max((value for value in run if value is not None), default=0.0), "the most in this run"
    if said is not None:
        return said, "by your settings"
    known = sorted(value for value in past if value is not None)
    if known:
        number = len(known)
        return known[ceil(PERCENTILE * number) - 1], f"from {number} earlier session{'s' * (number > 1)}"
    if len(past) >= ENOUGH:
        return 0.0, "its sessions do not report what they spend"
    return None, ""


def _alike(kind: Kind, past: Iterable[Spending]) -> list[Amount]:
    """Return the sessions that say most about the next one: of the same step, if there are enough."""
    same = [one for one in past if _same_worker(one.kind, kind)]
    step = [one for one in same if one.kind.step == kind.step]
    return [one.amount for one in (step if len(step) >= ENOUGH else same)]


def _same_worker(one: Kind, other: Kind) -> bool:
    return (one.agent, one.model) == (other.agent, other.model)


def _smaller(usual: float | None, limit: float | None, slots: int) -> float | None:
    share = None if limit is None else limit / max(1, slots)
    return usual if share is None or usual is None else min(usual, share)


def _part(
    limit: float | None, used: float | None, reserved: float, expected: float | None, *, strict: bool
) -> tuple[float | None, float | None] | None:
    """Return what is reserved of one currency and what may be spent; None when the session must wait."""
    if limit is None:
        return None, None
    left = max(0.0, limit - (used or 0.0))
    wanted = left if expected is None else expected
    if wanted > left - reserved:
        # When no other session holds a part, waiting would never end: it gets what is left.
        return None if reserved or strict else (left, left)
    return wanted, left - reserved


def within(allowance: Amount, limit: Amount, used: Amount) -> Amount:
    """Return what a session may spend if its story has a budget of its own, too."""
    return Amount(
        tokens=_least(allowance.tokens, limit.tokens, used.tokens),
        cost=_least(allowance.cost, limit.cost, used.cost),
    )


def _least(allowance: float | None, limit: float | None, used: float | None) -> float | None:
    left = None if limit is None else max(0.0, limit - (used or 0.0))
    return min((one for one in (allowance, left) if one is not None), default=None)
