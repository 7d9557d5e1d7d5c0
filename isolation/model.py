"""The values that this package takes and returns; no behavior beyond them."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field


class IsolationMode(StrEnum):
    """Where stories work."""

    WORKTREE = "worktree"
    NONE = "none"


class EnforcementLevel(StrEnum):
    """What happens to a write outside the story's claim, strongest first; see `shared_tree/levels.py`."""

    DIVERT = "divert"
    DENY = "deny"
    DETECT = "detect"


class Means(StrEnum):
    """The kernel feature that keeps a session within its paths."""

    MOUNTS = "mounts"
    LANDLOCK = "landlock"


class Overlay(Struct, frozen=True, kw_only=True):
    """An overlay over `target`: what a session writes there lands in `upper`.

    `upper` and `work` are folders on one file system, outside `target`; `work` is the kernel's own.
    """

    target: Path
    upper: Path
    work: Path


class Hidden(Struct, frozen=True, kw_only=True):
    """Something private that a session does not see: `stand_in`, which is empty, is there instead.

    `what` names it for a reader. `signs` is a pattern of what programs print when they miss it.
    """

    stand_in: Path | str
    what: str
    signs: str = ""


class Network(Struct, frozen=True, kw_only=True):
    """The network of a session's own, with one way out: a proxy that reaches the `allowed` hosts.

    `allowed` are entries as in `network/rules.py`. `upstream` is the user's own proxy, by which all but what
    `direct` matches is reached.
    """

    allowed: tuple[str, ...] = ()
    upstream: str = ""
    direct: tuple[str, ...] = ()


class Confinement(Struct, frozen=True, kw_only=True):
    """Where a session may not write, and what it does not see; everything else stays as it is.

    `read_only` describes each closed path for a reader. `writable` are the folders inside closed paths, or
    under the overlay, that stay open; the deeper path decides. All paths are real, without symbolic links.
    `sources` says which other folder or file stands at some of these paths, instead of their own content;
    `tree` is the worktree that stands at the path of the checkout in this way.
    Refused writes to the `witnessed` tree are reported at the session's end, if the machine can do that.
    `hidden` is what the session does not see, except for the paths inside that are `shown`. What hides
    something also keeps the session from the memory, the files and the variables of other processes.
    `store` names the folder in which it puts git objects, if the repository's own are closed to it.
    Without a `network` of its own the session uses the machine's. With `noticed`, what it reaches for in
    spite of all this is reported at its end; each of its stand-ins is then its own.
    """

    level: EnforcementLevel
    means: Means
    read_only: Mapping[Path, str] = field(default_factory=dict)
    writable: tuple[Path, ...] = ()
    overlay: Overlay | None = None
    sources: Mapping[Path, Path] = field(default_factory=dict)
    tree: Path | None = None
    witnessed: Path | None = None
    hidden: Mapping[Path, Hidden] = field(default_factory=dict)
    shown: tuple[Path, ...] = ()
    store: str = ""
    network: Network | None = None
    noticed: bool = False


class Attempt(Struct, frozen=True, kw_only=True):
    """Something that a session tried to do to a path of the witnessed tree, and that was refused.

    `operation` is `create`, `write`, `delete` or `attributes`; or `open`, which changes nothing by itself.
    """

    operation: str
    path: str


class Attempts(Struct, frozen=True, kw_only=True):
    """What a witness saw: the first attempts by name, and the number of the others."""

    named: tuple[Attempt, ...] = ()
    unnamed: int = 0


class Holder(Struct, frozen=True, kw_only=True):
    """The process that holds a lease; a pid alone does not identify it, since pids are reused.

    `home` is the repository of its run; empty if that is the one of the lease.
    """

    boot_id: str
    pid: int
    start_ticks: int
    host: str
    run_id: str
    since: float
    home: str = ""


class WorkspaceRequest(Struct, frozen=True, kw_only=True):
    """What a story needs of its workspace.

    `parents` are the commits to start from: the base, or the tips of the story's dependencies;
    several are merged. `needs_parents` means that the story cannot work without them: its existing branch is
    merged with those that it lacks. `sparse` are the folders that a new worktree holds; None for all of them.
    """

    run_id: str
    story_id: str
    branch: str
    path: Path
    parents: tuple[str, ...]
    needs_parents: bool = False
    sparse: tuple[str, ...] | None = None


class Workspace(Struct, frozen=True, kw_only=True):
    """A story's own checkout, verified to exist; `prepared` if what prepares one has run in it already.

    `index` is what the file system said about git's index after a checkout; empty if that is not known.
    `unsettled` is the file that says that its files need not be on the disk yet; None if all of them are.
    """

    path: Path
    branch: str
    base: str
    head: str
    reattached: bool
    prepared: bool = False
    index: tuple[int, ...] = ()
    unsettled: Path | None = None


class Closing(Struct, frozen=True, kw_only=True):
    """What happened to a workspace at its end: removed, or kept and why.

    One that is `reused` has left nothing to delete.
    """

    removed: bool
    reason: str
    reused: bool = False


class SessionSpec(Struct, frozen=True, kw_only=True):
    """One process tree to start under a keeper.

    `prompt` becomes its standard input, then EOF. `env` is the whole environment. Without a
    confinement it may write wherever its user may.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: dict[str, str]
    prompt: Path
    confinement: Confinement | None = None


class Exit(Struct, frozen=True, kw_only=True):
    """How a session's leader ended, and whether the keeper had to stop the tree.

    `returncode` is negative for a signal, as in `subprocess`. `survivors` is empty unless
    processes of the tree could not be killed. `attempts` is None without a witness. `denied` are the hosts,
    with their ports, that its proxy refused. `reached` is what it reached for in spite of its seal, as pairs
    of a kind (see `kernel/noticed/reaching.py`) and a name.
    """

    returncode: int
    stopped: bool
    survivors: tuple[int, ...] = ()
    attempts: Attempts | None = None
    denied: tuple[str, ...] = ()
    reached: tuple[tuple[str, str], ...] = ()
