"""A repository in which stories of a run work, as a value."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from isolation.decoding import from_values

HOME = ""
"""The name that stories have for the repository of the run: the one in which the command was given."""


class RepositoryInfo(Struct, frozen=True, kw_only=True):
    """A repository of a run with several: its name for people, where it is, and the commit it started from.

    `url` is the address that it was cloned from, without credentials; empty if the user has named a folder.
    `followed` is where its base is by now. `settings` are those of its stories, as JSON.
    """

    name: str
    path: str
    base: str
    url: str = ""
    followed: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def repositories_of(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, RepositoryInfo]:
    """Return the repositories of a run as its first event has them; raises ValueError for anything else."""
    return from_values(entries, dict[str, RepositoryInfo])
