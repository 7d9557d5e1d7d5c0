"""Work item trackers: which one a repository uses, the gate before steps that need it, the pending marker.

This program never talks to a tracker: agents do. Without one nothing is lost, because the files that would
have become work items get the line `Tracker: pending`.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from isolation.files.disk import replace_file
from isolation.files.plain import read_plain
from isolation.patterns import pattern
from runner.core import choose
from runner.core.choose import Question
from runner.core.errors import SettingsError, SystemFaultError
from runner.core.flow import FlowStep
from runner.core.text.names import did_you_mean, one_line
from runner.flows.state.model import Tracker

PENDING = "Tracker: pending"

SERVER_FILES = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", "mcp.json")
_SERVER_KEYS = ("mcpServers", "servers")
_MOST = 1 << 20
_HEAD = pattern(r"(?:\ufeff?---\r?\n(?s:.*?)\n---[ \t]*(?:\r?\n|\Z))?(?:\s*#[^\r\n]*(?:\r?\n|\Z))?")
_MARKED = pattern(r"(?mi)^[ \t>*-]*tracker\**[ \t]*:")


_TITLES: Mapping[Tracker, str] = {Tracker.JIRA: "Jira", Tracker.ADO: "Azure DevOps"}
_SERVERS: Mapping[str, Tracker] = {
    "jira-mcp-server": Tracker.JIRA,
    "azuredevops": Tracker.ADO,
}
"""Names of MCP servers, in lower case; a user-defined one has the prefix `user-`."""


class Detection(Struct, frozen=True, kw_only=True):
    """Which tracker to use and why; if the user must decide, `name` is None and `question` is set.

    `choices` are the meanings of the question's letters. `notes` name files that cannot be read.
    """

    name: Tracker | None
    reason: str
    question: Question | None = None
    choices: Mapping[str, Tracker] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def detect(workspace: Path, *, setting: str = "", recorded: str = "") -> Detection:
    """Find the tracker: from the settings, else from a state file, else from the configured servers."""
    for text, origin in ((setting, "the settings"), (recorded, "the state file")):
        if text:
            return Detection(name=_named(text, origin), reason=f"{origin} say so")
    found: dict[Tracker, str] = {}
    notes: list[str] = []
    for file in SERVER_FILES:
        for server in _servers(workspace / file, file, notes):
            plain = server.lower().removeprefix("user-")
            if plain in _SERVERS:
                found.setdefault(_SERVERS[plain], f"{file} names {one_line(server)}")
    if len(found) > 1:
        return _both(found, notes)
    for name, reason in found.items():
        return Detection(name=name, reason=reason, notes=tuple(notes))
    return Detection(name=Tracker.LOCAL, reason="no tracker is configured", notes=tuple(notes))


def _named(text: str, origin: str) -> Tracker:
    try:
        return Tracker(text.strip().lower())
    except ValueError:
        known = [name.value for name in Tracker]
        hint = f"{did_you_mean(text, known)} known trackers: {', '.join(known)}.".strip()
        raise SettingsError(f"{origin} name the tracker '{one_line(text)}'", hint=hint) from None


def _both(found: Mapping[Tracker, str], notes: Iterable[str]) -> Detection:
    names = [name for name in Tracker if name in found]
    question = choose.decision(
        "Two work item trackers are configured — which one?",
        [f"{_TITLES[name]} ({found[name]})" for name in names],
        recommendation="A" if names[0] is next(iter(found)) else "B",
        why=f"it is named first: {next(iter(found.values()))}",
    )
    choices = dict(zip(choose.LETTERS, names, strict=False))
    return Detection(
        name=None,
        reason="two trackers are configured",
        question=question,
        choices=choices,
        notes=tuple(notes),
    )


def _servers(path: Path, file: str, notes: list[str]) -> list[str]:
    try:
        data: Any = json.loads(read_plain(path, _MOST))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{file} cannot be read, so no tracker was found in it: {error}")
        return []
    tables = [data.get(key) for key in _SERVER_KEYS] if isinstance(data, dict) else []
    return [str(name) for table in tables if isinstance(table, dict) for name in table]


def gate(step: FlowStep, tracker: Tracker, *, authenticated: bool) -> Question | None:
    """Return the question before a step that creates work items, if its tracker denies access."""
    if not step.tracker or tracker is Tracker.LOCAL or authenticated:
        return None
    return choose.tracker_failed()


def mark_pending(files: Iterable[Path]) -> tuple[Path, ...]:
    """Put the pending marker below the heading of files without a tracker line; return the changed files."""
    changed = []
    for path in files:
        try:
            text = path.read_bytes().decode("utf-8", "surrogateescape")
            if _MARKED.search(text):
                continue
            replace_file(
                path, _marked(text).encode("utf-8", "surrogateescape"), mode=path.stat().st_mode & 0o777
            )
        except OSError as error:
            raise _refused(path, error) from error
        changed.append(path)
    return tuple(changed)


def _marked(text: str) -> str:
    """Insert the marker after front matter and heading, as its own paragraph."""
    end = "\r\n" if "\r\n" in text else "\n"
    top = _HEAD.match(text)
    head, rest = (text[: top.end()], text[top.end() :]) if top else ("", text)
    if head and not head.endswith("\n"):
        head += end
    before = end if head else ""
    after = end if rest and not rest.startswith(("\n", "\r\n")) else ""
    return f"{head}{before}{PENDING}{end}{after}{rest}"


def _refused(path: Path, error: OSError) -> SystemFaultError:
    return SystemFaultError(
        f"{path} cannot be written: {error.strerror or error}", hint="check the disk and its permissions."
    )
