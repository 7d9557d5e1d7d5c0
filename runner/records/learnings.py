"""What sessions teach about the selector: one learning for each session whose mode it chose.

The file is shared with other programs. Only learnings that say whether a selection was right count here; all
others, and lines that are no learnings, are passed over.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runner.core.limits.confidence import Accuracy
from runner.core.limits.waves import unrecovered_failures
from runner.core.model import Outcome, RunSnapshot, SessionRecord
from runner.core.text.amounts import amount
from runner.core.text.instants import iso

ACCURACY = "mode-selector-accuracy"
KEY = ("id",)
_SECONDS_VALID = 30 * 24 * 3600
_MOST_BYTES = 1 << 20
_RIGHT = frozenset({Outcome.OK, Outcome.PARTIAL})
_WRONG = frozenset({Outcome.FAILED, Outcome.STALLED, Outcome.STUCK})


def learnings_file(checkout: Path) -> Path:
    """Return the file that holds the learnings of a repository."""
    return checkout / ".orchestrator" / "metrics" / "learnings.jsonl"


def learnings_of(run: RunSnapshot) -> list[dict[str, Any]]:
    """Return what the sessions of a run that have ended teach about the selector."""
    return [
        _learning(session)
        for story in run.stories.values()
        for session in story.sessions
        if session.selected is not None and session.mode and session.ended_at and not session.unserved
    ]


def load_accuracies(checkout: Path) -> tuple[Accuracy, ...]:
    """Read the learnings that say how sure a selector was and whether it was right; none if unreadable."""
    return tuple(accuracies(load_tail(learnings_file(checkout))))


def accuracies(learnings: Iterable[Mapping[str, Any]]) -> Iterable[Accuracy]:
    """Return what learnings say about the accuracy of selections."""
    for learning in learnings:
        confidence, right = amount(learning.get("confidence"), most=1), learning.get("accurate")
        if learning.get("type") == ACCURACY and isinstance(right, bool) and confidence is not None:
            yield Accuracy(confidence=float(confidence), right=right)


def load_tail(path: Path, *, most_bytes: int = _MOST_BYTES) -> list[dict[str, Any]]:
    """Read the newest records of a file of JSON lines; what is no record is passed over."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most_bytes))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    found = [_parsed(line) for line in lines[size > most_bytes :]]
    return [record for record in found if record]


def _learning(session: SessionRecord) -> dict[str, Any]:
    """Build the learning of one session; `accurate` is null where the session says nothing about it."""
    outcome, ended = session.outcome, session.ended_at or session.started_at
    right = _accurate(session)
    words = {True: "was right", False: "was wrong", None: "was not tested"}[right]
    said = f"The selector chose {session.mode} with a confidence of {session.selected:.2f}"
    return {
        "id": f"{ACCURACY}-{session.id}",
        "type": ACCURACY,
        "subject": f"{session.mode}-selected-vs-{session.mode}",
        "insight": f"{said}, and {words}.",
        "evidence": f"{session.id}: {outcome}",
        "confidence": session.selected,
        "source_session": session.id,
        "created_at": iso(ended),
        "expires_at": iso(ended + _SECONDS_VALID),
        "schema_version": 1,
        "recommended": session.mode,
        "chosen": session.mode,
        "outcome": str(outcome),
        "accurate": right,
    }


def _accurate(session: SessionRecord) -> bool | None:
    """Whether the choice was right; a session that you stopped, or that asks you, does not show it."""
    spiralled = session.summary.get("spiral", 0) > 0
    if spiralled or unrecovered_failures(session.summary, session.waves):
        return False
    if session.outcome in _RIGHT:
        return True
    return False if session.outcome in _WRONG else None


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
