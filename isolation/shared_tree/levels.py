"""The enforcement levels of a shared working tree, one class each, strongest first.

A level answers everything that differs between them: whether this machine and this tree can have it, which
claims it can enclose, what it leaves unprevented or unseen, how a session is confined, and who watches the
tree. Callers choose a level once and then ask it; they never branch on its name.

| level  | a write outside the story's claim                            |
| ------ | ------------------------------------------------------------ |
| divert | lands in an overlay and is moved from there to quarantine    |
| deny   | fails in the session; the attempt is reported and judged     |
| detect | happens; it is found afterwards, kept in quarantine, undone  |

Worktrees need no level of their own: `for_worktree` of the guard closes the main checkout with the same
read-only protection as `deny`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from isolation.claims import globs as claims
from isolation.claims.globs import Claim
from isolation.claims.owners import folders_around, whole_folders
from isolation.errors import GuardError
from isolation.files.lookups import is_folder
from isolation.git.repository import Repository
from isolation.guard.guard import (
    OVERLAID,
    READ_ONLY,
    UNSEEN,
    Protection,
    Support,
    machine_files,
    supported,
    unless_harmful,
    witnesses,
)
from isolation.model import Confinement, EnforcementLevel, Means
from isolation.paths import EXCHANGE, find_repository, folds_case
from isolation.shared_tree.findings import Watch

UNPREVENTED = "a write outside a story's claim is not prevented, only found when its session is over"


class SharedTree(Struct, frozen=True, kw_only=True):
    """One working tree in which the stories of a run work, each within its claim.

    `claims` grows when a story joins the run.
    `writable` is what the settings open to every story; `open_to_all` adds what this program and agents
    write there themselves. `folders` are the existing folders that `writable` owns. `byproducts` is what
    agents leave at the top: it is not work, so it is deleted with an overlay. `overlays` is the folder in
    which each story's overlay is kept, outside the tree.
    """

    repository: Repository
    run_id: str
    claims: Mapping[str, Claim]
    writable: Claim
    open_to_all: Claim
    folders: Sequence[str]
    overlays: Path
    byproducts: Claim | None = None


class Enforcement(Struct, frozen=True, kw_only=True):
    """A level at work on one tree: who watches its sessions, and how each story's sessions are confined.

    `confine` returns None where the system does not help; it blocks.
    """

    watch: Watch
    confine: Callable[[str], Confinement | None]


class Level(ABC):
    """One enforcement level."""

    name: ClassVar[EnforcementLevel]
    prevents: ClassVar[bool] = True
    """Whether a foreign write never reaches the tree; otherwise several stories need the user's consent."""

    @abstractmethod
    def support(self, where: Path | None = None) -> Support:
        """Return whether this machine has the level; `where` is a folder on the disk of the overlays."""

    @abstractmethod
    def support_for(self, top: Path, where: Path | None = None) -> Support:
        """Return whether the level is available for stories that share the tree `top`."""

    def require_enclosable(self, top: Path, globs: Mapping[str, Sequence[str]]) -> None:
        """Raise `GuardError` for a claim, by story id, that the level cannot enforce in this tree."""
        del top, globs  # most levels can enforce any claim

    def gap(self) -> str:
        """Return what the level leaves unprevented or unseen on this machine; empty if nothing."""
        return ""

    @abstractmethod
    def confine(self, top: Path, owned: Iterable[str], scratch: Path) -> Confinement | None:
        """Confine a session to folders of the tree, named relative to `top`; None if nothing is confined.

        The git directory is closed too. `scratch` is a folder of the story's own outside the tree.
        """

    @abstractmethod
    def open(self, tree: SharedTree) -> Enforcement:
        """Begin to enforce the claims in a tree, before any story works there; blocking."""


class Divert(Level):
    """Every story sees the tree through an overlay of its own; nothing foreign ever reaches the tree."""

    name = EnforcementLevel.DIVERT

    def support(self, where: Path | None = None) -> Support:
        """Return whether overlays can be mounted here, with their folders in `where`."""
        return supported(OVERLAID, where)

    def support_for(self, top: Path, where: Path | None = None) -> Support:
        """Return the machine's support, unless the tree belongs to another user or group."""
        support, found, own = self.support(where), top.stat(), (os.geteuid(), os.getegid())
        if own[0] == 0 or (found.st_uid, found.st_gid) == own:
            return support
        # A user namespace maps only one's own ids, so the files of others cannot be copied up.
        whose = "user" if found.st_uid != own[0] else "group"
        return support.withdrawn(f"{top} belongs to another {whose}, whose files cannot change in an overlay")

    def confine(self, top: Path, owned: Iterable[str], scratch: Path) -> Confinement:
        """Let a session write to `owned` directly, and to the rest of the tree through its overlay."""
        means = _require_means(self.support(scratch.parent))
        folders = [folder for folder in _owned_folders(top, owned) if is_folder(folder)]
        return _confinement(OVERLAID, top, means, folders, scratch)

    def open(self, tree: SharedTree) -> Enforcement:
        """Settle each story's overlay when one of its sessions ends."""
        from isolation.shared_tree.diversion import Diversion  # loads trio, which a plan does not need

        tree.overlays.mkdir(parents=True, exist_ok=True)
        self.support(tree.overlays)  # probed once here, before all stories ask at the same time
        diversion = Diversion(
            tree.repository,
            run_id=tree.run_id,
            claims=tree.claims,
            open_to_all=tree.writable,
            overlays=tree.overlays,
            byproducts=tree.byproducts,
        )
        top = tree.repository.top

        def confine(story_id: str) -> Confinement:
            exchanged = f"{EXCHANGE}/{story_id}"
            own = (exchanged, *whole_folders(tree.claims[story_id]), *tree.folders)
            if not is_folder(f"{top}/{exchanged}"):
                (top / exchanged).mkdir(parents=True, exist_ok=True)
            made = self.confine(top, own, tree.overlays / story_id)
            # Otherwise a session could change what another story wrote before it is settled.
            closed = {**made.read_only, tree.overlays: "the overlays of other stories"}
            return replace(made, read_only=closed)

        return Enforcement(watch=diversion, confine=confine)


class Deny(Level):
    """The tree is read-only to a session, but for the folders around its claim."""

    name = EnforcementLevel.DENY

    def support(self, where: Path | None = None) -> Support:
        """Return whether folders can be closed here."""
        del where
        return supported(READ_ONLY)

    def support_for(self, top: Path, where: Path | None = None) -> Support:
        """Return the machine's support, unless closing the tree would also close what sessions need."""
        return unless_harmful(self.support(where), top, (top,))

    def require_enclosable(self, top: Path, globs: Mapping[str, Sequence[str]]) -> None:
        """Refuse claims around which no folder can be closed: the kernel closes folders, not globs."""
        if folds_case(top):
            raise GuardError(
                "this file system treats `A` and `a` as one name, so no folder can be closed around a claim",
                hint="use `--enforce divert` or `--enforce detect`.",
            )
        for story_id, owned in globs.items():
            if not folders_around(claims.compile(owned)):
                raise GuardError(
                    f"story {story_id} may own paths all over the tree, so no folder can enclose them",
                    hint="begin its globs with a folder, or use `--enforce divert` or `--enforce detect`.",
                )

    def gap(self) -> str:
        """Return a note where refused writes are not reported by name."""
        means = self.support().means
        return "" if means and witnesses(means) else UNSEEN

    def confine(self, top: Path, owned: Iterable[str], scratch: Path) -> Confinement:
        """Close the tree but for `owned`, which are made: only an existing folder can be left open."""
        means = _require_means(self.support())
        folders = _owned_folders(top, owned)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        made = _confinement(READ_ONLY, top, means, folders, scratch)
        return replace(made, witnessed=top) if witnesses(means) else made

    def open(self, tree: SharedTree) -> Enforcement:
        """Close the tree; a watch compares what stories can still write to but do not own."""
        top = tree.repository.top

        def folders(story_id: str) -> Sequence[str]:
            return (*folders_around(tree.claims[story_id]), *tree.folders)

        # Landlock leaves modes and times open everywhere, so there every running story may have changed one.
        reach = None if self.support().means is Means.LANDLOCK else folders

        def confine(story_id: str) -> Confinement:
            return self.confine(top, (f"{EXCHANGE}/{story_id}", *folders(story_id)), top)

        return Enforcement(watch=_watch(tree, reach), confine=confine)


class Detect(Level):
    """Nothing is prevented; foreign writes are found after each session, kept and undone."""

    name = EnforcementLevel.DETECT
    prevents = False

    def support(self, where: Path | None = None) -> Support:
        """Return that it is available: it needs nothing from the system."""
        del where
        reason = "a comparison of the tree before and after each session"
        return Support(level=self.name, available=True, means=None, reason=reason)

    def support_for(self, top: Path, where: Path | None = None) -> Support:
        """Return that it is available for any tree."""
        del top
        return self.support(where)

    def gap(self) -> str:
        """Return that nothing is prevented."""
        return UNPREVENTED

    def confine(self, top: Path, owned: Iterable[str], scratch: Path) -> None:
        """Leave a session unconfined."""

    def open(self, tree: SharedTree) -> Enforcement:
        """Compare the whole tree after each session."""
        return Enforcement(watch=_watch(tree, None, prevented=False), confine=lambda _story_id: None)


LEVELS: Final[Mapping[EnforcementLevel, Level]] = {
    level.name: level for level in (Divert(), Deny(), Detect())
}
"""Every level, strongest first."""


def probe(where: Path | None = None) -> tuple[Support, ...]:
    """Return for every level whether this machine has it; blocks for a moment at the first call."""
    return tuple(level.support(where) for level in LEVELS.values())


def _watch(
    tree: SharedTree, reach: Callable[[str], Sequence[str]] | None, *, prevented: bool = True
) -> Watch:
    from isolation.shared_tree.tree_watch import TreeWatch  # loads trio, which a plan does not need

    watch = TreeWatch(
        tree.repository,
        run_id=tree.run_id,
        claims=tree.claims,
        open_to_all=tree.open_to_all,
        reach=reach,
        prevented=prevented,
    )
    watch.begin()
    return watch


def _require_means(support: Support) -> Means:
    if support.means is None:
        raise GuardError(
            f"enforcement level '{support.level}' is not available on this machine: {support.reason}",
            hint="`autopilot-multi doctor` shows the levels that are.",
        )
    return support.means


def _confinement(
    protection: Protection, top: Path, means: Means, folders: Sequence[Path], scratch: Path
) -> Confinement:
    closed = {_git_directory(top): "the git directory", **machine_files(means)}
    return protection.confinement(top, means, closed=closed, writable=folders, scratch=scratch)


@cache
def _git_directory(top: Path) -> Path:
    """Return the git directory of a checkout, which no session can move."""
    return find_repository(top).common_dir


def _owned_folders(top: Path, owned: Iterable[str]) -> list[Path]:
    """Return folders below `top`; one that a symbolic link leads out of the claim is refused."""
    folders = [top / name for name in owned]
    for folder in folders:
        real = os.path.realpath(folder)
        if real != str(folder) or not folder.is_relative_to(top):
            raise GuardError(
                f"{folder.relative_to(top) if folder.is_relative_to(top) else folder} leads elsewhere, "
                f"to {real}, so it cannot be owned",
                hint="claim the folder that it leads to.",
            )
    return folders
