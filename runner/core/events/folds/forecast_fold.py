"""From what a run has foreseen to its state."""

from runner.core.events import landing as ld
from runner.core.forecast.clashes import Clash, Forecast


def foreseen(body: ld.ConflictsForeseen) -> Forecast:
    """Return a forecast as its event records it."""
    clashes = tuple(
        Clash(stories=tuple(each["stories"]), files=tuple(each["files"]), reason=str(each.get("reason", "")))
        for each in body.clashes
    )
    return Forecast(
        stories=body.order,
        clashes=clashes,
        order=body.order,
        lost=body.lost,
        uncommitted=body.uncommitted,
        onto=body.onto,
        more=body.more,
    )
