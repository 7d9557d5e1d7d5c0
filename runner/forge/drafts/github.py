"""Drafts on GitHub: pull requests, commit statuses, reviews and check runs."""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from runner.core.progress.draft import ReviewItem
from runner.forge.drafts.hosted import CONTEXT, MARK, Hosted, PullRequest, Said, Verdict, marks_in
from runner.forge.errors import RefusedError
from runner.forge.github import graphql
from runner.forge.rest import Rest
from runner.forge.values import at, list_at, number_at, text_at

_TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_FAILED = frozenset({"failure", "timed_out", "action_required"})
_SPOKEN = frozenset({"CHANGES_REQUESTED", "COMMENTED"})
_GONE = 404
_MOST_ITEMS = 500
_WORDS = 140
_METHODS = {"merge": "MERGE", "squash": "SQUASH", "rebase": "REBASE"}
_READY = (
    "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { clientMutationId } }"
)
_AUTO = (
    "mutation($id: ID!, $method: PullRequestMergeMethod!) { enablePullRequestAutoMerge("
    "input: {pullRequestId: $id, mergeMethod: $method}) { clientMutationId } }"
)
_ENQUEUE = "mutation($id: ID!) { enqueuePullRequest(input: {pullRequestId: $id}) { clientMutationId } }"


class GitHub(Struct, frozen=True, kw_only=True):
    """One repository on GitHub; `name` is OWNER/NAME."""

    rest: Rest
    name: str
    noun: str = "pull request"
    sign: str = "#"

    def hosted(self) -> Hosted:
        """Return what GitHub knows of the repository."""
        found = self.rest.json("GET", self._path(), asked=f"read the repository {self.name}")
        pushes = at(found, "permissions", "push")
        return Hosted(
            name=text_at(found, "full_name") or self.name,
            default_branch=text_at(found, "default_branch"),
            fork_of=(text_at(found, "parent", "full_name") or "another repository")
            if at(found, "fork") is True
            else "",
            pushes=pushes is not False,
        )

    def is_protected(self, branch: str) -> bool | None:
        """Whether a branch is protected; None if it is not there."""
        path = self._path("branches", quote(branch, safe=""))
        try:
            found = self.rest.json("GET", path, asked=f"look at the branch {branch} of {self.name}")
        except RefusedError as error:
            if error.status == _GONE:
                return None
            raise
        return at(found, "protected") is True

    def find(self, branch: str) -> PullRequest | None:
        """Return the open pull request of a branch of this repository, else the newest; None without one."""
        owner = self.name.partition("/")[0]
        head = quote(f"{owner}:{branch}", safe="")
        path = f"{self._path('pulls')}?head={head}&state=all&sort=created&direction=desc&per_page=100"
        asked = f"look for the pull request of {branch} in {self.name}"
        found = [self._read(entry) for entry in self.rest.pages(path, asked=asked, most=100)]
        own = [one for one in found if not one.foreign]
        return next((one for one in own if one.is_open), own[0] if own else None)

    def create(self, branch: str, base: str, title: str, body: str) -> PullRequest:
        """Open a draft."""
        fields = {"title": title, "head": branch, "base": base, "body": body, "draft": True}
        asked = f"open a draft for {branch} in {self.name}"
        return self._read(self.rest.json("POST", self._path("pulls"), fields, asked=asked))

    def update(self, number: int, *, base: str, body: str) -> None:
        """Change the text and the base of a draft; its title belongs to people."""
        path, asked = self._path("pulls", str(number)), f"update pull request {number} of {self.name}"
        self.rest.json("PATCH", path, {"body": body, "base": base}, asked=asked, repeatable=True)

    def set_status(self, commit: str, verdict: Verdict, words: str, url: str) -> None:
        """Say how a commit was judged."""
        fields = {"state": str(verdict), "context": CONTEXT, "description": words[:_WORDS]}
        fields |= {"target_url": url} if url else {}
        asked = f"set the status of {commit[:12]} in {self.name}"
        self.rest.json("POST", self._path("statuses", commit), fields, asked=asked, repeatable=True)

    def said(self, number: int, commit: str, authors: Sequence[str]) -> Said:
        """Return what others say about a draft; `authors` count besides those who may write there."""
        items: list[ReviewItem] = []
        strangers: set[str] = set()
        marks: set[str] = set()
        for entry, item in self._comments(number):
            counts = _counts(entry, item.author, authors)
            if MARK in item.text and (counts or text_at(entry, "user", "type") == "Bot"):
                marks |= marks_in(item.text)
            elif counts and item.text.strip():
                items.append(item)
            elif item.text.strip():
                strangers.add(item.author)
        items += self._failures(commit)
        return Said(items=tuple(items), strangers=tuple(sorted(strangers)), marks=frozenset(marks))

    def answer(self, number: int, thread: str, text: str) -> None:
        """Answer in a thread, or with an empty one in the conversation."""
        place = ("pulls", str(number), "comments", thread, "replies")
        path = self._path(*(place if thread else ("issues", str(number), "comments")))
        self.rest.json("POST", path, {"body": text}, asked=f"answer on pull request {number} of {self.name}")

    def enqueue(self, found: PullRequest, style: str) -> None:
        """Mark a draft as ready, and hand it to the merge queue, or to auto-merge where there is none."""
        asked = f"hand pull request {found.number} of {self.name} to the queue"
        if found.draft:
            graphql(self.rest, _READY, {"id": found.node}, asked=asked)
        try:
            graphql(self.rest, _ENQUEUE, {"id": found.node}, asked=asked)
        except RefusedError:
            # Without a merge queue for its base there is auto-merge; its refusal is the one to show.
            graphql(self.rest, _AUTO, {"id": found.node, "method": _METHODS[style]}, asked=asked)

    def _comments(self, number: int) -> Iterator[tuple[Any, ReviewItem]]:
        asked = f"read the reviews of pull request {number} of {self.name}"
        pull, whole = self._path("pulls", str(number)), "?per_page=100"
        for entry in self.rest.pages(f"{pull}/reviews{whole}", asked=asked, most=_MOST_ITEMS):
            if text_at(entry, "state") in _SPOKEN:
                yield entry, _item(entry, "review")
        for entry in self.rest.pages(f"{pull}/comments{whole}", asked=asked, most=_MOST_ITEMS):
            yield entry, _item(entry, "comment")
        notes = self._path("issues", str(number), "comments")
        for entry in self.rest.pages(f"{notes}{whole}", asked=asked, most=_MOST_ITEMS):
            yield entry, _item(entry, "note")

    def _failures(self, commit: str) -> Iterator[ReviewItem]:
        asked = f"read the checks of {commit[:12]} in {self.name}"
        runs = self.rest.json(
            "GET", self._path("commits", commit, "check-runs") + "?per_page=100", asked=asked
        )
        for entry in list_at(runs, "check_runs"):
            if text_at(entry, "conclusion") in _FAILED:
                parts = (text_at(entry, "output", key) for key in ("title", "summary", "text"))
                yield _check(entry, text_at(entry, "name"), "\n".join(filter(None, parts)), "details_url")
        states = self.rest.json("GET", self._path("commits", commit, "status") + "?per_page=100", asked=asked)
        for entry in list_at(states, "statuses"):
            name = text_at(entry, "context")
            if text_at(entry, "state") in {"failure", "error"} and name != CONTEXT:
                yield _check(entry, name, text_at(entry, "description"), "target_url")

    def _path(self, *parts: str) -> str:
        return "/".join(("repos", self.name, *parts))

    def _read(self, entry: Any) -> PullRequest:
        head = text_at(entry, "head", "repo", "full_name")
        return PullRequest(
            number=number_at(entry, "number"),
            url=text_at(entry, "html_url"),
            title=text_at(entry, "title"),
            body=text_at(entry, "body"),
            base=text_at(entry, "base", "ref"),
            commit=text_at(entry, "head", "sha"),
            is_open=text_at(entry, "state") == "open",
            merged=bool(text_at(entry, "merged_at")),
            draft=at(entry, "draft") is True,
            foreign=head.lower() != self.name.lower(),
            node=text_at(entry, "node_id"),
        )


def _item(entry: Any, kind: str) -> ReviewItem:
    number = number_at(entry, "id")
    thread = number_at(entry, "in_reply_to_id") or number
    return ReviewItem(
        id=f"{kind}-{number}",
        kind=kind,
        text=text_at(entry, "body"),
        author=text_at(entry, "user", "login"),
        path=text_at(entry, "path"),
        line=number_at(entry, "line") or number_at(entry, "original_line"),
        thread=str(thread) if kind == "comment" else "",
    )


def _check(entry: Any, name: str, words: str, link: str) -> ReviewItem:
    text = "\n".join(filter(None, (words, text_at(entry, link))))
    return ReviewItem(id=f"check-{number_at(entry, 'id')}", kind="check", text=text, author=name)


def _counts(entry: Any, author: str, authors: Sequence[str]) -> bool:
    """Whether somebody's words lead to work: a stranger's do not, unless the settings say so."""
    return text_at(entry, "author_association") in _TRUSTED or author in authors or "*" in authors
