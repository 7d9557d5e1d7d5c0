"""The issues of a repository at GitHub."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from runner.core.text.redaction import Redactor
from runner.forge.errors import RefusedError
from runner.forge.intake.issue import Issue, make_issue, references
from runner.forge.intake.source import Source
from runner.forge.rest import Rest

_GONE = frozenset({404, 410})


def read_github(github: Rest, source: Source, redactor: Redactor) -> tuple[Issue, ...]:
    """Read the issues that a source names, the oldest first; pull requests are not among them."""
    asked = f"read the issues of {source.project}"
    query = {"state": source.state, "direction": "asc", "sort": "created", "per_page": "100"}
    query |= {"labels": ",".join(source.labels)} if source.labels else {}
    path = f"repos/{quote(source.project)}/issues?{urlencode(query)}"
    found = list[Issue]()
    for item in github.pages(path, asked=asked):
        if is_issue(item):
            blockers = _linked(github, source, item)
            found.append(github_issue(item, source, redactor, blocked_by=blockers))
            if len(found) == source.limit:
                break
    return tuple(found)


def is_issue(item: Any) -> bool:
    """Whether an item of the list is an issue that can be named; GitHub lists pull requests, too."""
    if not isinstance(item, Mapping) or item.get("pull_request") is not None:
        return False
    return type(item.get("number")) is int and item["number"] > 0


def github_issue(
    item: Mapping[str, Any], source: Source, redactor: Redactor, *, blocked_by: tuple[str, ...] = ()
) -> Issue:
    """Return one issue from GitHub's answer."""
    number, body = item["number"], item.get("body")
    text = body if isinstance(body, str) else ""
    labels = item.get("labels")
    user = item.get("user")
    return make_issue(
        origin=source.origin(number),
        name=f"{source.project.rpartition('/')[2]}-{number}",
        title=item.get("title"),
        body=text,
        author=user.get("login") if isinstance(user, Mapping) else "",
        url=item.get("html_url"),
        labels=[
            each.get("name") if isinstance(each, Mapping) else each
            for each in (labels if isinstance(labels, list) else ())
        ],
        blocked_by=(*blocked_by, *_mentioned(text, source)),
        redactor=redactor,
    )


def _mentioned(text: str, source: Source) -> Iterator[str]:
    """Yield the issues of the same repository that a text depends on."""
    project = source.project.lower()
    for reference in references(text):
        before, _, number = reference.rpartition("#")
        if number.isdecimal() and before.lower() in {"", project}:
            yield source.origin(int(number))
        elif reference.lower().partition("://")[2].partition("/")[2].startswith(f"{project}/issues/"):
            last = reference.rpartition("/")[2].partition("#")[0]
            if last.isdecimal():
                yield source.origin(int(last))


def _linked(github: Rest, source: Source, item: Mapping[str, Any]) -> tuple[str, ...]:
    """Ask for the issues that block this one, if GitHub says that there are some."""
    summary = item.get("issue_dependencies_summary")
    if not isinstance(summary, Mapping) or not summary.get("blocked_by"):
        return ()
    number, project = item["number"], source.project
    path = f"repos/{quote(project)}/issues/{number}/dependencies/blocked_by?per_page=100"
    try:
        found = list(github.pages(path, asked=f"read what blocks #{number} of {project}"))
    except RefusedError as error:
        if error.status in _GONE:  # a server that is older than these links
            return ()
        raise
    return tuple(
        source.origin(each["number"]) for each in found if is_issue(each) and _is_here(each, project)
    )


def _is_here(item: Mapping[str, Any], project: str) -> bool:
    url = item.get("repository_url")
    return not isinstance(url, str) or url.lower().endswith(f"/{project.lower()}")
