"""A story as JSON, for the journal, and as a digest that shows whether it is still the same work."""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from isolation.decoding import from_values
from runner.core.model import Story

_LIMITS = frozenset({"escalate", "max_attempts", "story_minutes", "verify_minutes"})
_NOT_THE_WORK = (
    _LIMITS
    | {"source", "priority", "estimate", "mode", "allow_no_change", "ports", "labels", "origin"}
    | {
        "best_of",
        "review",
        "needs",
    }
)
"""Its file, urgency, length, mode, limits, ports, labels, origin, place and judges do not change the work."""


def to_json(story: Story) -> dict[str, Any]:
    """Turn a story into JSON values; tuples become lists."""
    values = structs.asdict(story)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def from_json(data: Mapping[str, Any]) -> Story:
    """Turn what `to_json` made into a story again; fields of a newer program are ignored.

    Raises ValueError for anything else.
    """
    return from_values(dict(data), Story)


def require_entry(data: Any) -> None:
    """Raise ValueError or TypeError unless a run can be shown with this story of its plan."""
    if not isinstance(data, Mapping):
        raise TypeError("a story of its plan is no table")
    texts = (data.get("id"), data.get("title"), data.get("flow", ""))
    needs, attempts = data.get("depends_on"), data.get("max_attempts")
    if not all(isinstance(text, str) for text in texts) or not isinstance(attempts, int | None):
        raise ValueError("a story of its plan has no id or title, or one that is not text")
    if not isinstance(needs, list | tuple) or not all(isinstance(name, str) for name in needs):
        raise ValueError("a story of its plan does not say what it depends on")


def digest(story: Story) -> str:
    """Hash everything that makes the work what it is."""
    import hashlib  # most commands read stories and hash none
    import json

    work = {name: value for name, value in to_json(story).items() if name not in _NOT_THE_WORK}
    if not story.repo:
        del work["repo"]  # as before stories could work in other repositories
    text = json.dumps(work, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
