"""An issue as every service can say it, and what its text says about other issues.

All texts are somebody else's words: they are cleaned of what a terminal would obey, of secrets and of
excess, and they are only ever quoted. Nothing in them is run, and nothing in them becomes a setting.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from isolation.patterns import pattern
from runner.core.text.names import MAX_ID, id_problem, one_line, slug
from runner.core.text.redaction import Redactor
from runner.core.text.screen import neutral, shorten

MOST_TEXT = 64 * 1024
"""How much of an issue's text is taken, in characters; what GitHub allows."""
MOST_TITLE = 200
MOST_LABELS = 50
_TAB = 4
_NO_CHARACTERS = dict.fromkeys((0xFEFF, 0xFFFE, 0xFFFF))
"""What no YAML may contain: marks of byte order, and what is no character."""

_SKIPS_CI = pattern(r"\[((?:skip|no)[ -](?:ci|actions)|(?:ci|actions)[ -]skip)\]", re.IGNORECASE)
_REF = (
    r"(?:[A-Za-z][A-Za-z0-9_]{0,30}-[0-9]{1,9}"
    r"|(?:[\w.-]{1,100}/[\w.-]{1,100})?#[0-9]{1,9}"
    r"|https?://[^\s)>\]]{1,300})"
)
"""How an issue is named: `SHOP-12`, `#12`, `owner/repo#12`, or by its address."""
_AND = r"[ \t]*(?:,[ \t]*and|,|and|&)[ \t]*"
_LINKS = pattern(
    rf"\b(?:blocked by|depends on|depends upon)\b:?[ \t]*({_REF}(?:{_AND}{_REF}){{0,50}})", re.IGNORECASE
)
_REFERENCE = pattern(_REF)
_PRIORITY = pattern(
    r"(?:prio(?:rity)?[\s:/_-]*)?(critical|blocker|urgent|highest|high|major|medium|normal|low|minor|lowest|trivial)"
    r"|(?:prio(?:rity)?[\s:/_-]*)?p?([0-4])",
    re.IGNORECASE,
)
_URGENT, _HIGH, _NORMAL, _LOW, _LOWEST = 20, 10, 0, -10, -20
_BY_NAME = {
    **dict.fromkeys(("critical", "blocker", "urgent", "highest"), _URGENT),
    **dict.fromkeys(("high", "major"), _HIGH),
    **dict.fromkeys(("medium", "normal"), _NORMAL),
    **dict.fromkeys(("low", "minor"), _LOW),
    **dict.fromkeys(("lowest", "trivial"), _LOWEST),
}


class Issue(Struct, frozen=True, kw_only=True):
    """One issue; `origin` names it everywhere, `blocked_by` are the origins of those that come first.

    `kept` says how much of the text was taken, if not all.
    """

    origin: str
    id: str
    title: str
    body: str = ""
    author: str = ""
    url: str = ""
    labels: tuple[str, ...] = ()
    priority: int = 0
    blocked_by: tuple[str, ...] = ()
    kept: str = ""


def make_issue(
    *,
    origin: str,
    name: str,
    title: object,
    body: object = "",
    author: object = "",
    url: object = "",
    labels: Iterable[object] = (),
    priority: int | None = None,
    blocked_by: Iterable[str] = (),
    redactor: Redactor,
) -> Issue:
    """Make an issue from what a service answered, whatever the values are; `name` becomes the story's id."""
    text, kept = _text(body, redactor)
    named = [label for each in labels if (label := _line(each, redactor))][:MOST_LABELS]
    links = dict.fromkeys(each for each in blocked_by if each != origin)
    return Issue(
        origin=origin,
        id=story_id(name),
        title=_SKIPS_CI.sub(r"(\1)", _line(title, redactor)) or origin,
        body=text,
        author=_line(author, redactor),
        url=_line(url, redactor),
        labels=tuple(dict.fromkeys(named)),
        priority=priority_of(named) if priority is None else priority,
        blocked_by=tuple(links),
        kept=kept,
    )


def story_id(name: str) -> str:
    """Return a story's id for the name of an issue, such as `shop-12` or `SHOP-12`."""
    plain = name.lower()
    if id_problem(plain) is None:
        return plain
    word, _, number = plain.rpartition("-")
    made = f"{slug(word)}-{slug(number)}" if word else slug(plain)
    return made[:MAX_ID].rstrip(".-")


def references(text: str) -> Iterator[str]:
    """Yield what a text says that it is blocked by or depends on, as it is written there."""
    for found in _LINKS.finditer(text[:MOST_TEXT]):
        for reference in _REFERENCE.findall(found.group(1)):
            yield reference.rstrip(".,;:")


def priority_of(labels: Iterable[str]) -> int:
    """Return the priority that labels say: `priority: high`, `P1`; the most urgent one counts."""
    found = [_named_priority(label) for label in labels]
    return max((each for each in found if each is not None), default=_NORMAL)


def _named_priority(label: str) -> int | None:
    match = _PRIORITY.fullmatch(label.strip())
    if match is None or label.strip().isdecimal():
        return None
    if match.group(1):
        return _BY_NAME[match.group(1).lower()]
    return (_URGENT, _HIGH, _NORMAL, _LOW, _LOWEST)[int(match.group(2))]


def number_priority(number: object) -> int:
    """Return the priority for a number from 1, the most urgent, to 4."""
    scale = {1: _URGENT, 2: _HIGH, 3: _NORMAL, 4: _LOW}
    return scale.get(number, _NORMAL) if isinstance(number, int) else _NORMAL


def _line(value: object, redactor: Redactor) -> str:
    text = value if isinstance(value, str) else ""
    return shorten(one_line(redactor.text(text[: MOST_TITLE * 20].translate(_NO_CHARACTERS))), MOST_TITLE)


def _text(value: object, redactor: Redactor) -> tuple[str, str]:
    """Return a text line by line, each safe for a terminal, and a remark if it is not all of it."""
    whole = value if isinstance(value, str) else ""
    kept = "" if len(whole) <= MOST_TEXT else f"the first {MOST_TEXT} of {len(whole)} characters"
    # A secret may not be cut in two, or its rest would be kept: it is taken out before the cut.
    text = redactor.text(whole[: MOST_TEXT * 2])[:MOST_TEXT].translate(_NO_CHARACTERS)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(neutral(line.expandtabs(_TAB)).rstrip() for line in lines).strip("\n"), kept
