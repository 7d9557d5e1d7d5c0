"""What a CI system shows beside the code: annotations of GitHub, code quality of GitLab.

Both name the file of the story. Nothing that an agent wrote can end a command or begin another.
"""

import hashlib
import json
from collections.abc import Iterator

from runner.core.model import Status, StorySnapshot
from runner.core.text.screen import neutral, shorten
from runner.core.text.words import count, label
from runner.report.report_data import BAD, ReportData

MOST = 10
"""How many annotations of a kind GitHub shows for a step."""

_LONGEST = 1000
_KINDS = {Status.FAILED: "error", Status.STOPPED: "error", Status.PARKED: "warning", Status.SKIPPED: "notice"}
_SEVERITIES = {"error": "major", "warning": "minor", "notice": "info"}


def github(data: ReportData) -> str:
    """Give workflow commands, the worst first; what would not be shown is summed up in the last."""
    told: dict[str, list[str]] = {"error": [], "warning": [], "notice": []}
    if data.in_progress:
        told["notice"].append(_command("notice", "autopilot-multi", "", "the run is still in progress"))
    told["error"] += [_command("error", "autopilot-multi", "", problem) for problem in data.problems]
    for story, kind in _noted(data):
        title = f"{story.id}: {label(story.status)}"
        told[kind].append(_command(kind, title, data.sources.get(story.id, ""), _reason(story)))
    lines = []
    for kind, commands in told.items():
        shown = commands if len(commands) <= MOST else commands[: MOST - 1]
        lines += shown
        if len(shown) < len(commands):
            more = count(len(commands) - len(shown), "more story", "more stories")
            lines.append(_command(kind, "autopilot-multi", "", f"{more}; the summary has all of them"))
    return "".join(f"{line}\n" for line in lines)


def gitlab(data: ReportData) -> str:
    """Give a code quality report: one entry for each story that is not done."""
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
        if story.status in BAD or story.status is Status.SKIPPED:
            yield story, _KINDS[story.status]


def _reason(story: StorySnapshot) -> str:
    then = f"; next: {neutral(story.next)}" if story.next else ""
    return shorten(neutral(story.reason), _LONGEST) + then


def _command(kind: str, title: str, file: str, message: str) -> str:
    properties = {"title": title, **({"file": file} if file else {})}
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {told}::{_data(message)}"


def _data(text: str) -> str:
    return neutral(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
