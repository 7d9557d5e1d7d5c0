"""Drafts on GitLab: merge requests, commit statuses, discussions and jobs."""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from runner.core.progress.draft import ReviewItem
from runner.forge.drafts.hosted import CONTEXT, MARK, Hosted, PullRequest, Said, Verdict, marks_in
from runner.forge.errors import RefusedError
from runner.forge.rest import Rest
from runner.forge.values import at, list_at, number_at, text_at

_DRAFT = "Draft: "
_DEVELOPER = 30
"""The access level from which on somebody may push."""
_GONE = 404
_MOST_ITEMS = 500
_WORDS = 140
_STATES = {Verdict.PENDING: "pending", Verdict.SUCCESS: "success", Verdict.FAILURE: "failed"}


class GitLab(Struct, frozen=True, kw_only=True):
    """One project on GitLab; `name` is GROUP/NAME."""

    rest: Rest
    name: str
    noun: str = "merge request"
    sign: str = "!"

    def hosted(self) -> Hosted:
        """Return what GitLab knows of the project."""
        found = self.rest.json("GET", self._path(), asked=f"read the project {self.name}")
        access = [
            number_at(found, "permissions", key, "access_level") for key in ("project_access", "group_access")
        ]
        fork = text_at(found, "forked_from_project", "path_with_namespace")
        return Hosted(
            name=text_at(found, "path_with_namespace") or self.name,
            default_branch=text_at(found, "default_branch"),
            fork_of=fork or ("another project" if at(found, "forked_from_project") else ""),
            pushes=at(found, "permissions") is None or max(access) >= _DEVELOPER,
        )

    def is_protected(self, branch: str) -> bool | None:
        """Whether a branch is protected; None if it is not there."""
        path = self._path("repository", "branches", quote(branch, safe=""))
        try:
            found = self.rest.json("GET", path, asked=f"look at the branch {branch} of {self.name}")
        except RefusedError as error:
            if error.status == _GONE:
                return None
            raise
        return at(found, "protected") is True

    def find(self, branch: str) -> PullRequest | None:
        """Return the open merge request of a branch of this project, else the newest; None without one."""
        query = f"source_branch={quote(branch, safe='')}&state=all&order_by=created_at&sort=desc&per_page=100"
        asked = f"look for the merge request of {branch} in {self.name}"
        path = f"{self._path('merge_requests')}?{query}"
        found = [_read(entry) for entry in self.rest.pages(path, asked=asked, most=100)]
        own = [one for one in found if not one.foreign]
        return next((one for one in own if one.is_open), own[0] if own else None)

    def create(self, branch: str, base: str, title: str, body: str) -> PullRequest:
        """Open a draft."""
        fields = {
            "source_branch": branch,
            "target_branch": base,
            "title": _DRAFT + title,
            "description": body,
        }
        asked = f"open a draft for {branch} in {self.name}"
        return _read(self.rest.json("POST", self._path("merge_requests"), fields, asked=asked))

    def update(self, number: int, *, base: str, body: str) -> None:
        """Change the text and the base of a draft; its title belongs to people."""
        fields = {"description": body, "target_branch": base}
        self.rest.json(
            "PUT", self._request(number), fields, asked=f"update merge request {number} of {self.name}"
        )

    def set_status(self, commit: str, verdict: Verdict, words: str, url: str) -> None:
        """Say how a commit was judged."""
        fields = {"state": _STATES[verdict], "name": CONTEXT, "description": words[:_WORDS]}
        fields |= {"target_url": url} if url else {}
        asked = f"set the status of {commit[:12]} in {self.name}"
        self.rest.json("POST", self._path("statuses", commit), fields, asked=asked, repeatable=True)

    def said(self, number: int, commit: str, authors: Sequence[str]) -> Said:
        """Return what others say about a draft; `authors` count besides those who may write there."""
        asked = f"read the discussions of merge request {number} of {self.name}"
        path = f"{self._request(number)}/discussions?per_page=100"
        items: list[ReviewItem] = []
        strangers: set[str] = set()
        marks: set[str] = set()
        trusted = self._members() | set(authors)
        for discussion in self.rest.pages(path, asked=asked, most=_MOST_ITEMS):
            for note in list_at(discussion, "notes"):
                item = _item(note, text_at(discussion, "id"))
                counts = item.author in trusted or "*" in trusted
                if at(note, "system") is True or at(note, "resolved") is True or not item.text.strip():
                    continue
                if MARK in item.text and counts:
                    marks |= marks_in(item.text)
                elif counts:
                    items.append(item)
                else:
                    strangers.add(item.author)
        items += self._failures(commit)
        return Said(items=tuple(items), strangers=tuple(sorted(strangers)), marks=frozenset(marks))

    def answer(self, number: int, thread: str, text: str) -> None:
        """Answer in a discussion, or with an empty thread in the conversation."""
        place = ("discussions", thread, "notes") if thread else ("notes",)
        path = "/".join((self._request(number), *place))
        self.rest.json("POST", path, {"body": text}, asked=f"answer on merge request {number} of {self.name}")

    def enqueue(self, found: PullRequest, style: str) -> None:
        """Mark a draft as ready, and add it to the merge train, or let GitLab merge it after its pipeline."""
        number, asked = found.number, f"hand merge request {found.number} of {self.name} to the queue"
        if found.draft:
            title = found.title.removeprefix(_DRAFT)
            self.rest.json("PUT", self._request(number), {"title": title}, asked=asked)
        train = self._path("merge_trains", "merge_requests", str(number))
        fields: dict[str, Any] = {"auto_merge": True, "sha": found.commit, "squash": style == "squash"}
        try:
            self.rest.json("POST", train, fields, asked=asked, repeatable=True)
        except RefusedError:
            # Without merge trains there is the merge after the pipeline; its refusal is the one to show.
            fields |= {"merge_when_pipeline_succeeds": True}
            self.rest.json("PUT", f"{self._request(number)}/merge", fields, asked=asked)

    def _members(self) -> set[str]:
        """Return the names of those who may push."""
        path, asked = f"{self._path('members', 'all')}?per_page=100", f"read the members of {self.name}"
        found = self.rest.pages(path, asked=asked)
        return {text_at(one, "username") for one in found if number_at(one, "access_level") >= _DEVELOPER}

    def _failures(self, commit: str) -> Iterator[ReviewItem]:
        path = f"{self._path('repository', 'commits', commit, 'statuses')}?per_page=100"
        for entry in self.rest.pages(
            path, asked=f"read the jobs of {commit[:12]} in {self.name}", most=_MOST_ITEMS
        ):
            name = text_at(entry, "name")
            if text_at(entry, "status") == "failed" and not at(entry, "allow_failure") and name != CONTEXT:
                text = "\n".join(filter(None, (text_at(entry, "description"), text_at(entry, "target_url"))))
                yield ReviewItem(id=f"check-{number_at(entry, 'id')}", kind="check", text=text, author=name)

    def _path(self, *parts: str) -> str:
        return "/".join(("projects", quote(self.name, safe=""), *parts))

    def _request(self, number: int) -> str:
        return self._path("merge_requests", str(number))


def _read(entry: Any) -> PullRequest:
    state = text_at(entry, "state")
    source, target = number_at(entry, "source_project_id"), number_at(entry, "target_project_id")
    return PullRequest(
        number=number_at(entry, "iid"),
        url=text_at(entry, "web_url"),
        title=text_at(entry, "title"),
        body=text_at(entry, "description"),
        base=text_at(entry, "target_branch"),
        commit=text_at(entry, "sha"),
        is_open=state in {"opened", "locked"},
        merged=state == "merged",
        draft=at(entry, "draft") is True,
        foreign=source != target,
    )


def _item(note: Any, discussion: str) -> ReviewItem:
    path = text_at(note, "position", "new_path")
    return ReviewItem(
        id=f"note-{number_at(note, 'id')}",
        kind="comment" if path else "note",
        text=text_at(note, "body"),
        author=text_at(note, "author", "username"),
        path=path,
        line=number_at(note, "position", "new_line") or number_at(note, "position", "old_line"),
        thread=discussion if path else "",
    )
