"""The agents of a session: which of its failures a retry has made up for.

A session may report counts for all its agents, for each wave, or both. What it does not report is unknown,
and does not count as a failure.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def unrecovered_failures(summary: Mapping[str, int], waves: Sequence[Any] | None) -> int | None:
    """Return how many agents failed for good; None if the session reports nothing of it.

    A failed agent that was retried successfully is counted as `failed` and as `recovered`. Waves that say
    how many recovered know more than a summary that does not.
    """
    counted = [counts for counts in map(_counts, waves or ()) if "failed" in counts]
    if "failed" in summary and ("recovered" in summary or not _tell_recovered(counted)):
        return _left(summary)
    if counted:
        return sum(map(_left, counted))
    return None


def _left(counts: Mapping[str, int]) -> int:
    return max(0, counts["failed"] - max(0, counts.get("recovered", 0)))


def _tell_recovered(waves: Sequence[Mapping[str, int]]) -> bool:
    return any("recovered" in counts for counts in waves)


def _counts(wave: Any) -> dict[str, int]:
    """Return the counts of one wave, which are in the wave or in its own `agent_summary`."""
    if not isinstance(wave, Mapping):
        return {}
    inner = wave.get("agent_summary")
    counts = inner if isinstance(inner, Mapping) else wave
    return {
        name: value
        for name in ("failed", "recovered")
        if isinstance(value := counts.get(name), int) and not isinstance(value, bool)
    }
