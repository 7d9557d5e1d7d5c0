"""What the task and epic files of a flow say, and how an id is written into them. Pure: text in, text out.

A file with `epic` in its name holds epics: one below each heading that begins with `Epic`, else one below
each heading of the second level, else one. Any other file is one task. The line `Tracker: ID` below the
heading says which work item stands for it; `Tracker: pending` says that there is none yet.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from isolation.patterns import pattern
from runner.core.text.names import one_line

PENDING = "pending"
MOST_TITLE = 200

_HEAD = pattern(r"(?:\ufeff?---\r?\n(?s:.*?)\n---[ \t]*(?:\r?\n|\Z))?(?:\s*#[^\n]*(?:\n|\Z))?")
_LINE = pattern(r"(?mi)^(?P<label>[ \t>*-]*tracker\**[ \t]*:\**[ \t]*)(?P<value>[^\r\n]*)")
_STRAY = pattern(r"(?mi)^[ \t>*-]*tracker\**[ \t]*:\**[ \t]*pending[ \t]*(?:\r?\n)+")
_ID = pattern(r"[\[`*#]*(?P<id>[A-Z][A-Z0-9_]+-\d+|\d+)(?![\w-])")
_EPIC_LINE = pattern(r"(?mi)^[ \t>*-]*(?:parent[ \t]+)?epic\**[ \t]*:\**[ \t]*(?P<name>[^\r\n]+)")
_DEPENDS = pattern(r"(?i)[ \t>*-]*(?:depends[ \t]+on|dependencies|blocked[ \t]+by)\b\**[ \t]*:?")
_DEPENDS_HEADING = pattern(r"(?i)#{1,6}[ \t]+(?:dependencies|depends[ \t]+on|blocked[ \t]+by)\b")
_HEADING = pattern(r"(#{1,6})[ \t]+(\S[^\r\n]*)")
_EPIC_HEADING = pattern(r"(?i)(?:\d+[.)]?[ \t]*)?epic\b[ \t]*(?:\d+)?[ \t]*[:.)\u2013—-]*[ \t]*")
_FENCE = pattern(r"[ \t]*(?:```|~~~)")
_PREFIX = pattern(r"(?P<prefix>\d+[a-z]?|[A-Z][A-Z0-9_]+-\d+)_(?P<name>.+)")


class Kind(StrEnum):
    """What a work item is."""

    EPIC = "epic"
    TASK = "task"


class WorkItem(Struct, frozen=True, kw_only=True):
    """One epic or task as its file describes it.

    `key` names it within its story, whatever number or id its file begins with. `id` is that of its work
    item, empty while there is none. `epic` is what a task says about its epic, `depends` are the keys of the
    tasks that it waits for.
    """

    kind: Kind
    key: str
    path: str
    title: str
    body: str = ""
    id: str = ""
    epic: str = ""
    depends: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """What the name of its file begins with: a number or an id; empty if neither."""
        found = _PREFIX.fullmatch(PurePosixPath(self.path).stem)
        return found["prefix"] if found else ""


def is_epics(path: str) -> bool:
    """Whether a file holds epics, and no task."""
    return "epic" in PurePosixPath(path).name.lower()


def read_items(files: Mapping[str, str]) -> tuple[WorkItem, ...]:
    """Return the work items of these files, in their order; paths are relative to the workspace."""
    found = [item for path, text in files.items() for item in _items(path, text)]
    names = Counter(item.key for item in found)
    # Of equal names, the numbers or ids of the files tell them apart.
    found = [replace(item, key=_numbered(item)) if names[item.key] > 1 else item for item in found]
    tasks = [item for item in found if item.kind is Kind.TASK]
    return tuple(
        replace(item, depends=_depends(item, tasks, files[item.path])) if item in tasks else item
        for item in found
    )


def _items(path: str, text: str) -> list[WorkItem]:
    return _epics(path, text) if is_epics(path) else [_task(path, text)]


def _numbered(item: WorkItem) -> str:
    return f"{item.key}#{item.prefix}"


def _task(path: str, text: str) -> WorkItem:
    pure = PurePosixPath(path)
    found = _PREFIX.fullmatch(pure.stem)
    name = found["name"] if found else pure.stem
    heading = next(iter(_headings(text)), None)
    epic = _EPIC_LINE.search(text)
    return WorkItem(
        kind=Kind.TASK,
        key=f"{pure.parent}/{name}",
        path=path,
        title=_title(heading[2] if heading else name.replace("_", " ")),
        body=text,
        id=id_in(text),
        epic=one_line(epic["name"]).strip(" *`") if epic else "",
    )


def _epics(path: str, text: str) -> list[WorkItem]:
    parent = PurePosixPath(path).parent
    items: list[WorkItem] = []
    used: Counter[str] = Counter()
    for start, end, words in _sections(text):
        part = text[start:end]
        named = _EPIC_HEADING.match(words)
        title = _title((words[named.end() :] if named else words) or words)
        slug = re.sub(r"\W+", "-", title.casefold()).strip("-")
        used[slug] += 1
        slug += f"#{used[slug]}" * (used[slug] > 1)
        items.append(
            WorkItem(
                kind=Kind.EPIC,
                key=f"{parent}/epic/{slug}",
                path=path,
                title=title,
                body=part,
                id=id_in(part),
            )
        )
    return items


def _title(words: str) -> str:
    return one_line(words).strip(" #*`")[:MOST_TITLE] or "work item"


def _headings(text: str) -> list[tuple[int, int, str]]:
    """Return place, level and words of the headings outside of code blocks."""
    found, place, fenced = [], 0, False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (match := _HEADING.match(line)):
            found.append((place, len(match[1]), match[2].rstrip()))
        place += len(line) + 1
    return found


def _sections(text: str) -> list[tuple[int, int, str]]:
    """Return begin, end and heading of each epic in a file; the whole file if its headings say nothing."""
    headings = _headings(text)
    chosen = [one for one in headings if one[1] > 1 and _EPIC_HEADING.match(one[2])]
    chosen = chosen or [one for one in headings if one[1] == 2]  # noqa: PLR2004  the second level
    if not chosen:
        words = headings[0][2] if headings else "Epic"
        return [(0, len(text), words)]
    level = min(one[1] for one in chosen)
    ends = [place for place, depth, _ in headings if depth <= level] + [len(text)]
    return [
        (place, min(end for end in [*ends, *(one[0] for one in chosen)] if end > place), words)
        for place, _, words in chosen
    ]


def id_in(text: str) -> str:
    """Return the id on the tracker line of a text; empty if it has none yet."""
    line = _LINE.search(text)
    found = _ID.match(line["value"].strip()) if line else None
    return found["id"] if found else ""


def marked(text: str, path: str, ids: Mapping[str, str]) -> str:
    """Return a file with the ids of its items, and `pending` where an item has neither; `ids` are by key."""
    if not is_epics(path):
        item = _task(path, text)
        return _put(text, ids.get(item.key) or ids.get(_numbered(item), ""))
    parts, done = [], 0
    sections = list(zip(_sections(text), _epics(path, text), strict=True))
    for (start, end, _), item in sections:
        head = text[done:start]
        parts.append(head if done else _STRAY.sub("", head))
        parts.append(_put(text[start:end], ids.get(item.key, "")))
        done = end
    return "".join(parts) + text[done:]


def _put(text: str, wanted: str) -> str:
    """Return a text with an id on its tracker line; without an id, with `pending` if it has no such line."""
    line = _LINE.search(text)
    if line is None:
        return _inserted(text, wanted or PENDING)
    if not wanted or id_in(text):
        return text
    return f"{text[: line.start()]}{line['label'].rstrip()} {wanted}{text[line.end() :]}"


def _inserted(text: str, value: str) -> str:
    """Insert the line after front matter and heading, as a paragraph of its own."""
    end = "\r\n" if "\r\n" in text else "\n"
    top = _HEAD.match(text)
    head, rest = (text[: top.end()], text[top.end() :]) if top else ("", text)
    if head and not head.endswith("\n"):
        head += end
    before = end if head else ""
    after = end if rest and not rest.startswith(("\n", "\r\n")) else ""
    return f"{head}{before}Tracker: {value}{end}{after}{rest}"


def _dependency_lines(text: str) -> list[tuple[int, int]]:
    """Return where a text says what it depends on: such lines, and what is below such a heading."""
    found, place, below = [], 0, False
    for line in text.split("\n"):
        heading = line.startswith("#")
        if heading:
            below = _DEPENDS_HEADING.match(line) is not None
        if (below and not heading) or _DEPENDS.match(line):
            found.append((place, place + len(line)))
        place += len(line) + 1
    return found


def _depends(item: WorkItem, tasks: Sequence[WorkItem], text: str) -> tuple[str, ...]:
    words = "\n".join(text[start:end] for start, end in _dependency_lines(text))
    return tuple(other.key for other in tasks if other.path != item.path and _names(words, other))


def _names(words: str, item: WorkItem) -> bool:
    stem = PurePosixPath(item.path).stem
    forms = [_whole(stem)]
    forms += [_bare(text) for text in {item.prefix, item.id} if text]
    return any(re.search(form, words) for form in forms)


def _whole(stem: str) -> str:
    return rf"(?<![\w-]){re.escape(stem)}(?![\w-])"


def _bare(number: str) -> str:
    return rf"(?<![\w.:/-]){re.escape(number)}(?![\w:/-]|\.\d)"


def renamed(item: WorkItem, item_id: str) -> str:
    """Return the path of a task file that begins with the id of its work item."""
    pure = PurePosixPath(item.path)
    found = _PREFIX.fullmatch(pure.stem)
    name = found["name"] if found else pure.stem
    return str(pure.with_name(f"{item_id}_{name}{pure.suffix}"))


def with_references(text: str, path: str, moves: Sequence[tuple[WorkItem, str]]) -> str:
    """Return a document in which task files are called by their new names; `moves` are items with their ids.

    Bare numbers are replaced where they can only mean tasks: in lists of dependencies.
    """
    stems = {PurePosixPath(item.path).stem: PurePosixPath(renamed(item, new)).stem for item, new in moves}
    if stems:
        longest = sorted(stems, key=len, reverse=True)
        either = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])")
        text = either.sub(lambda match: stems[match[0]], text)
    folder = PurePosixPath(path).parent
    numbers = {
        item.prefix: new
        for item, new in moves
        if PurePosixPath(item.path).parent == folder and item.prefix.isdecimal() and len(item.prefix) > 1
    }
    if not numbers:
        return text
    bare = re.compile("|".join(_bare(number) for number in sorted(numbers, key=len, reverse=True)))
    whole = PurePosixPath(path).name == "dependencies.md"
    for start, end in [(0, len(text))] if whole else reversed(_dependency_lines(text)):
        text = text[:start] + bare.sub(lambda match: numbers[match[0]], text[start:end]) + text[end:]
    return text
