"""The work items that a query of Azure DevOps finds, by `az` with its extension `azure-devops`."""

import json
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from typing import Any

from isolation.patterns import pattern
from runner.core.text.names import shown
from runner.core.text.redaction import Redactor
from runner.forge.errors import ForgeError, OutageError
from runner.forge.intake.issue import Issue, make_issue, number_priority
from runner.forge.intake.source import Source
from runner.forge.patience import pause_before
from runner.forge.programs import Door

_BATCH = 200
_ATTEMPTS = 3
_GUID = pattern(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WIQL = pattern(r"(?is)\s*select\b.*")
_PREDECESSOR = "System.LinkTypes.Dependency-Reverse"
_TEXTS = (
    ("System.Description", ""),
    ("Microsoft.VSTS.TCM.ReproSteps", "Steps to reproduce:"),
    ("Microsoft.VSTS.Common.AcceptanceCriteria", "Acceptance criteria:"),
)
_BLOCKS = frozenset({"p", "div", "br", "li", "ul", "ol", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "pre"})
_UNSEEN = frozenset({"script", "style"})


def read_azure(
    az: Door, source: Source, redactor: Redactor, *, pause: Callable[[float], None]
) -> tuple[Issue, ...]:
    """Read the work items of a query: its WIQL text, its id, or its path as in `Shared Queries/Autopilot`."""
    query = source.query
    kind = "--wiql" if _WIQL.fullmatch(query) else "--id" if _GUID.fullmatch(query) else "--path"
    asked = f"run the query {shown(query)}"
    rows = _ask(az, ("boards", "query", kind, query), asked=asked, pause=pause)
    numbers = [row["id"] for row in rows if _is_item(row)] if isinstance(rows, list) else []
    numbers = list(dict.fromkeys(numbers))[: source.limit]
    found: dict[int, Issue] = {}
    for start in range(0, len(numbers), _BATCH):
        body = {"ids": numbers[start : start + _BATCH], "$expand": "relations", "errorPolicy": "Omit"}
        invoke = ("devops", "invoke", "--area", "wit", "--resource", "workitemsbatch", "--api-version", "7.0")
        arguments = (*invoke, "--http-method", "POST", "--in-file", "/dev/stdin")
        asked = f"read the work items of {shown(query)}"
        answer = _ask(az, arguments, asked=asked, pause=pause, stdin=json.dumps(body).encode())
        values = answer.get("value") if isinstance(answer, Mapping) else None
        found |= {item["id"]: azure_item(item, redactor) for item in values or () if _is_item(item)}
    return tuple(found[number] for number in numbers if number in found)


def _ask(
    az: Door, arguments: tuple[str, ...], *, asked: str, pause: Callable[[float], None], stdin: bytes = b""
) -> Any:
    """Ask, and ask again after a failure: `az` does not say whether the service is away, or refuses."""
    problem = ""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ended = az.run(*arguments, "--output", "json", asked=f"cannot {asked}", stdin=stdin)
        except OutageError as error:
            problem = error.message
        else:
            if ended.returncode == 0:
                try:
                    return json.loads(ended.stdout)
                except (ValueError, RecursionError):
                    problem = "its answer is not JSON"
            else:
                problem = az.words(ended)
        if attempt < _ATTEMPTS:
            pause(pause_before(attempt))
    raise ForgeError(
        f"cannot {asked}: az: {problem}",
        hint="check `az login`, `az extension add --name azure-devops`, and that `az devops configure "
        "--defaults organization=URL project=NAME` names yours.",
    )


def azure_item(item: Mapping[str, Any], redactor: Redactor) -> Issue:
    """Return one work item from the answer of Azure DevOps."""
    given = item.get("fields")
    fields: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    parts = [(head, plain_text(fields.get(name))) for name, head in _TEXTS]
    tags = fields.get("System.Tags")
    author = fields.get("System.CreatedBy")
    return make_issue(
        origin=_origin(item["id"]),
        name=f"ado-{item['id']}",
        title=fields.get("System.Title"),
        body="\n\n".join(f"{head}\n{text}".strip("\n") for head, text in parts if text),
        author=author.get("displayName") if isinstance(author, Mapping) else author,
        url=_address(item.get("url")),
        labels=tags.split("; ") if isinstance(tags, str) else (),
        priority=number_priority(fields.get("Microsoft.VSTS.Common.Priority")),
        blocked_by=_predecessors(item.get("relations")),
        redactor=redactor,
    )


def _is_item(item: Any) -> bool:
    return isinstance(item, Mapping) and type(item.get("id")) is int and item["id"] > 0


def _origin(number: object) -> str:
    return f"ado:{number}"


def _address(url: Any) -> str:
    """Return where people find an item: its address is that of the interface for programs."""
    return url.replace("/_apis/wit/workItems/", "/_workitems/edit/") if isinstance(url, str) else ""


def _predecessors(relations: Any) -> Iterator[str]:
    for relation in relations if isinstance(relations, list) else ():
        if isinstance(relation, Mapping) and relation.get("rel") == _PREDECESSOR:
            number = str(relation.get("url")).rpartition("/")[2]
            if number.isdecimal():
                yield _origin(int(number[:18]))


def plain_text(html: Any) -> str:
    """Return the text of a piece of HTML; everything else is left out."""
    if not isinstance(html, str):
        return ""
    reader = _Text()
    reader.feed(html[: 1 << 20])
    reader.close()
    lines = (line.strip() for line in "".join(reader.parts).split("\n"))
    return "\n".join(line for line in lines if line)


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self._unseen += tag in _UNSEEN
        if tag in _BLOCKS:
            self.parts.append("\n- " if tag == "li" else "\n")

    def handle_endtag(self, tag: str) -> None:
        self._unseen = max(0, self._unseen - (tag in _UNSEEN))
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.parts.append(data)
