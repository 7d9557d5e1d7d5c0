"""A run's settings as the journal keeps them, so that a resume runs under the same ones."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from runner.core.errors import JournalError
from runner.core.settings import Settings, TierSettings


def to_json(settings: Settings) -> dict[str, Any]:
    """Turn settings into JSON values."""
    return asdict(settings)


def from_json(values: Mapping[str, Any]) -> Settings:
    """Turn what `to_json` made into settings again."""
    from pydantic import TypeAdapter, ValidationError

    known = {name: value for name, value in values.items() if name in Settings.__dataclass_fields__}
    if isinstance(known.get("tiers"), Mapping):
        known["tiers"] = _completed(known["tiers"])
    try:
        return TypeAdapter(Settings).validate_python(known)
    except ValidationError as error:
        raise JournalError(
            "the settings of this run cannot be read from the journal",
            hint=f"start a new run; the journal is unchanged ({error.error_count()} values do not fit).",
        ) from error


def _completed(tiers: Mapping[str, Any]) -> dict[str, Any]:
    """Give a table of tiers the thresholds that the version which wrote it did not know."""
    completed: dict[str, Any] = asdict(TierSettings())
    for tier, row in tiers.items():
        completed[tier] = completed.get(tier, {}) | row if isinstance(row, dict) else row
    return completed
