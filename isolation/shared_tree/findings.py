"""What was found after a session: foreign changes and refused writes, and what follows from each.

A foreign change was made: it is kept in quarantine, undone, and fails the session. A refused write changed
nothing, so nothing is kept or undone; the attempt is named, and fails the session as the write would have.
Not every attempt counts. Paths that are open to all, and git's own files, belong to no story. A path that git
ignores is a by-product of some tool, and a file that was merely opened for reading and writing has most
likely been read: both are reported, and fail no session.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from isolation.claims.globs import Claim
from isolation.claims.owners import ANYBODY, Owners
from isolation.git.commits import named
from isolation.git.repository import Repository
from isolation.kernel.syscall_effects import CREATE, PROBE
from isolation.model import Attempts
from isolation.shared_tree.quarantine import Quarantine


class Finding(Struct, frozen=True, kw_only=True):
    """Foreign changes that a story made, or may have made. `stayed` are those that could not be undone."""

    quarantine: Quarantine
    stayed: tuple[str, ...]

    @property
    def words(self) -> str:
        """The finding in one line."""
        paths, candidates = named(self.quarantine.paths), self.quarantine.story_ids
        text = f"changed outside its claim: {paths}"
        if len(candidates) > 1:
            text = f"one of these stories changed paths outside its claim: {', '.join(candidates)}: {paths}"
        text += f"; kept as {self.quarantine.ref}"
        return f"{text}; not undone: {named(self.stayed)}" if self.stayed else text


class Watched(Struct):
    """A watched session; `findings` are set when it is over, and `notes`, which fail no session."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


class Watch(Protocol):
    """Checks what a session changed in a tree that several stories share."""

    def session(self, story_id: str) -> AbstractAsyncContextManager[Watched]:
        """Watch one session from its beginning to its end."""

    def admit(self, story_id: str, claim: Claim) -> None:
        """Take the claim of a story that joins the run, before it works."""


class Refusals(Struct, frozen=True, kw_only=True):
    """Paths outside its claim that a session tried to change.

    `foreign` fail the session, `forgiven` do not; `unnamed` counts attempts beyond those that were recorded.
    """

    foreign: tuple[str, ...] = ()
    forgiven: tuple[str, ...] = ()
    unnamed: int = 0

    @property
    def words(self) -> str:
        """What fails the session, in one line; empty if nothing does."""
        if not self.foreign:
            return ""
        more = f"; and {self.unnamed} more attempts, too many to name" if self.unnamed else ""
        return f"tried to change outside its claim: {named(self.foreign)} (refused){more}"

    @property
    def note(self) -> str:
        """What is worth knowing but fails no session, in one line."""
        if not self.forgiven:
            return ""
        return f"refused outside its claim, but ignored by git or only opened: {named(self.forgiven)}"


def judge(repository: Repository, owners: Owners, story_id: str, attempts: Attempts) -> Refusals:
    """Separate a story's foreign attempts from those that may be forgiven; blocking."""
    counted = [
        attempt
        for attempt in attempts.named
        if ".git" not in attempt.path.split("/")
        and owners.of(attempt.path, working=story_id) not in {story_id, ANYBODY}
    ]
    changes = [attempt for attempt in counted if attempt.operation != PROBE]
    # The folder was refused, so git cannot see that it is one: patterns such as `build/` need the slash.
    asked = {attempt.path for attempt in changes}
    asked |= {f"{attempt.path}/" for attempt in changes if attempt.operation == CREATE}
    ignored = _ignored(repository, sorted(asked))
    foreign = {attempt.path for attempt in changes if not {attempt.path, f"{attempt.path}/"} & ignored}
    others = {attempt.path for attempt in counted} - foreign
    return Refusals(foreign=tuple(sorted(foreign)), forgiven=tuple(sorted(others)), unnamed=attempts.unnamed)


def _ignored(repository: Repository, paths: Sequence[str]) -> frozenset[str]:
    """Return those that git ignores; none if git has no answer, as for a path in a submodule."""
    if not paths:
        return frozenset()
    listed = "\0".join(paths).encode(errors="surrogateescape")
    return frozenset(repository.run("check-ignore", "-z", "--stdin", stdin=listed, check=False).fields())
