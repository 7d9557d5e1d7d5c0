"""Amounts that come from outside: sessions, records, shards, other programs.

JSON can hold what no budget, schedule or report can work with: NaN, infinities, negative and absurd numbers,
integers of any length, and switches, which Python counts as numbers.
"""

import math

MOST = 1e15
"""No real amount, in tokens, dollars or seconds, is larger."""


def amount(value: object, *, most: float = MOST) -> float | None:
    """Return a value if it is a possible amount: a number that is finite, not negative and not absurd."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared before anything is converted: an integer can be too long for a float.
    return value if 0 <= value <= most and math.isfinite(value) else None


def whole_amount(value: object) -> int | None:
    """Return a value as a count, if it is a possible amount."""
    found = amount(value)
    return None if found is None else int(found)
