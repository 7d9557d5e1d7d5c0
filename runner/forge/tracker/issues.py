"""GitHub and GitLab issues as work items, through the same doors as stories and drafts.

An epic is an issue with the label `epic`, a task is an issue that belongs to it. A comment at the end of its
text, which the service does not show, is the mark by which an issue is found again. Where a service has no
relation of a kind, two lines of text stand for it: people can read them, and a comment tells them from what a
file says.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import ParamSpec, Protocol, TypeVar

from trio import to_thread

from isolation.patterns import pattern
from runner.core.errors import SettingsError
from runner.core.work_items.documents import Kind, WorkItem
from runner.core.work_items.tracker import TITLES, Tracker
from runner.forge.address import Address, address_of
from runner.forge.errors import ForgeError, ProgramMissingError, SignInError
from runner.forge.github import open_github
from runner.forge.gitlab import open_gitlab
from runner.forge.tracker.backend import Link, description
from runner.forge.tracker.errors import AccessError, TrackerError
from runner.forge.tracker.github import GitHubIssues
from runner.forge.tracker.gitlab import GitLabIssues

EPIC_LABEL = "epic"
_PREFIXES: Mapping[Tracker, str] = {Tracker.GITHUB: "GH-", Tracker.GITLAB: "GL-"}
"""An id is never a bare number: it would look like the numbers that files begin with."""
_PART = r"(?!\.{1,2}(?:/|$))[\w.-]+"
_NAMES = {
    Tracker.GITHUB: pattern(rf"{_PART}/{_PART}"),
    Tracker.GITLAB: pattern(rf"{_PART}(?:/{_PART})+"),
}
_FORMS = {Tracker.GITHUB: "OWNER/NAME", Tracker.GITLAB: "GROUP/NAME"}
_WRITTEN = pattern(r"<!-- autopilot-multi:(epic|after) ([0-9]{1,12}) -->")
_OURS = "<!-- autopilot-"
_MENTION = pattern(r"(?<![\w/.])@(?=\w)")
_T = TypeVar("_T")
_P = ParamSpec("_P")


class Service(Protocol):
    """The issues of one repository; all calls block, and raise ForgeError when they fail."""

    def check(self) -> None:
        """Raise unless its issues can be used."""

    def find(self, mark: str) -> int:
        """Return the number of the issue with a mark, by somebody who may write there; 0 without one."""

    def create(self, title: str, text: str, labels: tuple[str, ...]) -> int:
        """Create an issue, and return its number."""

    def text(self, number: int) -> str:
        """Return the text of an issue."""

    def rewrite(self, number: int, text: str) -> None:
        """Replace the text of an issue."""

    def links(self, number: int) -> frozenset[Link]:
        """Return the relations of an issue, by numbers."""

    def link(self, number: int, link: Link) -> bool:
        """Relate an issue to another one; return False if the service has no such relation."""


class Issues:
    """The issues of one repository as a tracker."""

    def __init__(self, tracker: Tracker, service: Service) -> None:
        self.tracker = tracker
        self._service = service

    async def projects(self) -> tuple[str, ...]:
        """Return nothing: the repository is known; raises AccessError if access is denied."""
        await _asked(self._service.check)
        return ()

    async def find(self, marker: str) -> str:
        """Return the id of the issue with a marker; empty if there is none."""
        number = await _asked(self._service.find, _comment(marker))
        return self._id(number) if number else ""

    async def create(self, item: WorkItem, marker: str) -> str:
        """Create an issue with a marker, and return its id."""
        text = f"{_harmless(description(item))}\n\n{_comment(marker)}"
        labels = (EPIC_LABEL,) if item.kind is Kind.EPIC else ()
        return self._id(await _asked(self._service.create, item.title, text, labels))

    async def links(self, item_id: str) -> frozenset[Link]:
        """Return the relations of an issue: those of the service, and those in its text."""
        number = self._number(item_id)
        found = await _asked(self._service.links, number)
        text = await _asked(self._service.text, number)
        written = {Link(parent=kind == "epic", other=other) for kind, other in _WRITTEN.findall(text)}
        return frozenset(Link(parent=one.parent, other=self._id(int(one.other))) for one in found | written)

    async def link(self, item_id: str, link: Link) -> None:
        """Relate an issue to its epic, or to one that it waits for."""
        number, other = self._number(item_id), self._number(link.other)
        plain = Link(parent=link.parent, other=str(other))
        if await _asked(self._service.link, number, plain):
            return
        if link.parent:
            await self._add(other, f"- [ ] #{number}", known=rf"(?m)^- \[[ xX]\] #{number}\b")
            await self._add(number, f"Part of #{other}. <!-- autopilot-multi:epic {other} -->")
        else:
            await self._add(number, f"Blocked by #{other}. <!-- autopilot-multi:after {other} -->")

    async def _add(self, number: int, line: str, *, known: str = "") -> None:
        """Add a line to the text of an issue, unless it is there; entries of a list stay together."""
        text = await _asked(self._service.text, number)
        if line in text or (known and pattern(known).search(text)):
            return
        between = "\n" if line.startswith("- ") and text.rpartition("\n")[2].startswith("- [") else "\n\n"
        await _asked(self._service.rewrite, number, f"{text.rstrip()}{between}{line}")

    def _id(self, number: int) -> str:
        return f"{_PREFIXES[self.tracker]}{number}"

    def _number(self, item_id: str) -> int:
        prefix, title = _PREFIXES[self.tracker], TITLES[self.tracker]
        number = item_id.removeprefix(prefix)
        if number == item_id or not number.isdecimal():
            raise TrackerError(
                f"{item_id} is no issue of {title}, so nothing there can be linked to it",
                hint=f"use the tracker that has it, or remove the line `Tracker: {item_id}` from its file.",
            )
        return int(number)


async def _asked(act: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Ask a service in a thread; its errors become those of a tracker."""
    try:
        return await to_thread.run_sync(lambda: act(*args, **kwargs))
    except ForgeError as error:
        kind = AccessError if isinstance(error, SignInError | ProgramMissingError) else TrackerError
        raise kind(error.message, hint=error.hint) from error


def _comment(marker: str) -> str:
    return f"<!-- {marker} -->"


def _harmless(text: str) -> str:
    """Return what a session wrote so that it mentions no person, and carries no mark of its own."""
    return _MENTION.sub("@\u200b", text).replace(_OURS, "<!-- ")


async def open_issues(
    tracker: Tracker,
    address: Address,
    environ: Mapping[str, str],
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Issues:
    """Return a repository's issues as a tracker once they can be used; raises TrackerError if they cannot."""

    def opened() -> Service:
        if tracker is Tracker.GITLAB:
            return GitLabIssues(open_gitlab(environ, host=address.host, pause=pause), address.name)
        return GitHubIssues(open_github(environ, host=address.host, pause=pause), address.name)

    issues = Issues(tracker, await _asked(opened))
    await issues.projects()
    return issues


def issues_address(
    tracker: Tracker, project: str, *, forge: str, url: str, remote: str, environ: Mapping[str, str]
) -> Address:
    """Return whose issues are used: those of `project`, else of the repository that drafts go to."""
    found = None
    with suppress(SettingsError):
        found = address_of(forge, url, environ, remote=remote)
    if found is not None and found.kind != tracker:
        found = None
    title = TITLES[tracker]
    if project:
        if not _NAMES[tracker].fullmatch(project):
            raise TrackerError(
                f"tracker-project: '{project}' is no repository on {title}",
                hint=f"write {_FORMS[tracker]}.",
            )
        return Address(kind=tracker, name=project, host=found.host if found else "")
    if found is None:
        raise TrackerError(
            f"the remote {remote} leads to no repository on {title}",
            hint=f'name the repository: tracker-project = "{_FORMS[tracker]}".',
        )
    return found
