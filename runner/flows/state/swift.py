"""The usual form of a file, read in one match: what makes a thousand files cheap to watch.

A shortcut, never a second opinion: a text of any other form gives None and is read carefully, and
what is read here is exactly what the careful reading gives. Nothing with a problem is read here.
"""

import re

from runner.flows.state.dialects.rich import (
    BLOCKERS,
    COMPLETED,
    DECISIONS,
    HEADERS,
    RETRIES,
    SECTIONS,
    SESSION,
    SESSION_KEYS,
    completed_row,
    retry_row,
    table_head,
)
from runner.flows.state.model import Dialect, LastSession, Phase, Position, StateFile, StepStatus, Tracker
from runner.flows.state.text.codec import decode_bullet, decode_row, decode_scalar
from runner.flows.state.text.listing import RowKind, row_kind
from runner.flows.state.vocabulary import RICH_NAMES, Vocabulary

_PLAIN = r"([A-Za-z](?:[A-Za-z0-9 &/,-]*[A-Za-z0-9])?)\n"
_STATUS = rf"status: ({'|'.join(StepStatus)})\n"
_TRACKER = r"retry_count: ([0-3])\n(?:tracker: (jira|ado|local)\n)?"
_WORDS = r"sub_step: ([0-9](?:[^\n\"'#<←\[\]{}\r]*[^\s\"'#<←\[\]{}])?)\n"

_AUTODEV = re.compile(
    r"# Autodev State\n\n?## Current Step\nflow: ([a-z-]+)\nstep: ([a-z0-9]+)\nname: "
    + _PLAIN
    + _STATUS
    + r"sub_step:\n  phase: (0|[1-9][0-9]{0,8})\n  name: ([a-z0-9]+(?:-[a-z0-9]+)*)\n"
    + r'  detail: "([^"\\\n\r]*)"\n'
    + r"retry_count: ([0-3])\ncycle: ([1-9][0-9]{0,8})\n(?:tracker: (jira|ado|local)\n)?"
)
_POINTER = re.compile(
    r"# Autopilot State\n\n?## Current Step\nflow: ([a-z-]+)\nstep: ([a-z0-9]+)\nname: "
    + _PLAIN
    + _STATUS
    + _WORDS
    + _TRACKER
)
_RICH = re.compile(
    r"# Autopilot State\n\n?## Current Step\nstep: ([a-z0-9]+)\nname: " + _PLAIN + _STATUS + _WORDS + _TRACKER
)
_UNUSUAL = ("\n#", "\n ", "\n\t", "\r", "\ufeff", "```", "~~~", "<!--", "<<<<<<<", ">>>>>>>")
_EXACT = {title: name for name, title in SECTIONS.items()}
_NAMES = frozenset({*SECTIONS, "current step", "autodev state"})
_SESSION = re.compile(
    "".join(rf"{key}:(?: ([A-Za-z0-9](?:[^\n#<←]*[A-Za-z0-9.])?))?\n" for key in SESSION_KEYS) + r"\n*"
)
_HEADS = {title: ("\n" + "\n".join(table_head(title)) + "\n", HEADERS[title][0].lower()) for title in HEADERS}
_STATUSES = {status.value: status for status in StepStatus}
_TRACKERS: dict[str | None, Tracker | None] = {None: None, **{one.value: one for one in Tracker}}
_ONE_CYCLE = frozenset({"greenfield", "meta-repo"})


def read_usual(text: str, vocabulary: Vocabulary) -> StateFile | None:
    """Read a file of the usual form; None for all others."""
    if text.startswith("# Autodev State\n"):
        return _autodev(text, vocabulary)
    if "\nflow: " in text[:60]:
        return _pointer(text, vocabulary)
    return _rich(text, vocabulary)


def _autodev(text: str, vocabulary: Vocabulary) -> StateFile | None:
    found = _AUTODEV.match(text)
    if found is None or not _plain_rest(text, found.end()):
        return None
    flow, step, name, status, number, token, detail, retries, cycle, tracker = found.groups()
    if not vocabulary.allows_step(Dialect.AUTODEV, flow, step):
        return None
    phase = int(number)
    if (token == "awaiting-invocation" and phase) or (cycle != "1" and flow in _ONE_CYCLE):  # noqa: S105  a phase's name
        return None
    return StateFile(
        dialect=Dialect.AUTODEV,
        flow=flow,
        step=step,
        name=name,
        status=_STATUSES[status],
        sub_step=Phase(phase=phase, name=token, detail=detail),
        retry_count=int(retries),
        cycle=int(cycle),
        tracker=_TRACKERS[tracker],
        text=text,
    )


def _pointer(text: str, vocabulary: Vocabulary) -> StateFile | None:
    found = _POINTER.match(text)
    if found is None or not _plain_rest(text, found.end()):
        return None
    flow, step, name, status, sub_step, retries, tracker = found.groups()
    if flow == "meta-repo" or not vocabulary.allows_step(Dialect.POINTER, flow, step):
        return None
    return StateFile(
        dialect=Dialect.POINTER,
        flow=flow,
        step=step,
        name=name,
        status=_STATUSES[status],
        sub_step=Position(text=sub_step),
        retry_count=int(retries),
        tracker=_TRACKERS[tracker],
        text=text,
    )


def _plain_rest(text: str, end: int) -> bool:
    """Tell whether what follows the block cannot change how it is read."""
    if end == len(text):
        return True
    rest = text[end:].lower()
    lead = rest.lstrip("\n")
    return lead.startswith("## ") and not any(
        sign in rest for sign in ("current", "autodev", "\0", "<<<<<<<", ">>>>>>>")
    )


def _rich(text: str, vocabulary: Vocabulary) -> StateFile | None:
    found = _RICH.match(text)
    if found is None:
        return None
    step, name, status, sub_step, retries, tracker = found.groups()
    if name not in RICH_NAMES or not vocabulary.allows_step(Dialect.RICH, None, step):
        return None
    bodies = _bodies(text[found.end() - 1 :])
    if bodies is None:
        return None
    completed = _rows(bodies.get(COMPLETED, ""), COMPLETED)
    decisions = _bullets(bodies.get(DECISIONS, ""))
    session = _session(bodies.get(SESSION, ""))
    retry_log = _rows(bodies.get(RETRIES, ""), RETRIES)
    blockers = _bullets(bodies.get(BLOCKERS, ""))
    if completed is None or decisions is None or session is None or retry_log is None or blockers is None:
        return None
    return StateFile(
        dialect=Dialect.RICH,
        step=step,
        name=name,
        status=_STATUSES[status],
        sub_step=Position(text=sub_step),
        retry_count=int(retries),
        tracker=_TRACKERS[tracker],
        completed=tuple(map(completed_row, completed)),
        decisions=decisions,
        last_session=LastSession(**session) if any(session.values()) else None,
        retry_log=tuple(map(retry_row, retry_log)),
        blockers=blockers,
        text=text,
    )


def _bodies(rest: str) -> dict[str, str] | None:
    """Split what follows the block, from its last newline on, into sections by title.

    The sections of the dialect are looked at line by line afterwards; foreign ones must not hold
    anything that could be more than their own text.
    """
    lead, *parts = rest.split("\n## ")
    if lead.strip("\n"):
        return None
    bodies: dict[str, str] = {}
    for part in parts:
        title, _, body = part.partition("\n")
        kind = _EXACT.get(title)
        if kind is None:
            if " ".join(title.strip(" \t\r#").lower().split()) in _NAMES or _is_unusual(part):
                return None
        elif bodies.setdefault(kind, body) is not body:
            return None
    return bodies


def _is_unusual(part: str) -> bool:
    return any(sign in part for sign in _UNUSUAL)


def _rows(body: str, title: str) -> list[tuple[str, ...]] | None:
    """Read a table; one that starts as we write it needs no look at its header."""
    rows: list[tuple[str, ...]] = []
    head, first = _HEADS[title]
    headed = body.startswith(head)
    for line in (body[len(head) :] if headed else body).split("\n"):
        if line[:1] == "|":
            cells = decode_row(line[1:])
            kind = row_kind(cells, first, headed=headed or bool(rows))
            if kind is RowKind.VALUE:
                rows.append(cells)
            headed = headed or kind is RowKind.HEAD
        elif line:
            return None
    return rows


def _bullets(body: str) -> tuple[str, ...] | None:
    values = []
    for line in body.split("\n"):
        if line[:2] == "- ":
            value = decode_bullet(line[2:])
            if value is not None:
                values.append(value)
        elif line:
            return None
    return tuple(values)


def _session(body: str) -> dict[str, str] | None:
    plain = _SESSION.match(body)
    if plain is not None and plain.end() == len(body):
        return dict(zip(SESSION_KEYS, plain.groups(""), strict=True))
    values: dict[str, str] = {}
    for line in body.split("\n"):
        if not line:
            continue
        name, _, raw = line.partition(":")
        if name not in SESSION_KEYS or name in values or raw[:2] == " [":
            return None
        values[name] = decode_scalar(raw.lstrip(" \t"), word=False).value
    return values
