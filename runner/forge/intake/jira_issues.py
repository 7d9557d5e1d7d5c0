"""The issues that a query in Jira's own language finds."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from isolation.patterns import pattern
from runner.core.text.redaction import Redactor
from runner.forge.errors import RefusedError
from runner.forge.intake.issue import Issue, make_issue, priority_of, references
from runner.forge.intake.source import Source
from runner.forge.rest import Rest

_FIELDS = "summary,description,priority,labels,issuelinks,reporter"
_PAGE = 100
_MOST_PAGES = 100
_ABSENT = frozenset({404, 405, 410})
_BLOCKED = frozenset({"is blocked by", "depends on"})
_KEY = pattern(r"[A-Za-z][A-Za-z0-9_]{0,30}-[0-9]{1,9}")


def read_jira(jira: Rest, source: Source, redactor: Redactor) -> tuple[Issue, ...]:
    """Read the issues of a query, in its order."""
    try:
        pages = list(_pages(jira, source, "rest/api/2/search/jql"))
    except RefusedError as error:
        if error.status not in _ABSENT:
            raise
        pages = list(_pages(jira, source, "rest/api/2/search"))  # Jira on a company's own server
    found = [jira_issue(item, redactor) for page in pages for item in page if _is_issue(item)]
    return tuple(found[: source.limit])


def _pages(jira: Rest, source: Source, path: str) -> Iterator[list[Any]]:
    """Yield the pages of a query; the cloud counts by a token, a server by a number."""
    query: dict[str, str] = {"jql": source.query, "fields": _FIELDS, "maxResults": str(_PAGE)}
    asked, count = f"search Jira for `{source.query[:200]}`", 0
    for _ in range(_MOST_PAGES):
        answer = jira.json("GET", f"{path}?{urlencode(query)}", asked=asked)
        items = answer.get("issues") if isinstance(answer, Mapping) else None
        if not isinstance(items, list):
            raise RefusedError(f"cannot {asked}: Jira did not answer with a list", status=200)
        yield items
        count += len(items)
        token, total = answer.get("nextPageToken"), answer.get("total")
        if not items or count >= source.limit:
            return
        if isinstance(token, str) and token:
            query["nextPageToken"] = token
        elif isinstance(total, int) and count < total:
            query["startAt"] = str(count)
        else:
            return


def jira_issue(item: Mapping[str, Any], redactor: Redactor) -> Issue:
    """Return one issue from Jira's answer."""
    key = item["key"].upper()
    given = item.get("fields")
    fields: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    priority, reporter, labels = fields.get("priority"), fields.get("reporter"), fields.get("labels")
    name = priority.get("name") if isinstance(priority, Mapping) else ""
    body = fields.get("description")
    text = body if isinstance(body, str) else ""
    mentioned = (reference for reference in references(text) if _KEY.fullmatch(reference))
    link = item.get("self")
    site = link.partition("/rest/")[0] if isinstance(link, str) else ""
    return make_issue(
        origin=_origin(key),
        name=key,
        title=fields.get("summary"),
        body=text,
        author=reporter.get("displayName") if isinstance(reporter, Mapping) else "",
        url=f"{site}/browse/{key}" if site else "",
        labels=labels if isinstance(labels, list) else (),
        priority=priority_of([name]) if isinstance(name, str) else 0,
        blocked_by=(*_blockers(fields.get("issuelinks")), *map(_origin, mentioned)),
        redactor=redactor,
    )


def _is_issue(item: Any) -> bool:
    return (
        isinstance(item, Mapping) and isinstance(item.get("key"), str) and bool(_KEY.fullmatch(item["key"]))
    )


def _origin(key: str) -> str:
    return f"jira:{key.upper()}"


def _blockers(links: Any) -> Iterator[str]:
    for link in links if isinstance(links, list) else ():
        if not isinstance(link, Mapping) or not _is_issue(link.get("inwardIssue")):
            continue
        kind = link.get("type")
        inward = kind.get("inward") if isinstance(kind, Mapping) else ""
        if isinstance(inward, str) and inward.lower() in _BLOCKED:
            yield _origin(link["inwardIssue"]["key"])
