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


def dollars(cost: float, *, about: bool = False) -> str:
    """Return a cost: `$1.25`; one that was estimated is `~$1.25`."""
    return f"{'~' if about else ''}${cost:,.2f}"


def short_count(number: float) -> str:
    """Return a large count in few letters: `950`, `12.4k`, `3.1M`."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"
