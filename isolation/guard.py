"""What keeps a story within its paths: what the machine can do, and the confinement of one session.

The machine is asked by one real attempt for each level, never by its version: a process confines
itself and then does to a throw-away folder what a session must not do. What counts is what the folder
looks like afterwards.

Invariants:

- A level is offered only if every foreign act of its trial was kept off, and the story's own was not.
- A confinement names what is closed; all else stays as it is. So a session finds its home, its caches
  and the temporary folders as ever.
"""

import os
import re
import tempfile
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from isolation.errors import GuardError
from isolation.files.deletion import delete_tree
from isolation.frozen import frozen
from isolation.git.checkout import admin_dir
from isolation.git.commits import named
from isolation.git.registrations import linked_paths
from isolation.git.repository import Repository
from isolation.keeper.client import run_trial
from isolation.keeper.wire import confinement_texts, read_attempts
from isolation.kernel.overlay import layer_changes
from isolation.model import Attempt, Confinement, EnforcementLevel, Layer, Means, Workspace
from isolation.paths import find_repository

__all__ = [
    "Offer",
    "commit_places",
    "for_claim",
    "for_worktree",
    "layer_changes",
    "offered",
    "probe",
    "refused",
    "tree_offer",
    "witnesses",
    "worktree_offer",
]

_WORDS = {
    Means.MOUNTS: "read-only mounts in a namespace of its own",
    Means.LANDLOCK: "Landlock",
}
_MEANS = {
    EnforcementLevel.DIVERT: (Means.MOUNTS,),
    # Mounts first: Landlock cannot close a folder without also freezing the names beside it.
    EnforcementLevel.DENY: (Means.MOUNTS, Means.LANDLOCK),
}
_trying = threading.Lock()
"""Who asks while somebody tries it out waits for the answer, and does not try it again."""
_FOREIGN_ACTS = {"write", "truncate", "create", "delete"}
_REFUSAL = re.compile(r"Read-only file system|Permission denied|EROFS|EACCES")
_NAME = r"[^\s'\"`:,;()\[\]]"
_UPWARDS = re.compile(rf"(?:\.\./)+{_NAME}*")


@frozen
class Offer:
    """Whether a level can be had here, by which means, and the same in words."""

    level: EnforcementLevel
    available: bool
    means: Means | None
    reason: str


def probe(where: Path | None = None) -> tuple[Offer, ...]:
    """Tell of every level whether it can be had; blocks for a moment at the first call."""
    return tuple(offered(level, where) for level in EnforcementLevel)


def offered(level: EnforcementLevel, where: Path | None = None) -> Offer:
    """Try a level out, once a process; `where` is the folder that a layer is to stand in."""
    with _trying:
        return _tried(level, where)


@cache
def _tried(level: EnforcementLevel, where: Path | None) -> Offer:
    if level is EnforcementLevel.DETECT:
        return Offer(level=level, available=True, means=None, reason="a look before and one after")
    objections = []
    for means in _MEANS[level]:
        objection = attempt(level, means, where)
        if not objection:
            words = "an overlay" if level is EnforcementLevel.DIVERT else _WORDS[means]
            return Offer(level=level, available=True, means=means, reason=words)
        objections.append(f"{_WORDS[means]}: {objection}")
    return Offer(level=level, available=False, means=None, reason="; ".join(objections))


def attempt(level: EnforcementLevel, means: Means, where: Path | None = None) -> str:
    """Try one means out; gives back what speaks against it, nothing when it works."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="autopilot-guard-", dir=where)))
    try:
        return _attempt_in(folder, level, means)
    finally:
        delete_tree(folder)  # an overlay leaves a folder that its own user cannot read


@cache
def witnesses(means: Means) -> bool:
    """Tell whether the machine says by name what a session tries in vain; tried out, once a process."""
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
        answer = run_trial([str(folder), *map(os.fsdecode, confinement_texts(confinement))])
    finally:
        delete_tree(folder)
    seen = read_attempts(answer.split()) if answer[:1].isdigit() else None
    wanted = (Attempt(act="create", path="made"), Attempt(act="write", path="kept"))
    return seen is not None and seen.named == wanted


def _attempt_in(folder: Path, level: EnforcementLevel, means: Means) -> str:
    tree, upper, work = (folder / name for name in ("tree", "upper", "work"))
    for made in (tree / "own", upper, work):
        made.mkdir(parents=True)
    for name in ("kept", "doomed"):
        (tree / name).write_text(name)
    diverts = level is EnforcementLevel.DIVERT
    confinement = Confinement(
        level=level,
        means=means,
        read_only={} if diverts else {tree: "the trial"},
        writable=(tree / "own",),
        layer=Layer(target=tree, upper=upper, work=work) if diverts else None,
    )
    answer = run_trial([str(folder), *map(os.fsdecode, confinement_texts(confinement))])
    if not (tree / "own" / "mine").exists():
        return answer.removeprefix("failed ") or "the trial could not be made"
    through = _FOREIGN_ACTS.intersection(answer.split())
    found = {path.name: path.read_text() for path in tree.iterdir() if path.is_file()}
    if found != {"kept": "kept", "doomed": "doomed"} or (through and not diverts):
        return f"it lets a session {', '.join(sorted(through))}"
    if diverts and {change.path for change in layer_changes(upper)} != {"kept", "made", "doomed"}:
        return "the layer does not hold what was written"
    return ""


def worktree_offer(main: Path, root: Path) -> Offer:
    """Tell whether stories can be kept out of the main checkout and each other's worktrees."""
    return _unless_it_harms(offered(EnforcementLevel.DENY), main, (main, root))


def tree_offer(level: EnforcementLevel, top: Path, where: Path | None = None) -> Offer:
    """Tell whether a level can be had for stories that share the tree `top`; `where` is as for `offered`."""
    offer = offered(level, where)
    if level is EnforcementLevel.DIVERT:
        return _unless_it_is_anothers(offer, top)
    return _unless_it_harms(offer, top, (top,)) if level is EnforcementLevel.DENY else offer


def _unless_it_is_anothers(offer: Offer, top: Path) -> Offer:
    """Withdraw a layer in which an ordinary user could change nothing: it has names for its own ids alone."""
    found, own = top.stat(), (os.geteuid(), os.getegid())
    if own[0] == 0 or (found.st_uid, found.st_gid) == own:
        return offer
    whose = "user" if found.st_uid != own[0] else "group"
    reason = f"{top} belongs to another {whose}, whose files nobody can change in a layer"
    return Offer(level=offer.level, available=False, means=None, reason=reason)


def _unless_it_harms(offer: Offer, top: Path, closed: Sequence[Path]) -> Offer:
    """Withdraw an offer by which sessions could not do what every program does."""
    objection = ""
    if _real(Path.home()).is_relative_to(top):
        objection = f"the checkout {top} holds your home folder, which sessions must write to"
    elif offer.means is Means.LANDLOCK:
        above = [each for each in _temporary() if any(path.is_relative_to(each) for path in closed)]
        if above:
            objection = f"Landlock would close {above[0]} along with the repository in it"
    if not objection:
        return offer
    return Offer(level=offer.level, available=False, means=None, reason=objection)


def for_worktree(
    repository: Repository, workspace: Workspace, *, means: Means, root: Path, shared: Sequence[str] = ()
) -> Confinement:
    """Confine a session to its worktree: the main checkout and all other worktrees are closed.

    Of the git directory stays open what a commit on the story's own branch needs. `root` is the folder of
    the story worktrees; `shared` are folders of the main checkout that worktrees link to on purpose.
    """
    common = repository.common_dir
    main = repository.main_checkout
    elsewhere = (path for path in linked_paths(repository) if path.parent != root or path.is_symlink())
    closed = {path: "another worktree" for path in map(_real, elsewhere) if not path.is_relative_to(root)}
    closed |= {root: "the other worktrees", common: "the shared git directory"}
    closed |= {main: "the main checkout"} if main else {}
    places = [workspace.path, *(main / name for name in shared if main)]
    opened = (*(_real(place) for place in places if place.is_dir()), *commit_places(repository, workspace))
    return Confinement(
        level=EnforcementLevel.DENY, means=means, read_only=closed, writable=tuple(dict.fromkeys(opened))
    )


def commit_places(repository: Repository, workspace: Workspace) -> tuple[Path, ...]:
    """Name the folders of the git directory that a commit on the workspace's own branch writes to."""
    common, namespace = repository.common_dir, PurePosixPath(workspace.branch).parent
    places = [common / "objects", common / "lfs", admin_dir(repository, workspace.path)]
    if namespace.parts:
        refs = (common / "refs" / "heads" / namespace, common / "logs" / "refs" / "heads" / namespace)
        for folder in refs:
            folder.mkdir(parents=True, exist_ok=True)  # git removes it whenever it is empty
        places += refs
    return tuple(dict.fromkeys(_real(place) for place in places if place and place.is_dir()))


def for_claim(top: Path, owned: Iterable[str], level: EnforcementLevel, scratch: Path) -> Confinement | None:
    """Confine a session to the folders of a shared tree that its story owns wholly; None at `detect`.

    `owned` are relative to `top`. At `divert` all else is written to a layer in `scratch`, a folder of the
    story's own outside the tree; at `deny` folders that are not there yet are made. The git directory is
    closed at both.
    """
    if level is EnforcementLevel.DETECT:
        return None
    diverts = level is EnforcementLevel.DIVERT
    offer = offered(level, scratch.parent if diverts else None)
    if offer.means is None:
        raise GuardError(
            f"the level {level} cannot be had here: {offer.reason}",
            hint="`autopilot-multi doctor` shows the levels that can.",
        )
    folders = tuple(_owned_folder(top, name) for name in owned)
    closed = {find_repository(top).common_dir: "the git directory"}
    if not diverts:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        closed[top] = "paths that it does not own"
    return Confinement(
        level=level,
        means=offer.means,
        read_only=closed,
        writable=tuple(folder for folder in folders if folder.is_dir()),
        layer=_layer(top, scratch) if diverts else None,
        witnessed=None if diverts or not witnesses(offer.means) else top,
    )


def _owned_folder(top: Path, name: str) -> Path:
    folder = top / name
    if _real(folder) != folder or not folder.is_relative_to(top):
        raise GuardError(
            f"{name} leads elsewhere, to {_real(folder)}, so it cannot be owned",
            hint="claim the folder that it leads to.",
        )
    return folder


def _layer(top: Path, scratch: Path) -> Layer:
    scratch = _real(scratch)
    if scratch.is_relative_to(top):
        raise GuardError(f"the layer {scratch} lies in the tree {top} that it is for")
    layer = Layer(target=top, upper=scratch / "upper", work=scratch / "work")
    for folder in (layer.upper, layer.work):
        folder.mkdir(parents=True, exist_ok=True)
    return layer


def refused(output: str, confinement: Confinement, cwd: Path) -> str:
    """Say from what a session printed where it tried in vain to write; empty when it names no such path."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        if not _REFUSAL.search(line):
            continue
        for path in _paths_in(line, confinement, cwd):
            closed = _closing(path, confinement)
            if closed is not None:
                found.setdefault(confinement.read_only[closed], []).append(str(path.relative_to(closed)))
    told = (
        f"it tried to write into {what}: {named(list(dict.fromkeys(paths)))}" for what, paths in found.items()
    )
    return "; ".join(told)


def _paths_in(line: str, confinement: Confinement, cwd: Path) -> Iterable[Path]:
    for closed in confinement.read_only:
        yield from (
            Path(os.path.normpath(match[0]))
            for match in re.finditer(rf"(?<!{_NAME}){re.escape(str(closed))}(?:/{_NAME}*|(?!{_NAME}))", line)
        )
    for match in _UPWARDS.finditer(line):
        yield Path(os.path.normpath(cwd / match[0]))


def _closing(path: Path, confinement: Confinement) -> Path | None:
    """Give the closed path that decides about a path; None when an open folder within it does."""
    above = (path, *path.parents)
    places = {*confinement.read_only, *confinement.writable}
    nearest = next((place for place in above if place in places), None)
    return nearest if nearest in confinement.read_only else None


def _temporary() -> tuple[Path, ...]:
    return tuple(dict.fromkeys(_real(Path(each)) for each in (tempfile.gettempdir(), "/tmp", "/var/tmp")))  # noqa: S108  nothing is put there


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
