"""The values that this package hands out and takes in; no behaviour beyond them."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class IsolationMode(StrEnum):
    """Where stories work."""

    WORKTREE = "worktree"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lease; pid alone is not an identity, since pids are reused."""

    boot_id: str
    pid: int
    start_ticks: int
    host: str
    run_id: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRequest:
    """What a story needs of its workspace.

    `parents` are the commits to start from: the base, or the tips of the story's dependencies;
    several are merged.
    """

    run_id: str
    story_id: str
    branch: str
    path: Path
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A checked-out place of a story's own, verified to exist."""

    path: Path
    branch: str
    base: str
    head: str
    reattached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What became of a workspace at its close: gone, or kept and why."""

    removed: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """One process tree to start under a keeper.

    `prompt` is fed to its standard input, then EOF. `env` is the whole environment.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: dict[str, str]
    prompt: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a session's leader ended, and whether the keeper had to stop the tree.

    `returncode` is negative for a signal, as in `subprocess`. `survivors` is empty unless
    processes of the tree could not be killed.
    """

    returncode: int
    stopped: bool
    survivors: tuple[int, ...] = ()
