"""The issues of a repository on GitHub, with sub-issues and dependencies where GitHub has them."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from isolation.patterns import pattern
from runner.forge.errors import RefusedError, SignInError
from runner.forge.rest import Rest
from runner.forge.tracker.backend import Link
from runner.forge.values import at, list_at, number_at, text_at

MOST_LISTED = 1000
"""How many issues are looked through for marks, the newest first; older ones are searched for."""
_MARK = pattern(r"<!-- autopilot-[0-9a-f]{16} -->")
_TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_NOT_OFFERED = frozenset({404, 410})
"""How a GitHub answers that is too old for a relation."""


class GitHubIssues:
    """The issues of OWNER/NAME. Searches of GitHub lag behind, so that marks are read from lists."""

    def __init__(self, rest: Rest, name: str) -> None:
        self._rest = rest
        self._name = name
        self._listed: dict[str, int] | None = None
        self._all = True
        self._asked: set[str] = set()
        self._login: str | None = None

    def check(self) -> None:
        """Raise unless its issues can be used."""
        found = self._rest.json("GET", f"repos/{self._name}", asked=f"read the repository {self._name}")
        why = "is archived" if at(found, "archived") is True else ""
        why = why or ("has its issues turned off" if at(found, "has_issues") is False else "")
        if why:
            raise RefusedError(
                f"cannot keep work items in {self._name}: it {why}",
                status=0,
                hint="name another repository with `tracker-project`.",
            )

    def find(self, mark: str) -> int:
        """Return the number of the issue with a mark, by somebody who may write there; 0 without one."""
        if self._listed is None or mark in self._asked:
            self._listed = self._read()
        self._asked.add(mark)
        return self._listed.get(mark, 0) or (0 if self._all else self._searched(mark))

    def create(self, title: str, text: str, labels: tuple[str, ...]) -> int:
        """Create an issue, and return its number."""
        fields: dict[str, Any] = {"title": title, "body": text}
        fields |= {"labels": list(labels)} if labels else {}
        asked = f"create the issue '{title}' in {self._name}"
        return number_at(self._rest.json("POST", self._path(), fields, asked=asked), "number")

    def text(self, number: int) -> str:
        """Return the text of an issue."""
        return text_at(self._issue(number), "body")

    def rewrite(self, number: int, text: str) -> None:
        """Replace the text of an issue."""
        asked = f"change issue {number} of {self._name}"
        self._rest.json("PATCH", self._path(number), {"body": text}, asked=asked, repeatable=True)

    def links(self, number: int) -> frozenset[Link]:
        """Return the issue that this one is part of, and those that it waits for."""
        asked = f"read what issue {number} of {self._name} is linked to"
        found = []
        try:
            parent = self._rest.json("GET", f"{self._path(number)}/parent", asked=asked)
            found.append(Link(parent=True, other=str(number_at(parent, "number"))))
        except RefusedError as error:
            if error.status not in _NOT_OFFERED:
                raise
        path = f"{self._path(number)}/dependencies/blocked_by?per_page=100"
        try:
            others = list(self._rest.pages(path, asked=asked))
        except RefusedError as error:
            if error.status not in _NOT_OFFERED:
                raise
            others = []
        found += [Link(parent=False, other=str(number_at(one, "number"))) for one in others]
        return frozenset(found)

    def link(self, number: int, link: Link) -> bool:
        """Relate an issue to another one; return False if this GitHub has no such relation."""
        asked = f"link issue {number} of {self._name} to issue {link.other}"
        if link.parent:
            path = f"{self._path(int(link.other))}/sub_issues"
            fields = {"sub_issue_id": number_at(self._issue(number), "id")}
        else:
            path = f"{self._path(number)}/dependencies/blocked_by"
            fields = {"issue_id": number_at(self._issue(int(link.other)), "id")}
        try:
            self._rest.json("POST", path, fields, asked=asked)
        except RefusedError as error:
            if error.status in _NOT_OFFERED:
                return False
            raise
        return True

    def _issue(self, number: int) -> Any:
        return self._rest.json("GET", self._path(number), asked=f"read issue {number} of {self._name}")

    def _read(self) -> dict[str, int]:
        """Read the marks of issues; of two with the same mark the older one counts."""
        path = f"{self._path()}?state=all&sort=created&direction=desc&per_page=100"
        asked = f"look for work items in {self._name}"
        entries = list(self._rest.pages(path, asked=asked, most=MOST_LISTED))
        self._all = len(entries) < MOST_LISTED
        return dict(self._marks(entries))

    def _searched(self, mark: str) -> int:
        words = f'"{mark.strip("<!-> ")}" in:body type:issue repo:{self._name}'
        asked = f"search for a work item in {self._name}"
        found = self._rest.json("GET", f"search/issues?q={quote(words, safe='')}&per_page=10", asked=asked)
        return dict(self._marks(list_at(found, "items"))).get(mark, 0)

    def _marks(self, entries: list[Any]) -> Iterator[tuple[str, int]]:
        for entry in sorted(entries, key=lambda one: -number_at(one, "number")):
            marks = _MARK.findall(text_at(entry, "body")) if at(entry, "pull_request") is None else []
            # Anybody may file an issue with a mark in it, which can be computed from public facts.
            if marks and self._is_trusted(entry):
                yield marks[-1], number_at(entry, "number")

    def _is_trusted(self, entry: Any) -> bool:
        by_rights = text_at(entry, "author_association") in _TRUSTED
        return by_rights or text_at(entry, "user", "type") == "Bot" or self._is_own(entry)

    def _is_own(self, entry: Any) -> bool:
        if self._login is None:
            try:
                self._login = text_at(self._rest.json("GET", "user", asked="read who you are"), "login")
            except (RefusedError, SignInError):  # the token of a CI job has no user
                self._login = ""
        return bool(self._login) and text_at(entry, "user", "login") == self._login

    def _path(self, number: int | None = None) -> str:
        return f"repos/{self._name}/issues" + (f"/{number}" if number is not None else "")
