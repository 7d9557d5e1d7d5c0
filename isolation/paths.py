"""Where things are: the repository around a path, and this program's own files.

Standard library only and no git process, since `status` starts here and must feel instant.
Every returned path is real: symbolic links are resolved, so that one repository has one
common directory, one lease and one lock however it was reached.
"""

import os
import re
import stat
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from isolation.errors import RepositoryError, WorkspaceError
from isolation.patterns import pattern

EXCHANGE = ".orchestrator"
"""The folder at the top of a shared tree in which this program and the sessions exchange files."""

_LONGEST_LINE = 1 << 16
_COMPONENT = pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_SECTION = pattern(r"^\s*\[\s*([^\]\s]+)", re.IGNORECASE)
_WORKTREE_KEY = pattern(r"^\s*worktree\s*=\s*(.+?)\s*$", re.IGNORECASE)


class RepositoryPaths(Struct, frozen=True, kw_only=True):
    """A repository as seen from one checkout; of a bare one `top` is the repository itself."""

    top: Path
    common_dir: Path

    @property
    def main_checkout(self) -> Path | None:
        """The first working tree, also one whose git directory lies apart and does not name it."""
        named = main_checkout(self.common_dir)
        if named is None and self.top != self.common_dir and own_git_dir(self.top) == self.common_dir:
            return self.top
        return named


def folds_case(top: Path) -> bool:
    """Return whether two spellings of a name are one file here, by testing for `.git` in capitals."""
    try:
        return os.path.samefile(f"{top}/.git", f"{top}/.GIT")  # noqa: PTH121  text, as each session asks
    except OSError:
        return False


def find_repository(start: Path) -> RepositoryPaths:
    """Find the checkout that contains `start`, and the git directory that all its worktrees share."""
    try:
        here = start.resolve()
    except FileNotFoundError:  # only the folder that a process is in can be gone while it is named
        raise RepositoryError(
            "the current folder no longer exists", hint="change to an existing one, then try again"
        ) from None
    for folder in (here, *here.parents):
        dot_git = folder / ".git"
        if dot_git.is_file():
            return RepositoryPaths(top=folder, common_dir=_common_dir(_linked_git_dir(str(dot_git))))
        if _is_git_dir(dot_git):
            return RepositoryPaths(top=folder, common_dir=dot_git.resolve())
        if _is_git_dir(folder):
            top = folder.parent if folder.name == ".git" else folder
            return RepositoryPaths(top=top, common_dir=folder)
    raise RepositoryError(
        f"{start} is not in a git repository",
        hint="run inside a git repository, or `git init` to make one",
    )


def own_git_dir(checkout: Path) -> Path | None:
    """Return the git directory that belongs to this checkout alone; None if it has none that works."""
    dot_git = f"{checkout}/.git"
    try:
        if stat.S_ISREG(os.stat(dot_git).st_mode):  # noqa: PTH116  asked for each git command, so it is quick
            return _linked_git_dir(dot_git)
        return real_folder(dot_git)
    except (OSError, RepositoryError):
        return None


def main_checkout(common_dir: Path) -> Path | None:
    """Return the repository's first working tree; a bare repository has none."""
    if common_dir.name == ".git":
        return common_dir.parent
    return _configured_worktree(common_dir)


def current_branch(checkout: Path) -> str:
    """Return the branch that a checkout is on; empty if it is on none, or that is unknown."""
    return branch_in(own_git_dir(checkout))


def branch_in(git_dir: Path | None) -> str:
    """Return the branch that the checkout of a git directory is on, as `current_branch` does."""
    try:
        head = os.fsdecode(_short(f"{git_dir}/HEAD")).strip() if git_dir else ""
    except OSError:
        return ""
    branch = head.removeprefix("ref: refs/heads/")
    # A repository with the newer kind of references keeps a file that names no real branch.
    return "" if branch in {head, ".invalid"} else branch


def repository_hash(common_dir: Path) -> str:
    """Return a short name that is unique to a repository on this machine."""
    import hashlib

    return hashlib.sha256(bytes(common_dir)).hexdigest()[:16]


def worktree_root(common_dir: Path, configured: Path | None = None) -> Path:
    """Return the folder that holds this repository's story worktrees, whether it exists or not."""
    main = main_checkout(common_dir) or common_dir
    if configured is None:
        return main.parent / f"{main.name}.worktrees"
    return configured.expanduser().resolve() / f"{main.name}-{repository_hash(common_dir)[:8]}"


def holds_worktrees(common_dir: Path, folder: Path) -> bool:
    """Return whether a folder is one for this repository's story worktrees, wherever the settings put it."""
    main = main_checkout(common_dir) or common_dir
    names = (f"{main.name}.worktrees", f"{main.name}-{repository_hash(common_dir)[:8]}")
    return folder.name in names and folder not in {main, common_dir}


def git_place(root: Path) -> Path:
    """Return the empty folder at which sessions see a git directory that lies in the checkout.

    As deep as the git directory itself is by default, so that its relative paths lead to the same places.
    """
    return root / ".repository"


def overlays_path(root: Path, run_id: str) -> Path:
    """Return the folder for what a run's stories write over a shared tree, beside that of the worktrees."""
    beside = root.with_name(f"{root.name.removesuffix('.worktrees')}.layers")
    return beside / require_component(run_id, "run id")


def worktree_path(root: Path, story_id: str) -> Path:
    """Return the path of one story's worktree; an id that would leave the root is refused."""
    return root / require_component(story_id, "story id")


def require_component(name: str, what: str) -> str:
    """Return `name` if it can safely name one folder on any file system, otherwise raise."""
    if _COMPONENT.fullmatch(name) is None:
        raise WorkspaceError(
            f"{what} {name[:80]!r} cannot name a folder",
            hint="use letters, digits, `.`, `_` and `-`, at most 100, and begin with a letter or digit",
        )
    return name


@lru_cache(maxsize=64)
def autopilot_dir(common_dir: Path) -> Path:
    """Return the program's own folder in the repository."""
    return common_dir / "autopilot"


def journal_path(common_dir: Path) -> Path:
    """Return the journal of every run in this repository."""
    return autopilot_dir(common_dir) / "journal.db"


def run_dir(common_dir: Path, run_id: str) -> Path:
    """Return the folder of one run."""
    return autopilot_dir(common_dir) / "runs" / require_component(run_id, "run id")


def story_dir(common_dir: Path, run_id: str, story_id: str) -> Path:
    """Return the folder of one story in one run: its logs."""
    return run_dir(common_dir, run_id) / require_component(story_id, "story id")


def launched_dir(common_dir: Path) -> Path:
    """Return the folder of what detached processes of this program print."""
    return autopilot_dir(common_dir) / "launched"


def indexes_dir(common_dir: Path) -> Path:
    """Return the folder of private index files, which git commands on a shared tree write to."""
    return autopilot_dir(common_dir) / "indexes"


def claim_index_path(common_dir: Path, branch: str) -> Path:
    """Return the index file in which the tree of a story's claim is built."""
    return indexes_dir(common_dir) / f"{branch.replace('/', '-')}.index"


def shared_index_path(common_dir: Path) -> Path:
    """Return the index file by which a shared tree is compared with what is committed."""
    return indexes_dir(common_dir) / "shared.index"


def lease_lock_path(common_dir: Path) -> Path:
    """Return the file whose lock is the lease; it is never unlinked."""
    return autopilot_dir(common_dir) / "lease.lock"


def lease_path(common_dir: Path) -> Path:
    """Return the file that names the lease's holder."""
    return autopilot_dir(common_dir) / "lease.json"


def sessions_dir(common_dir: Path) -> Path:
    """Return the folder of the registry: one file for each live session in any worktree of the family."""
    return autopilot_dir(common_dir) / "sessions"


def pool_dir(common_dir: Path) -> Path:
    """Return the folder of what is known about spare worktrees; each that is ready has a `.seal` there."""
    return autopilot_dir(common_dir) / "pool"


def layers_dir(common_dir: Path) -> Path:
    """Return the folder of what is known about worktrees that are layers, and the checkouts below them."""
    return autopilot_dir(common_dir) / "layers"


def removed_dir(common_dir: Path) -> Path:
    """Return the folder of removed worktrees that can be brought back."""
    return autopilot_dir(common_dir) / "removed"


def worktrees_lock_path(common_dir: Path) -> Path:
    """Return the file whose lock orders every change of shared git metadata; never unlinked."""
    return autopilot_dir(common_dir) / "worktrees.lock"


def keepers_lock_path(common_dir: Path) -> Path:
    """Return the file that living keepers hold a shared lock on; never unlinked."""
    return autopilot_dir(common_dir) / "keepers.lock"


def _is_git_dir(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()


def _linked_git_dir(dot_git: str) -> Path:
    text = _short(dot_git).decode(errors="surrogateescape")
    if text.startswith("gitdir:"):
        try:
            # As text: pathlib takes longer than all else here.
            folder = os.path.dirname(dot_git)  # noqa: PTH120
            return real_folder(os.path.join(folder, text.removeprefix("gitdir:").strip()))  # noqa: PTH118
        except (OSError, ValueError):
            pass  # no folder can have such a name
    raise RepositoryError(
        f"{dot_git} does not lead to a git directory",
        hint="`git worktree repair` in the main checkout fixes moved worktrees",
    )


def real_folder(path: str) -> Path:
    """Return where a folder really is, as the kernel says; raises OSError if it is none.

    Path by path, as pathlib does it, takes ten times as long.
    """
    descriptor = os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  a link of procfs
    except OSError:  # not on this system
        found = ""
    finally:
        os.close(descriptor)
    # A folder that was removed has a mark behind its name.
    return as_path(found) if found[:1] == "/" and found[-1] != ")" else Path(path).resolve(strict=True)


def _short(path: str) -> bytes:
    """Read a file that holds one line, without waiting for one that is something else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _LONGEST_LINE)
    finally:
        os.close(descriptor)


@lru_cache(maxsize=1024)
def as_path(text: str) -> Path:
    """Return a path of this text; the same one each time, which knows its parts already."""
    return Path(text)


def _common_dir(git_dir: Path) -> Path:
    pointer = git_dir / "commondir"
    if not pointer.is_file():
        return git_dir
    return (git_dir / pointer.read_bytes().decode(errors="surrogateescape").strip()).resolve()


def _configured_worktree(common_dir: Path) -> Path | None:
    """Read `core.worktree`, by which a submodule's git directory names its checkout."""
    try:
        lines = (common_dir / "config").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    section = ""
    for line in lines:
        if header := _SECTION.match(line):
            section = header[1].lower()
        elif section == "core" and (key := _WORKTREE_KEY.match(line)):
            try:
                return (common_dir / key[1].strip('"')).resolve()
            except (OSError, ValueError):
                return None  # no folder can have such a name
    return None
