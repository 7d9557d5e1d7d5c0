"""The issues of a project at GitLab."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from runner.core.text.redaction import Redactor
from runner.forge.intake.issue import Issue, make_issue, references
from runner.forge.intake.source import Source
from runner.forge.rest import Rest

_STATES = {"open": "opened", "closed": "closed", "all": "all"}


def read_gitlab(gitlab: Rest, source: Source, redactor: Redactor) -> tuple[Issue, ...]:
    """Read the issues that a source names, the oldest first."""
    project = f"projects/{quote(source.project, safe='')}"
    query = {"state": _STATES[source.state], "order_by": "created_at", "sort": "asc", "per_page": "100"}
    query |= {"labels": ",".join(source.labels)} if source.labels else {}
    path = f"{project}/issues?{urlencode(query)}"
    asked = f"read the issues of {source.project}"
    items = [item for item in gitlab.pages(path, asked=asked, most=source.limit) if _is_issue(item)]
    blocked: dict[str, list[str]] = {}
    for item in items:
        for origin in _blocks(gitlab, source, project, item):
            blocked.setdefault(origin, []).append(source.origin(item["iid"]))
    return tuple(
        gitlab_issue(item, source, redactor, blocked_by=blocked.get(source.origin(item["iid"]), ()))
        for item in items
    )


def gitlab_issue(
    item: Mapping[str, Any],
    source: Source,
    redactor: Redactor,
    *,
    blocked_by: tuple[str, ...] | list[str] = (),
) -> Issue:
    """Return one issue from GitLab's answer."""
    body, author, labels = item.get("description"), item.get("author"), item.get("labels")
    text = body if isinstance(body, str) else ""
    return make_issue(
        origin=source.origin(item["iid"]),
        name=f"{source.project.rpartition('/')[2]}-{item['iid']}",
        title=item.get("title"),
        body=text,
        author=author.get("username") if isinstance(author, Mapping) else "",
        url=item.get("web_url"),
        labels=labels if isinstance(labels, list) else (),
        blocked_by=(*blocked_by, *_mentioned(text, source)),
        redactor=redactor,
    )


def _is_issue(item: Any) -> bool:
    return isinstance(item, Mapping) and type(item.get("iid")) is int and item["iid"] > 0


def _mentioned(text: str, source: Source) -> Iterator[str]:
    for reference in references(text):
        before, _, number = reference.rpartition("#")
        if number.isdecimal() and before.lower() in {"", source.project.lower()}:
            yield source.origin(int(number))


def _blocks(gitlab: Rest, source: Source, path: str, item: Mapping[str, Any]) -> Iterator[str]:
    """Yield the issues that this one blocks, if GitLab says that there are some."""
    if not item.get("blocking_issues_count"):
        return
    number = item["iid"]
    asked = f"read what #{number} of {source.project} blocks"
    for linked in gitlab.pages(f"{path}/issues/{number}/links?per_page=100", asked=asked):
        if _is_issue(linked) and linked.get("link_type") == "blocks":
            yield source.origin(linked["iid"])
