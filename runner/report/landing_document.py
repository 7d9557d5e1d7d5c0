"""Landings as JSON values, as `status`, `run` and `resume` print them."""

from typing import Any

from runner.core.progress.landing import LandingProgress
from runner.core.text.instants import iso, iso_or_none

INTERRUPTED = "interrupted"


def landing_document(one: LandingProgress, *, alive: bool) -> dict[str, Any]:
    """Return a landing; `alive` means that its process is still there."""
    one = one if alive else one.at_rest()
    return {
        "landing_id": one.id,
        "onto": one.onto,
        "state": one.state.value if alive or one.state.final else INTERRUPTED,
        "style": one.style,
        "started_at": iso(one.started_at),
        "ended_at": iso_or_none(one.ended_at),
        "before": one.before or one.tip,
        "after": one.after or None,
        "train": [
            {"id": story, "state": car.value, "reason": one.left[story].reason if story in one.left else None}
            for story, car in one.cars().items()
        ],
        "verifying": [list(batch.stories) for batch in one.in_flight],
        "verify_runs": one.verify_runs,
        "rebuilds": one.rebuilds,
        "reason": one.reason or None,
    }
