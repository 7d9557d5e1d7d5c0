"""A forecast as JSON values."""

from typing import Any

from msgspec.structs import replace

from runner.core.forecast.clashes import Clash, Forecast
from runner.core.model import RunSnapshot
from runner.core.text.conflicts import open_clashes


def forecast_document(made: Forecast) -> dict[str, Any]:
    """Return a forecast as JSON values."""
    return {
        "onto": made.onto or None,
        "conflicts": [clash_document(clash) for clash in made.clashes],
        "more": made.more,
        "order": list(made.order),
        "left_out": list(made.lost),
        "uncommitted": list(made.uncommitted),
    }


def clash_document(clash: Clash) -> dict[str, Any]:
    """Return one conflict as JSON values; that with the target branch names one story."""
    return {"stories": list(clash.stories), "files": list(clash.files), "reason": clash.reason or None}


def run_forecast(run: RunSnapshot) -> dict[str, Any] | None:
    """Return what is foreseen for a run; None if no conflict is, or none is left."""
    clashes = open_clashes(run)
    if run.forecast is None or not clashes:
        return None
    return forecast_document(replace(run.forecast, clashes=clashes))
