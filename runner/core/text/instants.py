"""Instants and durations as text: ISO-8601 for machines, clock times and durations for people."""

import time
from datetime import UTC, datetime

_MINUTE = 60
_HOUR = 3600
_DAY = 24 * _HOUR


def iso(at: float) -> str:
    """Return an instant as ISO-8601 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(at, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(at: float | None) -> str | None:
    """Return an instant as ISO-8601, or None when it has not come yet."""
    return None if at is None else iso(at)


def from_iso(text: str) -> float | None:
    """Parse an instant; None when the text is not one."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def date_and_time(at: float) -> str:
    """Return the local date and time, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def clock(at: float) -> str:
    """Return the local time of day, to the second."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def time_of_day(at: float, now: float) -> str:
    """Return the local time of day, to the minute; with the date if it is not within a day from now."""
    form = "%H:%M" if abs(at - now) < _DAY else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at))


def elapsed_seconds(started: float | None, ended: float | None, now: float | None = None) -> float | None:
    """Return the time from `started` to `ended`, or to `now` while it lasts; None where either is unknown."""
    until = now if ended is None else ended
    return None if started is None or until is None else until - started


def span(seconds: float) -> str:
    """Return a duration with its units: `12.3 s`, `4 min 05 s`, `1 h 12 min`."""
    # Judged after rounding, or 59.97 would read "60.0 s".
    if round(seconds, 1) < _MINUTE:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"


def stopwatch(seconds: float) -> str:
    """Return a duration as a running clock shows it: `0:07`, `12:03`, `1:12:03`."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, _HOUR)
    minutes, left = divmod(rest, _MINUTE)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
