"""The write guard: what this machine's kernel can enforce, and the confinement of one session.

The machine is probed by one real attempt for each kind of protection, never by its version: a process
confines itself and then does to a throwaway folder what a session must not do. Only the state of the folder
afterwards counts.

Invariants:

- A protection counts as available only if its trial kept off every foreign write and let the own one through.
- A confinement names what is closed; everything else stays as it is. So a session finds its home, its caches
  and the temporary folders unchanged.
"""

import os
import re
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import GuardError
from isolation.files.deletion import delete_tree
from isolation.files.lookups import is_folder, is_link
from isolation.git.checkout import admin_dir
from isolation.git.commits import named
from isolation.git.contained.boundary import with_refs, with_store
from isolation.git.registrations import linked_paths
from isolation.git.repository import Repository
from isolation.guard.view import View, through
from isolation.keeper.trying import run_trial
from isolation.keeper.wire import confinement_texts, read_attempts
from isolation.kernel.overlay import overlay_changes
from isolation.model import Attempt, Confinement, EnforcementLevel, Means, Overlay, Workspace
from isolation.paths import as_path, real_folder
from isolation.patterns import pattern

UNSEEN = "writes that the guard refuses cannot be reported here; they show only in what a session prints"

_FOREIGN_OPERATIONS = {"write", "truncate", "create", "delete"}
_REACHES = {
    "trace": "write to the files of another session, and read its memory, through its processes",
    "signal": "end the processes of another session",
    "end": "end the run itself",
    "limit": "lower the limits of another session's processes",
}
"""What a session can do to others by each operation that a trial does to processes, in words."""
_REFUSAL = pattern(
    # What is closed is mounted: it cannot be moved, since it is busy, and no file in it gets a second name
    # outside of it. The last one is git's own.
    r"Read-only file system|Permission denied|Device or resource busy|Invalid cross-device link"
    r"|EROFS|EACCES|EBUSY|EXDEV|unable to create directory for"
)
_READ_ONLY = pattern(r"Read-only file system|EROFS")
_LONGEST_LINE = 160
_GIT_DIRECTORY = "the shared git directory"
_UNSAID = {
    "Cannot save the current status": "refs/stash",
    "unable to move logfile": "logs/refs/heads",
}
"""What git fails at without its path, by its words: the stash of all worktrees, the log of a branch."""
_MOST_NAMED = 12
_NAME = r"[^\s'\"`:,;()\[\]]"
_OF_A_PROCESS = pattern(rf"/proc/\d+/{_NAME}+")
_OWN_ROOT = pattern(r"/proc/(?:self|thread-self)/root(?=/)")
"""Another name of the root folder, by which a closed path is the same."""
_UPWARDS = pattern(rf"(?:\.\./)+{_NAME}*")


class Support(Struct, frozen=True, kw_only=True):
    """Whether an enforcement level is available here, by which means, and why or why not.

    `gap` says what sessions can do to the processes of others although it is; empty if nothing.
    """

    level: EnforcementLevel
    available: bool
    means: Means | None
    reason: str
    gap: str = ""

    def withdrawn(self, reason: str) -> "Support":
        """Return the same level as unavailable."""
        return Support(level=self.level, available=False, means=None, reason=reason)


class Protection(ABC):
    """One way in which the kernel keeps writes off a tree: how it confines, and how its trial is judged."""

    level: ClassVar[EnforcementLevel]
    means: ClassVar[Mapping[Means, str]]
    """What can enforce it, best first, each with the words for a reader."""

    @abstractmethod
    def confinement(
        self, top: Path, means: Means, *, closed: Mapping[Path, str], writable: Sequence[Path], scratch: Path
    ) -> Confinement:
        """Return a confinement that protects `top` but for `writable`, and closes what is in `closed`."""

    @abstractmethod
    def leak(self, confinement: Confinement, succeeded: set[str]) -> str:
        """Return what the trial let through although the tree looks untouched; empty if nothing."""


class ReadOnly(Protection):
    """The tree is closed: a foreign write fails in the session that tries it."""

    level = EnforcementLevel.DENY
    # Mounts first: Landlock cannot close a folder without also freezing the names beside it.
    means: ClassVar = {
        Means.MOUNTS: "read-only mounts in a namespace of its own",
        Means.LANDLOCK: "Landlock",
    }

    def confinement(
        self, top: Path, means: Means, *, closed: Mapping[Path, str], writable: Sequence[Path], scratch: Path
    ) -> Confinement:
        """Return a confinement under which `top` is read-only; `scratch` is not used."""
        del scratch
        read_only = {**closed, top: "paths that it does not own"}
        return Confinement(level=self.level, means=means, read_only=read_only, writable=tuple(writable))

    def leak(self, confinement: Confinement, succeeded: set[str]) -> str:
        """Return the foreign operations that did not fail."""
        del confinement
        return _lets(succeeded) if succeeded else ""


class Overlaid(Protection):
    """The tree is covered by an overlay: a foreign write succeeds, but lands in a folder outside the tree."""

    level = EnforcementLevel.DIVERT
    means: ClassVar = {Means.MOUNTS: "an overlay mount in a namespace of its own"}

    def confinement(
        self, top: Path, means: Means, *, closed: Mapping[Path, str], writable: Sequence[Path], scratch: Path
    ) -> Confinement:
        """Return a confinement under which writes to `top` land in `scratch`, which is made."""
        scratch = _real(scratch)
        if scratch.is_relative_to(top):
            raise GuardError(f"the overlay folder {scratch} lies inside the tree {top} that it covers")
        overlay = Overlay(target=top, upper=scratch / "upper", work=scratch / "work")
        for folder in (scratch, overlay.upper, overlay.work):
            folder.mkdir(parents=True, exist_ok=True)
        return Confinement(
            level=self.level, means=means, read_only=closed, writable=tuple(writable), overlay=overlay
        )

    def leak(self, confinement: Confinement, succeeded: set[str]) -> str:
        """Return a complaint unless the overlay holds exactly what the trial wrote."""
        del succeeded  # every write succeeds: in the overlay
        upper = confinement.overlay.upper if confinement.overlay else None
        found = {change.path for change in overlay_changes(upper)} if upper else set()
        return "" if found == {"kept", "made", "doomed"} else "the overlay does not hold what was written"


READ_ONLY, OVERLAID = ReadOnly(), Overlaid()
_probing = threading.Lock()
"""A second thread that asks during a trial waits for the answer instead of starting another trial."""


def supported(protection: Protection, where: Path | None = None) -> Support:
    """Try a protection out, once per process; `where` is the folder in which an overlay will be."""
    with _probing:
        return _supported(protection, where)


@cache
def _supported(protection: Protection, where: Path | None) -> Support:
    level, reasons = protection.level, []
    for means, description in protection.means.items():
        failure, reached = _try(protection, means, where)
        if not failure:
            gap = _gap(reached)
            return Support(level=level, available=True, means=means, reason=description, gap=gap)
        reasons.append(f"{description}: {failure}")
    return Support(level=level, available=False, means=None, reason="; ".join(reasons))


def attempt(protection: Protection, means: Means, where: Path | None = None) -> str:
    """Try one means out; return why it does not protect, empty if it does."""
    return _try(protection, means, where)[0]


def _try(protection: Protection, means: Means, where: Path | None) -> tuple[str, set[str]]:
    """Try one means out; return why it does not protect, and what it lets a session do to processes."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="autopilot-guard-", dir=where)))
    try:
        return _attempt_in(folder, protection, means)
    finally:
        delete_tree(folder)  # an overlay leaves a folder that its own user cannot read


def _gap(reached: set[str]) -> str:
    ways = [words for operation, words in _REACHES.items() if operation in reached]
    if not ways:
        return ""
    listed = " and ".join(filter(None, (", ".join(ways[:-1]), ways[-1])))
    return f"sessions are not kept from processes that are not theirs: one can {listed}"


def _attempt_in(folder: Path, protection: Protection, means: Means) -> tuple[str, set[str]]:
    tree = folder / "tree"
    (tree / "own").mkdir(parents=True)
    (folder / "place").mkdir()
    for name in ("kept", "doomed"):
        (tree / name).write_text(name)
    confinement = protection.confinement(tree, means, closed={}, writable=[tree / "own"], scratch=folder)
    moves = means is Means.MOUNTS and protection.level is EnforcementLevel.DENY
    if moves:
        confinement = replace(
            confinement,
            writable=(*confinement.writable, folder / "place"),
            sources={folder / "place": tree / "own"},
        )
    answer = run_trial([str(folder), *confinement_texts(confinement)])
    words = set(answer.split())
    if not (tree / "own" / "mine").exists():
        return answer.removeprefix("failed ") or "the trial did not run", set()
    # What the process reports is not believed alone: the files themselves must be as they were.
    succeeded = _FOREIGN_OPERATIONS & words
    found = {path.name: path.read_text() for path in tree.iterdir() if path.is_file()}
    if found != {"kept": "kept", "doomed": "doomed"}:
        return _lets(succeeded), set()
    if moves and not (tree / "own" / "seen").exists():
        return "a folder does not show at another path", set()
    return protection.leak(confinement, succeeded), _REACHES.keys() & words


def _lets(succeeded: set[str]) -> str:
    return f"it lets a session {', '.join(sorted(succeeded))}"


@cache
def witnesses(means: Means) -> bool:
    """Whether the machine reports by name which writes it refused; tried out, once per process."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="autopilot-guard-")))
    try:
        tree = folder / "tree"
        (tree / "own").mkdir(parents=True)
        (tree / "kept").touch()
        confinement = Confinement(
            level=EnforcementLevel.DENY,
            means=means,
            read_only={tree: "the trial"},
            writable=(tree / "own",),
            witnessed=tree,
        )
        answer = run_trial([str(folder), *confinement_texts(confinement)])
    finally:
        delete_tree(folder)
    seen = read_attempts(answer.split()) if answer[:1].isdigit() else None
    wanted = (Attempt(operation="create", path="made"), Attempt(operation="write", path="kept"))
    return seen is not None and seen.named == wanted


def worktree_support(main: Path, root: Path) -> Support:
    """Find out whether stories can be kept out of the main checkout and each other's worktrees."""
    return unless_harmful(supported(READ_ONLY), main, (main, root))


def unless_harmful(support: Support, top: Path, closed: Sequence[Path]) -> Support:
    """Withdraw a protection under which sessions could not do what every program does."""
    if _real(Path.home()).is_relative_to(top):
        return support.withdrawn(f"the checkout {top} holds your home folder, which sessions must write to")
    if support.means is Means.LANDLOCK:
        above = [each for each in _temporary() if any(path.is_relative_to(each) for path in closed)]
        if above:
            return support.withdrawn(f"Landlock would close {above[0]} along with the repository in it")
    return support


def for_worktree(
    repository: Repository,
    workspace: Workspace,
    *,
    means: Means,
    root: Path,
    shared: Sequence[str] = (),
    view: View | None = None,
    beside: Sequence[Path] = (),
) -> Confinement:
    """Confine a session to its worktree: the main checkout and all other worktrees are closed.

    In the git directory only what a commit on the story's own branch writes stays open. `root` is the folder
    of the story worktrees; `shared` are folders of the main checkout that worktrees use on purpose. With a
    `view` the worktree stands at the place of the main checkout, which is out of reach. `beside` are the
    folders of other repositories in which stories work meanwhile.
    """
    common = repository.common_dir
    main = repository.main_checkout
    own_places = tuple(place for place in (main, root, common) if place)
    others = (path for path in beside if path.is_dir() and not any(map(path.is_relative_to, own_places)))
    closed = dict.fromkeys(_elsewhere(repository, root), "another worktree")
    closed |= {root: "the other worktrees", common: _GIT_DIRECTORY}
    closed |= dict.fromkeys(map(_real, others), "another repository")
    closed |= machine_files(means) | ({main: "the main checkout"} if main else {})
    own = [workspace.path, *(main / name for name in shared if main)]
    git_dir = admin_dir(repository, workspace.path)
    if git_dir and means is Means.MOUNTS:
        # Git reads it for every worktree, and no command works with one that cannot be read.
        closed[as_path(f"{git_dir}/commondir")] = "the link to the repository"
    folders = _commit_folders(repository, workspace, git_dir)
    opened = (*_real_folders(map(str, own)), *folders)
    confinement = Confinement(
        level=EnforcementLevel.DENY, means=means, read_only=closed, writable=tuple(dict.fromkeys(opened))
    )
    seen = view.git_place if view else common
    tree = workspace.path
    confinement = with_store(confinement, common, tree.name, seen=seen, tree=tree)
    if "/" in workspace.branch:  # without, no ref is open at all
        confinement = with_refs(confinement, common, workspace.branch, fresh=True)
    if view is None:
        return confinement
    if git_dir is None:
        raise GuardError(
            f"{tree} is not a worktree of this repository any more", hint="it is kept; run the story again"
        )
    return through(view, confinement, repository, tree, git_dir=git_dir, shared=shared)


def _elsewhere(repository: Repository, root: Path) -> Iterator[Path]:
    """Yield the linked worktrees that are not in this folder, where they really are."""
    folder, inside = f"{root}", f"{root}/"
    for text in map(str, linked_paths(repository)):
        if text.rpartition("/")[0] != folder or is_link(text):
            path = os.path.realpath(text)
            if path != folder and not path.startswith(inside):
                yield Path(path)


def machine_files(means: Means) -> dict[Path, str]:
    """Return what to close so that a session, as root too, cannot move processes or set up the machine.

    Landlock closes only the control groups, since it freezes the names beside what it closes. The kernel's
    settings are closed to root alone: others cannot write them, and a sandbox inside the session could not
    mount a `/proc` of its own beside a closed part of this one.
    """
    return _machine_files(root=means is Means.MOUNTS and os.geteuid() == 0)


@cache
def _machine_files(*, root: bool) -> dict[Path, str]:
    groups, settings = "the control groups of processes", "the kernel's settings"
    closed = {"/sys/fs/cgroup": groups}
    if root:
        closed |= dict.fromkeys(
            ("/sys", "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"), settings
        )
    return {Path(path): what for path, what in closed.items() if Path(path).exists()}


def commit_folders(repository: Repository, workspace: Workspace) -> tuple[Path, ...]:
    """Return the folders of the git directory that a commit on the workspace's own branch writes to."""
    return _commit_folders(repository, workspace, admin_dir(repository, workspace.path))


def _commit_folders(repository: Repository, workspace: Workspace, git_dir: Path | None) -> tuple[Path, ...]:
    common, namespace = repository.common_dir, workspace.branch.rpartition("/")[0]
    folders = [f"{common}/objects", f"{common}/lfs", *([f"{git_dir}"] if git_dir else [])]
    if namespace:
        refs = (f"{common}/refs/heads/{namespace}", f"{common}/logs/refs/heads/{namespace}")
        for folder in refs:
            if not is_folder(folder):  # git removes it whenever it is empty
                Path(folder).mkdir(parents=True, exist_ok=True)
        folders += refs
    return tuple(dict.fromkeys(_real_folders(folders)))


def _real_folders(folders: Iterable[str]) -> Iterator[Path]:
    """Yield those of these folders that exist, where they really are."""
    for folder in folders:
        try:
            yield real_folder(folder)
        except OSError:
            continue


def refused(output: str, confinement: Confinement, cwd: Path) -> str:
    """Describe the refusals that a session's output mentions; empty if it names nothing that is closed."""
    found: dict[str, list[str]] = {}
    processes: list[str] = []
    elsewhere: list[str] = []
    for line in output.splitlines():
        if _GIT_DIRECTORY in confinement.read_only.values():
            unsaid = [name for words, name in _UNSAID.items() if words in line]
            found.setdefault(_GIT_DIRECTORY, []).extend(unsaid)
        if not _REFUSAL.search(line):
            continue
        processes += _OF_A_PROCESS.findall(line)
        paths = list(_paths_in(_OWN_ROOT.sub("", line), confinement, cwd))
        covering = [(path, _closing(path, confinement)) for path in paths]
        for path, closed in covering:
            if closed is not None:
                inside = str(path.relative_to(closed)) if path != closed else closed.name
                found.setdefault(confinement.read_only[closed], []).append(inside)
        if _READ_ONLY.search(line) and not any(closed for _, closed in covering):
            elsewhere.append(line.strip()[-_LONGEST_LINE:])  # such as the name of a link that leads there
    lists = {f"it tried to write into {what}": paths for what, paths in found.items() if paths}
    lists |= {"it was denied the files of other processes": processes} if processes else {}
    lists |= {"it could not write to what is read-only": elsewhere} if elsewhere else {}
    return "; ".join(
        f"{words}: {named(list(dict.fromkeys(names)), most=_MOST_NAMED)}" for words, names in lists.items()
    )


def _paths_in(line: str, confinement: Confinement, cwd: Path) -> Iterable[Path]:
    for closed in confinement.read_only:
        yield from (
            Path(os.path.normpath(match[0]))
            for match in re.finditer(rf"(?<!{_NAME}){re.escape(str(closed))}(?:/{_NAME}*|(?!{_NAME}))", line)
        )
    for match in _UPWARDS.finditer(line):
        yield Path(os.path.normpath(cwd / match[0]))


def _closing(path: Path, confinement: Confinement) -> Path | None:
    """Return the closed path that covers a path; None if an open folder inside it does."""
    ruled = {*confinement.read_only, *confinement.writable}
    nearest = next((folder for folder in (path, *path.parents) if folder in ruled), None)
    return nearest if nearest in confinement.read_only else None


def _temporary() -> tuple[Path, ...]:
    return tuple(dict.fromkeys(_real(Path(each)) for each in (tempfile.gettempdir(), "/tmp", "/var/tmp")))  # noqa: S108  nothing is written there


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
