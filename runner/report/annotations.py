"""What a CI system shows next to the code: GitHub annotations, a GitLab code quality report.

Both name the file of the story. Text from agents is escaped, so it cannot inject workflow commands.
"""

import hashlib
import json
from collections.abc import Iterator

from runner.core.limits.kill_switches import ORDERLY
from runner.core.model import Status, StorySnapshot
from runner.core.text.screen import neutral, shorten
from runner.core.text.words import because, count, label, recovery
from runner.report.report_data import BAD, ReportData

MOST = 10
"""How many annotations of a kind GitHub shows for a step."""

_LONGEST = 1000
_KINDS = {Status.FAILED: "error", Status.STOPPED: "error", Status.PARKED: "warning", Status.SKIPPED: "notice"}
_SEVERITIES = {"error": "major", "warning": "minor", "notice": "info"}


def github(data: ReportData) -> str:
    """Return workflow commands, worst first; the last one sums up what GitHub would not show."""
    commands_by_kind: dict[str, list[str]] = {"error": [], "warning": [], "notice": []}
    if data.in_progress:
        commands_by_kind["notice"].append(
            _command("notice", "autopilot-multi", "", "the run is still in progress")
        )
    commands_by_kind["error"] += [
        _command("error", "autopilot-multi", "", problem) for problem in data.problems
    ]
    for story, kind in _noted(data):
        title = f"{story.id}: {label(story.status)}"
        commands_by_kind[kind].append(_command(kind, title, data.sources.get(story.id, ""), _reason(story)))
    lines = []
    for kind, commands in commands_by_kind.items():
        shown = commands if len(commands) <= MOST else commands[: MOST - 1]
        lines += shown
        if len(shown) < len(commands):
            more = count(len(commands) - len(shown), "more story", "more stories")
            lines.append(_command(kind, "autopilot-multi", "", f"{more}; see the summary for all of them"))
    return "".join(f"{line}\n" for line in lines)


def gitlab(data: ReportData) -> str:
    """Return a code quality report: one entry per story that needs attention or was skipped."""
    entries = []
    for story, kind in _noted(data):
        path = data.sources.get(story.id, "")
        mark = hashlib.sha256(f"{story.id}\n{story.status.value}".encode()).hexdigest()
        entries.append(
            {
                "description": f"{story.id} {label(story.status)}: {_reason(story)}",
                "check_name": f"autopilot-multi/{story.status.value}",
                "fingerprint": mark,
                "severity": _SEVERITIES[kind],
                "location": {"path": path or "stories", "lines": {"begin": 1}},
            }
        )
    return json.dumps(entries, indent=2) + "\n"


def _noted(data: ReportData) -> Iterator[tuple[StorySnapshot, str]]:
    for story in data.run.stories.values():
        orderly = story.kill_switch is not None and story.kill_switch.name in ORDERLY
        if story.status in BAD or story.status is Status.SKIPPED:
            yield story, "warning" if orderly else _KINDS[story.status]


def _reason(story: StorySnapshot) -> str:
    hint = recovery(story.kill_switch).rstrip(".")
    following = [f"; {hint}"] * bool(hint) + [f"; next: {neutral(story.next)}"] * bool(story.next)
    return shorten(because(story), _LONGEST) + "".join(following)


def _command(kind: str, title: str, file: str, message: str) -> str:
    properties = {"title": title, **({"file": file} if file else {})}
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {shown}::{_data(message)}"


def _data(text: str) -> str:
    return neutral(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
