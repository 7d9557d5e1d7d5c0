"""Classify what an agent says about a failure of its service. Status codes take precedence over words."""

import re
from datetime import datetime, timedelta

from isolation.patterns import pattern
from runner.core.limits.agent_output import Fault, Final
from runner.core.limits.outage import LONGEST_LIMIT
from runner.core.limits.stall import announced_wait

_STATUS = pattern(r"\b(?:status(?: code)?:?|HTTP|API Error:?|error code:?)\s*\(?(\d{3})\b", re.IGNORECASE)
_EPOCH = pattern(r"\|\s*(1\d{9})\b")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_AGAIN_AT = pattern(
    rf"again (?:at|on) (?:({'|'.join(_MONTHS)})[a-z]* (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}}),? (?:at )?)?"
    r"(\d{1,2}):(\d\d) ?([ap])m\b(?! ?\()",
    re.IGNORECASE,
)
"""A time of day, or a date with one, on the clock of this machine: `try again at Jan 15th, 2027 8:00 AM`."""
_MINUTE = 60.0
"""Such a time leaves its seconds out, so that the limit ends within the minute that follows."""
_WORDS: dict[Fault, tuple[str, ...]] = {
    Fault.LOST: (
        "no conversation found",
        "no rollout found",
        "no (?:saved|previous) sessions? found",
        "invalid session identifier",
        "session not found",
        "thread not found",
        # These do not fit, or are refused, again with each request of the same conversation.
        "prompt is too long",
        "request (?:entity )?too large|payload too large",
        r"context[_ ]length[_ ]exceeded|maximum context length|(?:exceeds?|ran out of).{0,40}context window",
        "input is too long|conversation is too long",
        "violates? our usage policy|start a new session to continue|rephrasing the request in a new session",
        "invalid_prompt|flagged as potentially violating|content_filter",
    ),
    Fault.LIMIT: (
        "rate.?limit",
        "too many requests",
        "usage limit",
        r"hit your (?:\w+ )?limit",
        "quota exceeded",
        "resource_exhausted",
    ),
    Fault.PERMANENT: (
        "not logged in",
        r"(?:invalid|incorrect) (?:api|x-api)[ -]key",
        "missing environment variable",
        "authentication_error",
        "unauthorized",
        r"model[_ ]not[_ ]found",
        "does not exist or you do not have access",
        "permission_error",
        "invalid_request_error",
        "unsupported_value|unsupported_parameter",
        "invalid auth method",
        "to use codex with your chatgpt plan",
    ),
    Fault.TRANSIENT: (
        r"\b529\b",
        "overloaded",
        "at capacity",
        "high demand",
        "(?:unable to|cannot) connect",
        "connection (?:error|refused|reset|closed)",
        "stream disconnected",
        "idle timeout",
        "request timed out",
        "ECONN|ENOTFOUND|EAI_AGAIN",
        "fetch failed",
        "network error",
        "(?:internal )?server[ _]error",
        "bad gateway",
        "(?:service|temporarily) unavailable",
        # What answers is not the service: a network that wants a sign-in, or a proxy.
        "malformed response|<!doctype html|<html|unexpected token '?<",
        "error decoding response body|certificate",
    ),
}
_UNPAID = pattern(
    "insufficient_quota|credit balance is too low|billing_not_active|quota exceeded. check your plan|"
    "exceeded your current quota(?!.{0,300}?(?:rate.?limit|retry in))",
    re.IGNORECASE,
)
"""No money is left, which a service may report like a limit of its rate; waiting does not bring any.

Another service has the same words for a limit of its rate, and then names that, or a time.
"""
# The order decides: the first class with a match wins.
_PATTERNS = {fault: pattern("|".join(words), re.IGNORECASE) for fault, words in _WORDS.items()}
_TOO_LARGE, _LIMIT, _SERVER = 413, 429, 500
_PERMANENT = frozenset({400, 401, 402, 403, 404})
_REPEATABLE = frozenset({408, 409, 425})


def failed(words: str, *, at: float, status: int | None = None) -> Final:
    """Return the final result of a session that failed at this time of day."""
    line = " ".join(words.split())[:500] or "it failed without a message"
    fault = fault_of(line, status)
    until = 0.0
    if fault in {Fault.LIMIT, Fault.TRANSIENT}:
        epoch = _EPOCH.search(line)
        wait = announced_wait(line, LONGEST_LIMIT) if fault is Fault.LIMIT else announced_wait(line)
        named = _named_time(line, at) if fault is Fault.LIMIT else 0.0
        until = float(epoch[1]) if epoch else named or (at + wait if wait else 0.0)
    return Final(ok=False, message=line, fault=fault, until=until)


def _named_time(words: str, at: float) -> float:
    """Return the time of day at which a limit ends; 0 when the words name none."""
    found = _AGAIN_AT.search(words)
    if found is None:
        return 0.0
    month, day, year, hour, minute, half = found.groups()
    try:
        now = datetime.fromtimestamp(at)  # noqa: DTZ006  the words are in local time, too
        then = now.replace(
            hour=int(hour) % 12 + 12 * (half in "pP"), minute=int(minute), second=0, microsecond=0
        )
        if month:
            position = _MONTHS.index(month[:3].lower()) + 1
            ends = then.replace(year=int(year), month=position, day=int(day)).timestamp() + _MINUTE
            return max(0.0, ends)
        ends = then.timestamp() + _MINUTE
        return ends if ends > at else (then + timedelta(days=1)).timestamp() + _MINUTE
    except (ValueError, OverflowError, OSError):
        return 0.0


def fault_of(words: str, status: int | None = None) -> Fault | None:
    """Return the class of a failure; None when nothing points to the service."""
    if status is None:
        found = _STATUS.search(words)
        status = int(found[1]) if found else None
    # Before the status: a lost conversation may come with a 400 or 404, and yet a new one will work.
    if status == _TOO_LARGE or _PATTERNS[Fault.LOST].search(words):
        return Fault.LOST
    if _UNPAID.search(words):
        return Fault.PERMANENT
    if status is not None:
        if status == _LIMIT:
            return Fault.LIMIT
        if status >= _SERVER or status in _REPEATABLE:
            return Fault.TRANSIENT
        if status in _PERMANENT:
            return Fault.PERMANENT
    return next((fault for fault, pattern in _PATTERNS.items() if pattern.search(words)), None)
