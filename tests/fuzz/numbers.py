"""Which numbers may come out of a parser: finite, and not absurd."""

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

MOST = 1e18


def require_amounts(found: Any) -> None:
    """Fail for a number that would break a budget, a schedule or a report, anywhere in a value."""
    if isinstance(found, bool | str | bytes) or found is None:
        return
    if isinstance(found, int | float):
        assert math.isfinite(found), "a number that is not finite"
        assert 0 <= found <= MOST, f"{found} is no amount"
    elif isinstance(found, Struct):
        for value in structs.asdict(found).values():
            require_amounts(value)
    elif isinstance(found, Mapping):
        for value in found.values():
            require_amounts(value)
    elif isinstance(found, list | tuple | set | frozenset):
        for value in found:
            require_amounts(value)
