"""A repository on a forge, as far as drafts need it: what both GitHub and GitLab offer, under one name each.

All calls block. None of them merges or moves a branch; `enqueue` asks the forge to do so by its own rules.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from runner.core.progress.draft import ReviewItem

CONTEXT = "autopilot-multi"
"""The name of the commit status that says how a story ended."""
MARK = "<!-- autopilot-multi:"
"""How everything begins that this program writes for itself to find again; forges do not show it."""


class Verdict(StrEnum):
    """What a commit status says about a story."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"


class Hosted(Struct, frozen=True, kw_only=True):
    """The repository; `fork_of` is empty if it is no fork, `pushes` whether this user may push there."""

    name: str
    default_branch: str
    fork_of: str = ""
    pushes: bool = True


class PullRequest(Struct, frozen=True, kw_only=True):
    """A pull request, or merge request; `node` is what the forge's other interface calls it.

    `foreign` means that its branch is in another repository.
    """

    number: int
    url: str
    title: str
    body: str
    base: str
    commit: str
    is_open: bool = True
    merged: bool = False
    draft: bool = True
    foreign: bool = False
    node: str = ""


class Said(Struct, frozen=True, kw_only=True):
    """What others say about a draft: items by people who may, those of strangers, and our own marks."""

    items: tuple[ReviewItem, ...] = ()
    strangers: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()


class Forge(Protocol):
    """One repository on a forge."""

    @property
    def noun(self) -> str:
        """What it calls a pull request."""

    @property
    def sign(self) -> str:
        """What stands before the number of one."""

    def hosted(self) -> Hosted:
        """Return what the forge knows of the repository."""

    def is_protected(self, branch: str) -> bool | None:
        """Whether a branch is protected; None if it is not there."""

    def find(self, branch: str) -> PullRequest | None:
        """Return the open pull request of a branch of this repository, else the newest; None without one."""

    def create(self, branch: str, base: str, title: str, body: str) -> PullRequest:
        """Open a draft."""

    def update(self, number: int, *, base: str, body: str) -> None:
        """Change the text and the base of a draft; its title belongs to people."""

    def set_status(self, commit: str, verdict: Verdict, words: str, url: str) -> None:
        """Say how a commit was judged."""

    def said(self, number: int, commit: str, authors: Sequence[str]) -> Said:
        """Return what others say about a draft; `authors` count besides those who may write there."""

    def answer(self, number: int, thread: str, text: str) -> None:
        """Answer in a thread, or with an empty one in the conversation."""

    def enqueue(self, found: PullRequest, style: str) -> None:
        """Mark a draft as ready, and ask the forge to merge it when its own rules are met."""


def mark_of(name: str) -> str:
    """Return the mark by which an answer is found again."""
    return f"{MARK}{name} -->"


def marks_in(text: str) -> set[str]:
    """Return the names of the marks in a text."""
    return {part.partition(" -->")[0] for part in text.split(MARK)[1:]}
