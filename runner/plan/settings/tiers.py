"""The rows of the tiers must not cross: a worse tier begins where a better one ends, and allows less."""

from collections.abc import Iterator, Mapping

from msgspec.structs import fields

from runner.core.declaration import key_of
from runner.core.errors import SettingsError
from runner.core.tier_settings import LITTLE_IS_GOOD, TierSettings


def refuse_crossed(tiers: TierSettings, origins: Mapping[str, str]) -> None:
    """Raise where a worse tier would begin before a better one ends, or allow more."""
    for name, better, worse in _neighbors(tiers):
        upper, lower = getattr(getattr(tiers, better), name), getattr(getattr(tiers, worse), name)
        rises, key = name in LITTLE_IS_GOOD, key_of(name)
        if (upper > lower) if rises else (upper < lower):
            set_in = origins.get(f"tiers.{worse}.{key}") or origins.get(f"tiers.{better}.{key}", "")
            raise SettingsError(
                f"{set_in}: tiers.{worse}.{key} is {lower:g}, but tiers.{better}.{key} is {upper:g}",
                hint=f"{key} must not {'fall' if rises else 'rise'} from green to warn to degraded.",
            )


def _neighbors(tiers: TierSettings) -> Iterator[tuple[str, str, str]]:
    """Yield every column of the table with each pair of adjacent tiers that have it."""
    yield from ((item.name, "green", "warn") for item in fields(tiers.green))
    yield from ((item.name, "warn", "degraded") for item in fields(tiers.warn))
