"""How the jobs of a CI pipeline divide what is left of a budget, without seeing each other's sessions. Pure.

Each job of a stage gets an equal part. No part is smaller than what a session spends, so some jobs may get
none. Before anything is known about sessions, only one job may start any: what the others would spend could
not be limited.
"""

from collections.abc import Iterable

from msgspec import Struct

from runner.core.limits.budget import Amount
from runner.core.model import Usage


class Share(Struct, frozen=True, kw_only=True):
    """Which part of what is left a job may use; with a `number`, if it comes first enough in its stage.

    Jobs are numbered from 1. The number 0 means that the part counts as it is.
    """

    part: float = 1.0
    number: int = 0


def most_of(sessions: Iterable[Usage]) -> Amount | None:
    """Return the most that a session has spent; None without any."""
    ended = list(sessions)
    if not ended:
        return None
    return Amount(
        tokens=max((each.tokens for each in ended if each.tokens is not None), default=None),
        cost=max((each.cost_usd for each in ended if each.cost_usd is not None), default=None),
    )


def is_known(left: Amount, session: Amount) -> bool:
    """Whether it is known what a session spends of every budget."""
    pairs = ((left.tokens, session.tokens), (left.cost, session.cost))
    return all(rest is None or spent is not None for rest, spent in pairs)


def parts_of(jobs: int, left: Amount, session: Amount) -> int:
    """Return how many jobs can get a part that is enough for a session; at least one."""
    pairs = ((left.tokens, session.tokens), (left.cost, session.cost))
    enough = [int(rest / spent) for rest, spent in pairs if rest is not None and spent]
    return max(1, min([jobs, *enough]))


def share_now(share: Share, left: Amount, session: Amount | None) -> float:
    """Return what a share is once it is known what sessions spend; None: nothing is known."""
    if not share.number:
        return share.part
    if session is None:
        return 1.0 if share.number == 1 else 0.0
    parts = parts_of(round(1 / share.part), left, session)
    return 1 / parts if share.number <= parts else 0.0
