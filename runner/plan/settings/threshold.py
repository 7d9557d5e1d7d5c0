"""The confidence threshold of a run: `auto` is derived from learnings once, before anything starts."""

from msgspec.structs import replace

from isolation.git.repository import Repository
from runner.core.limits.confidence import derived_threshold, discouraged
from runner.plan.settings.load import Loaded
from runner.records.learnings import load_accuracies
from runner.records.telemetry import records_checkout


def with_threshold(loaded: Loaded, repository: Repository) -> Loaded:
    """Return the settings with a number as the threshold, and with what there is to say about it."""
    settings = loaded.settings
    if settings.confidence_threshold is not None:
        warning = discouraged(settings.confidence_threshold)
        return replace(loaded, notes=(*loaded.notes, warning)) if warning else loaded
    found = derived_threshold(load_accuracies(records_checkout(repository.paths)))
    note = f"confidence-threshold auto: {found.threshold:g} ({found.because})"
    settings = replace(settings, confidence_threshold=found.threshold)
    return replace(loaded, settings=settings, notes=(*loaded.notes, note))
