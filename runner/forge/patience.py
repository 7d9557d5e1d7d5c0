"""How long to wait before the same thing is asked again: a pure rule over answers and times."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from isolation.patterns import pattern
from runner.forge.answers import Answer

ATTEMPTS = 6
LONGEST = 15 * 60.0
"""A longer wait is an error, which says when to come back."""
_FIRST = 1.0
_OUTAGES = frozenset({408, 500, 502, 503, 504, 520, 521, 522, 523, 524})
_TOO_MANY = 429
_LIMITS = frozenset({403, _TOO_MANY})
_EXHAUSTED = "0"
_NUMBER = pattern(r"[0-9]{1,12}")


def is_limited(answer: Answer) -> bool:
    """Whether the service refuses because too much was asked: nothing was done, and later it will be."""
    if answer.status not in _LIMITS:
        return False
    if answer.status == _TOO_MANY or "retry-after" in answer.headers:
        return True
    # GitHub's second limit, on bursts, may come without any header.
    return _remaining(answer.headers) == _EXHAUSTED or "rate limit" in answer.reason.lower()


def is_outage(answer: Answer) -> bool:
    """Whether the service is in trouble; whether it did what was asked is unknown."""
    return answer.status in _OUTAGES


def pause_before(attempt: int) -> float:
    """Return the seconds to wait after the given number of failed attempts."""
    return float(_FIRST * 2 ** (attempt - 1))


def limit_ends(answer: Answer, now: float) -> float | None:
    """Return in how many seconds a limit ends, by the service's own word; None if it gives none."""
    headers = answer.headers
    after = headers.get("retry-after", "")
    if _NUMBER.fullmatch(after):
        return float(after)
    if after:
        try:
            return max(0.0, parsedate_to_datetime(after).timestamp() - now)
        except (ValueError, OverflowError, OSError):  # no date, or none of this world
            pass
    reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
    if _NUMBER.fullmatch(reset) and _remaining(headers) == _EXHAUSTED:
        return max(0.0, int(reset) - now) + 1.0
    return None


def _remaining(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining"))
