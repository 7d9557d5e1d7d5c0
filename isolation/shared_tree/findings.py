"""What was found after a session: foreign changes, whose they may be, and where they are kept."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from isolation.frozen import frozen
from isolation.git.commits import named
from isolation.shared_tree.quarantine import Quarantine


@frozen
class Finding:
    """Foreign changes that a story made, or may have made. `stayed` are those that could not be undone."""

    quarantine: Quarantine
    stayed: tuple[str, ...]

    @property
    def words(self) -> str:
        """Say it in one line."""
        paths, candidates = named(self.quarantine.paths), self.quarantine.story_ids
        told = f"changed outside its claim: {paths}"
        if len(candidates) > 1:
            told = f"somebody changed what is not theirs: {paths} (candidates: {', '.join(candidates)})"
        told += f"; kept as {self.quarantine.ref}"
        return f"{told}; not undone: {named(self.stayed)}" if self.stayed else told


@dataclass(slots=True)
class Watched:
    """A session under watch; `findings` are there when it is over."""

    findings: tuple[Finding, ...] = ()


class Watch(Protocol):
    """Whoever looks at what a session changed in a tree that several stories share."""

    def session(self, story_id: str) -> AbstractAsyncContextManager[Watched]:
        """Watch one session from its beginning to its end."""
