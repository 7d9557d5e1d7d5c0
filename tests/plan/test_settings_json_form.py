"""Settings in the journal: a resume gets what the run was started with, also from an older version."""

import json

import pytest
from msgspec.structs import replace

from runner.core.errors import JournalError
from runner.core.settings import Settings
from runner.core.tier_settings import TierSettings
from runner.plan.settings.json_form import from_json, to_json


def test_what_was_written_is_read_again() -> None:
    """Every threshold and cap of the tiers, the window and the need survive the journal's JSON."""
    table = TierSettings()
    tiers = replace(table, warn=replace(table.warn, disk_gb=4.5, stories=3), degraded=replace(table.degraded))
    settings = Settings(window="fixed", memory_per_story_gb=2.5, tiers=tiers)
    assert from_json(json.loads(json.dumps(to_json(settings)))) == settings


def test_thresholds_that_an_older_version_did_not_know_have_their_defaults() -> None:
    """A run that was started before the update can be resumed after it."""
    written = json.loads(json.dumps(to_json(Settings())))
    written["tiers"] = {"green": {"memory_gb": 9.0}, "warn": {"swap_gb": 1.5, "peers": 3}}
    del written["window"]
    del written["memory_per_story_gb"]
    settings = from_json(written)
    assert (settings.tiers.green.memory_gb, settings.tiers.green.disk_gb) == (9.0, 5)
    assert (settings.tiers.warn.swap_gb, settings.tiers.warn.stories) == (1.5, 4)
    assert settings.tiers.degraded == TierSettings().degraded
    assert (settings.window, settings.memory_per_story_gb) == ("adaptive", 0.5)


@pytest.mark.parametrize("tiers", [3, {"warn": 3}, {"warn": {"stories": "many"}}])
def test_a_table_that_makes_no_sense_is_refused(tiers: object) -> None:
    """Damage is an error with a way out, not a guess."""
    with pytest.raises(JournalError, match="cannot read the settings of this run from the journal"):
        from_json(to_json(Settings()) | {"tiers": tiers})
