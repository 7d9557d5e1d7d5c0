"""The issues of a project on GitLab; only some editions of it know which issue blocks which."""

from contextlib import suppress
from typing import Any
from urllib.parse import quote

from runner.forge.errors import RefusedError, SignInError
from runner.forge.rest import Rest
from runner.forge.tracker.backend import Link
from runner.forge.values import at, number_at, text_at

_REPORTER = 20
"""The access level from which on somebody may plan work."""
_NOT_OFFERED = frozenset({400, 403, 404})
"""How a GitLab answers whose edition has no such relation."""
_THERE = 409


class GitLabIssues:
    """The issues of GROUP/NAME. Its lists are searched in its database, so that they are never behind."""

    def __init__(self, rest: Rest, name: str) -> None:
        self._rest = rest
        self._name = name
        self._trusted: frozenset[str] | None = None

    def check(self) -> None:
        """Raise unless its issues can be used."""
        found = self._project()
        why = "is archived" if at(found, "archived") is True else ""
        off = at(found, "issues_enabled") is False or at(found, "issues_access_level") == "disabled"
        why = why or ("has its issues turned off" if off else "")
        if why:
            raise RefusedError(
                f"cannot keep work items in {self._name}: it {why}",
                status=0,
                hint="name another project with `tracker-project`.",
            )

    def find(self, mark: str) -> int:
        """Return the number of the issue with a mark, by somebody who may write there; 0 without one."""
        words = quote(mark.strip("<!-> "), safe="")
        query = f"search={words}&in=description&scope=all&order_by=created_at&sort=asc&per_page=100"
        asked = f"look for work items in {self._name}"
        for entry in self._rest.pages(f"{self._path()}?{query}", asked=asked, most=100):
            # Anybody may file an issue with a mark in it, which can be computed from public facts.
            author = text_at(entry, "author", "username")
            if mark in text_at(entry, "description") and self._is_trusted(author):
                return number_at(entry, "iid")
        return 0

    def create(self, title: str, text: str, labels: tuple[str, ...]) -> int:
        """Create an issue, and return its number."""
        fields = {"title": title, "description": text}
        fields |= {"labels": ",".join(labels)} if labels else {}
        asked = f"create the issue '{title}' in {self._name}"
        return number_at(self._rest.json("POST", self._path(), fields, asked=asked), "iid")

    def text(self, number: int) -> str:
        """Return the text of an issue."""
        asked = f"read issue {number} of {self._name}"
        return text_at(self._rest.json("GET", self._path(number), asked=asked), "description")

    def rewrite(self, number: int, text: str) -> None:
        """Replace the text of an issue."""
        asked = f"change issue {number} of {self._name}"
        self._rest.json("PUT", self._path(number), {"description": text}, asked=asked)

    def links(self, number: int) -> frozenset[Link]:
        """Return the issues of this project that an issue waits for."""
        asked = f"read what issue {number} of {self._name} is linked to"
        found = self._rest.pages(f"{self._path(number)}/links?per_page=100", asked=asked)
        own = number_at(self._project(), "id")
        return frozenset(
            Link(parent=False, other=str(number_at(one, "iid")))
            for one in found
            if text_at(one, "link_type") == "is_blocked_by" and number_at(one, "project_id") == own
        )

    def link(self, number: int, link: Link) -> bool:
        """Relate an issue to one that blocks it; return False if this GitLab has no such relation."""
        if link.parent:
            return False  # epics are of groups, and of some editions only
        fields = {
            "target_project_id": number_at(self._project(), "id"),
            "target_issue_iid": int(link.other),
            "link_type": "is_blocked_by",
        }
        asked = f"link issue {number} of {self._name} to issue {link.other}"
        try:
            self._rest.json("POST", f"{self._path(number)}/links", fields, asked=asked)
        except RefusedError as error:
            if error.status in _NOT_OFFERED:
                return False
            if error.status != _THERE:
                raise
        return True

    def _project(self) -> Any:
        path = f"projects/{quote(self._name, safe='')}"
        return self._rest.json("GET", path, asked=f"read the project {self._name}")

    def _is_trusted(self, author: str) -> bool:
        if self._trusted is None:
            self._trusted = frozenset(self._writers())
        return author in self._trusted

    def _writers(self) -> set[str]:
        path = f"projects/{quote(self._name, safe='')}/members/all?per_page=100"
        members = self._rest.pages(path, asked=f"read the members of {self._name}")
        names = {text_at(one, "username") for one in members if number_at(one, "access_level") >= _REPORTER}
        with suppress(RefusedError, SignInError):  # the token of a CI job has no user
            names.add(text_at(self._rest.json("GET", "user", asked="read who you are"), "username"))
        return names - {""}

    def _path(self, number: int | None = None) -> str:
        path = f"projects/{quote(self._name, safe='')}/issues"
        return path + (f"/{number}" if number is not None else "")
