"""What a selector chooses by: the recommendation in the project's state, past sessions, learnings, backlog.

Each source may be missing or damaged; then it is empty, and the selector has one signal less. What this run
has added since its start is included, although its records are written at its end.
"""

from datetime import date
from pathlib import Path
from typing import Any

from runner.core.model import RunSnapshot
from runner.core.text.amounts import MOST
from runner.records.learnings import learnings_file, learnings_of, load_tail
from runner.records.session_record import session_record

STATE_FILES = (".claude/STATE.md", ".codex/STATE.md", ".cursor/STATE.md")
MOST_SESSIONS = 20
MOST_LEARNINGS = 50
_MOST_BYTES = 256 << 10
_MOST_ITEMS = 100
_RULE = "---"
_RECOMMENDED = ("recommended-mode", "top-priorities", "carryover-ratio", "completion-rate", "rationale")


def signals(run: RunSnapshot, checkout: Path) -> dict[str, Any]:
    """Return the signals as JSON values. Blocking."""
    own = [
        session_record(run, story, session, top=checkout)
        for story in run.stories.values()
        for session in sorted(story.sessions, key=lambda one: one.started_at)
        if session.ended_at is not None
    ]
    records = load_tail(checkout / ".orchestrator" / "metrics" / "sessions.jsonl", most_bytes=_MOST_BYTES)
    learned = load_tail(learnings_file(checkout), most_bytes=_MOST_BYTES)
    return {
        "recommendation": _recommendation(checkout),
        "sessions": _latest(records, own, "session_id", MOST_SESSIONS),
        "learnings": _latest(learned, learnings_of(run), "id", MOST_LEARNINGS),
        "backlog": [
            {
                "id": story.id,
                "title": story.title,
                "status": story.status.value,
                "flow": story.flow,
                "depends_on": list(story.depends_on),
                "reason": story.reason,
            }
            for story in run.stories.values()
        ],
    }


def _latest(
    recorded: list[dict[str, Any]], own: list[dict[str, Any]], key: str, most: int
) -> list[dict[str, Any]]:
    """Return the newest records, oldest first; a run that was resumed has some of its own in the file."""
    known = {record[key] for record in own}
    return [*(one for one in recorded if one.get(key) not in known), *own][-most:]


def _recommendation(checkout: Path) -> dict[str, Any] | None:
    """Return what the newest state file recommends for the next session; None if no file does."""
    found = [path for name in STATE_FILES if (path := checkout / name).is_file()]
    for path in sorted(found, key=_changed, reverse=True):
        fields = _front_matter(path)
        said = {name.replace("-", "_"): _plain(fields[name]) for name in _RECOMMENDED if name in fields}
        if said:
            return {"file": path.relative_to(checkout).as_posix(), **said}
    return None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _front_matter(path: Path) -> dict[str, Any]:
    # Imported here: only a run with a selector reads such a file.
    import yaml

    from runner.records.bounded_yaml import BAD_SCALARS, load_yaml

    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MOST_BYTES).splitlines()
        if not lines or lines[0].rstrip() != _RULE:
            return {}
        end = next(number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _RULE)
        fields, _ = load_yaml("\n".join(lines[1:end]))
    except (OSError, StopIteration, yaml.YAMLError, *BAD_SCALARS):
        return {}
    return fields if isinstance(fields, dict) else {}


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; YAML knows dates, and lists that hold themselves."""
    if isinstance(value, list):
        return [_scalar(item) for item in value[:_MOST_ITEMS]]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        return value if -MOST <= value <= MOST else None
    return str(value) if isinstance(value, date) else None
