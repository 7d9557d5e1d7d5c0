"""What a run has spent and will have spent, in words. Pure."""

from runner.core.model import Usage
from runner.core.text.amounts import dollars, short_count


def spent_words(usage: Usage, expected: float | None) -> str:
    """Return what was spent, and what is expected in the end: `$0.50 of ~$3.50 · 2.1k tokens`."""
    words = []
    if usage.cost_usd is not None:
        more = f" of ~{dollars(expected)}" if expected is not None and expected > usage.cost_usd else ""
        words.append(dollars(usage.cost_usd, about=usage.estimated) + more)
    if usage.tokens is not None:
        words.append(f"{short_count(usage.tokens)} tokens")
    return " · ".join(words)
