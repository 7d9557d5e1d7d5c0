"""A Markdown checklist: each open item `- [ ] …` of the top level is an issue, what is below it its text."""

from collections.abc import Iterator
from pathlib import Path

from isolation.patterns import pattern
from runner.core.errors import BacklogError
from runner.core.text.names import slug, unique
from runner.core.text.redaction import Redactor
from runner.forge.intake.issue import Issue, make_issue

MOST_BYTES = 4 * 1024 * 1024
_ITEM = pattern(r"([-*+]|[0-9]{1,9}[.)])[ \t]+\[([ xX])\][ \t]+(\S.*)")
_HEADING = pattern(r"#{1,6}[ \t].*")
_AFTER = pattern(r"\((?:depends on|blocked by):?[ \t]+([^()]{1,500})\)[ \t]*")


def read_checklist(path: Path, name: str, redactor: Redactor) -> tuple[Issue, ...]:
    """Read the open items of a file; `name` is the file in origins and messages."""
    try:
        data = path.read_bytes()[: MOST_BYTES + 1]
    except OSError as error:
        raise BacklogError(f"cannot read {name}: {error.strerror}", hint="check its path.") from error
    if len(data) > MOST_BYTES:
        raise BacklogError(f"{name} is larger than 4 MB", hint="split the list.")
    return parse_checklist(data.decode("utf-8-sig", "replace"), name, redactor)


def parse_checklist(text: str, name: str, redactor: Redactor) -> tuple[Issue, ...]:
    """Return the open items of a text in their order; those that are ticked off are done."""
    taken: set[str] = set()
    found: list[Issue] = []
    for title, details in _items(text):
        after = [word for words in _AFTER.findall(title) for word in words.replace(",", " ").split()]
        plain = _AFTER.sub("", title).strip() or title
        made = unique(slug(plain), taken)
        taken.add(made)
        found.append(
            make_issue(
                origin=f"checklist:{name}#{made}",
                name=made,
                title=plain,
                body=details,
                blocked_by=[f"checklist:{name}#{slug(word)}" for word in after],
                redactor=redactor,
            )
        )
    return tuple(found)


def _items(text: str) -> Iterator[tuple[str, str]]:
    """Yield the titles of open items, each with the indented lines below it."""
    title, details = "", list[str]()
    for line in (*text.replace("\r\n", "\n").split("\n"), "#"):
        item = _ITEM.fullmatch(line.rstrip())
        inside = not line.strip() or line.startswith((" ", "\t"))
        if title and (item or not inside):
            yield title, _dedented(details)
            title = ""
        if item and item.group(2) == " ":
            title, details = item.group(3), []
        elif title:
            details.append(line)


def _dedented(lines: list[str]) -> str:
    from textwrap import dedent

    return dedent("\n".join(line.expandtabs(4) for line in lines)).strip("\n")
