"""The table of tiers in a place of settings: what may stand in it, and that its rows do not cross.

Keys are dotted and flat, such as `tiers.warn.memory-gb`, as for every setting.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from runner.core.errors import SettingsError
from runner.core.settings import BOUNDS, LITTLE_IS_GOOD, TierSettings, key_of

TIERS = ("green", "warn", "degraded")
_MOST = int(BOUNDS["max-stories"].high)
_Amount = Annotated[float, Field(allow_inf_nan=False, ge=0)]
_Count = Annotated[int, Field(ge=0)]
_Percent = Annotated[float, Field(allow_inf_nan=False, ge=0, le=100)]


class _Thresholds(BaseModel):
    """Only what was given counts, so the defaults here mean nothing."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=key_of)
    memory_gb: _Amount = 0
    swap_gb: _Amount = 0
    peers: _Count = 0
    pressure_free_percent: _Percent = 0
    disk_gb: _Amount = 0
    inodes: _Count = 0
    memory_stall_percent: _Percent = 0
    cpu_stall_percent: _Percent = 0
    io_stall_percent: _Percent = 0
    load_per_cpu: _Amount = 0


class _Row(_Thresholds):
    # A tier without any story would never end: critical, the worst one, still lets one run alone.
    stories: Annotated[int, Field(ge=1, le=_MOST)] = 1
    agents: Annotated[int, Field(ge=0, le=_MOST)] = 0


class Tiers(BaseModel):
    """The table `tiers` of one place; `green` allows what the plain settings do, so it has no caps."""

    model_config = ConfigDict(extra="forbid", strict=True)
    green: _Thresholds = _Thresholds()
    warn: _Row = _Row()
    degraded: _Row = _Row()


def flattened(tiers: Tiers) -> dict[str, Any]:
    """Give what a place has set, under dotted keys."""
    rows = {tier: getattr(tiers, tier) for tier in TIERS}
    return {
        f"tiers.{tier}.{key_of(name)}": getattr(row, name)
        for tier, row in rows.items()
        for name in row.model_fields_set
    }


def built(flat: Mapping[str, Any], origins: Mapping[str, str]) -> TierSettings:
    """Build the table from the joined values; one that contradicts itself is refused."""
    default = TierSettings()
    tiers = TierSettings(
        green=replace(default.green, **_cells(flat, "green")),
        warn=replace(default.warn, **_cells(flat, "warn")),
        degraded=replace(default.degraded, **_cells(flat, "degraded")),
    )
    _refuse_crossed(tiers, origins)
    return tiers


def siblings(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Name what is known beside an unknown key."""
    if len(keys) == 2:  # noqa: PLR2004  the table and the unknown tier
        return TIERS
    row = _Thresholds if keys[1] == "green" else _Row
    return tuple(item.alias or name for name, item in row.model_fields.items())


def wanted(keys: tuple[str, ...]) -> str:
    """Say what is allowed under these keys."""
    match keys[2:]:
        case ():
            return "a table"
        case ("stories",):
            return f"a whole number from 1 to {_MOST}"
        case ("agents",):
            return f"a whole number from 0 to {_MOST}"
        case ("peers" | "inodes",):
            return "a whole number, 0 or more"
        case (key,) if key.endswith("-percent"):
            return "a number from 0 to 100"
        case _:
            return "a number, 0 or more"


def _cells(flat: Mapping[str, Any], tier: str) -> dict[str, Any]:
    prefix = f"tiers.{tier}."
    return {
        key.removeprefix(prefix).replace("-", "_"): value
        for key, value in flat.items()
        if key.startswith(prefix)
    }


def _refuse_crossed(tiers: TierSettings, origins: Mapping[str, str]) -> None:
    """Raise where a worse tier would begin before a better one ends, or allow more."""
    for name, better, worse in _neighbours(tiers):
        upper, lower = getattr(getattr(tiers, better), name), getattr(getattr(tiers, worse), name)
        rises, key = name in LITTLE_IS_GOOD, key_of(name)
        if (upper > lower) if rises else (upper < lower):
            set_in = origins.get(f"tiers.{worse}.{key}") or origins.get(f"tiers.{better}.{key}", "")
            raise SettingsError(
                f"{set_in}: tiers.{worse}.{key} is {lower:g}, but tiers.{better}.{key} is {upper:g}",
                hint=f"{key} must not {'fall' if rises else 'rise'} from green to warn to degraded.",
            )


def _neighbours(tiers: TierSettings) -> Iterator[tuple[str, str, str]]:
    """Give every column of the table with each two tiers that stand beside each other in it."""
    yield from ((item.name, "green", "warn") for item in fields(tiers.green))
    yield from ((item.name, "warn", "degraded") for item in fields(tiers.warn))
