"""What a fresh worktree lacks although a story needs it: ignored files and shared directories.

Only what git ignores, both in the main checkout and on the story's branch, is copied, so a copied secret can
never be committed. Copies are real files, never have a wider mode, and overwrite nothing; what cannot be
copied is skipped with its reason.
"""

import filecmp
import os
import shutil
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from msgspec import Struct

from isolation.errors import WorkspaceError
from isolation.files.lookups import is_file
from isolation.git.repository import Repository

INCLUDE_FILE = ".worktreeinclude"
_FICLONE = 0x40049409
"""See `ioctl_ficlone(2)`; on processors with other numbers it is an unknown request, and bytes are copied."""


class Skipped(Struct, frozen=True, kw_only=True):
    """Something that was asked for and not provided."""

    path: str
    reason: str


class ProvisionReport(Struct, frozen=True, kw_only=True):
    """What was copied and linked into a worktree."""

    copied: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()


def require_inside(names: Sequence[str]) -> None:
    """Refuse names of shared directories that would lead out of the checkout."""
    for name in names:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or {"..", ".git"} & set(parts) or not name.isprintable():
            raise WorkspaceError(
                f"symlink-directories: {name!r} does not name a folder of the checkout",
                hint="give a path relative to the checkout's top, such as node_modules",
            )


def brings_files(repository: Repository) -> bool:
    """Whether a file says what is to be copied into worktrees: one look, which needs no thread."""
    main = repository.main_checkout
    return main is not None and is_file(f"{main}/{INCLUDE_FILE}")


def provision(
    repository: Repository, worktree: Path, symlink_directories: Sequence[str] = (), *, mounted: bool = False
) -> ProvisionReport:
    """Copy what `.worktreeinclude` names and link the shared directories; blocks.

    Where sessions get the shared directories `mounted` there are no links: at the checkout's own path a link
    would lead to itself.
    """
    require_inside(symlink_directories)
    main = repository.main_checkout
    if main is None or main == worktree:
        reason = "a bare repository has no main checkout"
        return ProvisionReport(
            skipped=tuple(Skipped(path=each, reason=reason) for each in symlink_directories)
        )
    skipped: list[Skipped] = []
    share = _unlink if mounted else _link
    linked = [name for name in symlink_directories if share(repository, main, worktree, name, skipped)]
    copied = [
        name
        for name in _included(repository, main, worktree, skipped)
        if _copy(main, worktree, name, skipped)
    ]
    return ProvisionReport(copied=tuple(copied), linked=tuple(linked), skipped=tuple(skipped))


def _included(repository: Repository, main: Path, worktree: Path, skipped: list[Skipped]) -> list[str]:
    """Return the files that match `.worktreeinclude` and are ignored on both sides."""
    if not brings_files(repository):
        return []
    patterns = main / INCLUDE_FILE
    listing = ("ls-files", "-z", "--others", "--ignored", f"--exclude-from={patterns}")
    matching = [name for name in repository.run(*listing, cwd=main).fields() if not name.endswith("/")]
    # Asked twice: the story's branch may have another .gitignore than the main checkout.
    ignored = _ignored(repository, main, matching)
    safe = _ignored(repository, worktree, ignored)
    unsafe = "it is not copied, since git does not ignore it"
    reasons = {f"{unsafe}; add it to .gitignore": set(matching) - set(ignored)}
    reasons[f"{unsafe} on the story's branch"] = set(ignored) - set(safe)
    for reason, names in reasons.items():
        skipped.extend(Skipped(path=name, reason=reason) for name in sorted(names))
    return safe


def _ignored(repository: Repository, checkout: Path, names: list[str]) -> list[str]:
    if not names:
        return []
    stdin = "".join(f"{name}\0" for name in names).encode(errors="surrogateescape")
    answer = repository.run("check-ignore", "-z", "--stdin", cwd=checkout, check=False, stdin=stdin)
    return list(answer.fields())


def _copy(main: Path, worktree: Path, name: str, skipped: list[Skipped]) -> bool:
    source, target = main / name, worktree / name
    if _is_copy(source, target):
        return False  # copied when the story first had this worktree
    try:
        reason = _obstacle(main, worktree, source, target)
        if not reason:
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                target.symlink_to(source.readlink())
            else:
                _copy_file(source, target)
    except OSError as error:
        reason = f"it could not be copied: {error.strerror}"
    if reason:
        skipped.append(Skipped(path=name, reason=reason))
    return not reason


def _is_copy(source: Path, target: Path) -> bool:
    """Return whether a file or link is there already and the same, so that there is nothing to tell."""
    try:
        if source.is_symlink() or target.is_symlink():
            return source.is_symlink() and target.is_symlink() and source.readlink() == target.readlink()
        return target.is_file() and filecmp.cmp(source, target, shallow=False)
    except OSError:
        return False


def _obstacle(main: Path, worktree: Path, source: Path, target: Path) -> str:
    if os.path.lexists(target):
        return "the worktree has its own, which is kept"
    if not Path(os.path.realpath(target.parent)).is_relative_to(worktree):
        return "its folder is a symbolic link that leads out of the worktree"
    if source.is_symlink():
        leads_to = source.readlink()
        inside = Path(os.path.realpath(source)).is_relative_to(main)
        return "" if inside and not leads_to.is_absolute() else "it is a symbolic link that leads out"
    return "" if source.is_file() else "it is not a regular file"


def _copy_file(source: Path, target: Path) -> None:
    """Copy bytes and mode; the copy is never readable for more users than the original."""
    with source.open("rb") as reader:
        mode = stat.S_IMODE(os.fstat(reader.fileno()).st_mode) & 0o777
        # Private until the content is complete, and never over an existing file.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as writer:
            if not _reflinked(reader.fileno(), writer.fileno()):
                shutil.copyfileobj(reader, writer)
            os.fchmod(writer.fileno(), mode)


def _reflinked(source: int, target: int) -> bool:
    """Share the blocks of a file with its copy, if the file system can; writes to one stay its own."""
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # such as ext4, or two file systems
        return False
    return True


def relink(repository: Repository, worktree: Path, symlink_directories: Sequence[str]) -> None:
    """Link the shared directories of a worktree that stays, so that it can be used as it is; blocks."""
    main = repository.main_checkout
    if main is None:
        return
    for name in symlink_directories:
        with suppress(OSError):  # what is not an empty folder stays as it is
            (worktree / name).rmdir()
            _link(repository, main, worktree, name, [])


def _unlink(repository: Repository, main: Path, worktree: Path, name: str, skipped: list[Skipped]) -> bool:
    """Make the empty folder on which a shared one is mounted, in place of a link that was made before."""
    relative = str(PurePosixPath(name))
    target = worktree / relative
    if target.is_symlink() and target.readlink() == main / relative:
        target.unlink()
    with suppress(OSError):
        target.rmdir()
    if not _may_share(repository, main, worktree, name, skipped):
        return False
    target.mkdir(parents=True)
    return True


def _link(repository: Repository, main: Path, worktree: Path, name: str, skipped: list[Skipped]) -> bool:
    relative = str(PurePosixPath(name))
    source, target = main / relative, worktree / relative
    if target.is_symlink() and target.readlink() == source:
        return False  # made when the story first had this worktree
    if not _may_share(repository, main, worktree, name, skipped):
        return False
    # A pattern such as `node_modules/` matches only folders, which a link is not.
    repository.exclude("/" + _escaped(relative))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source, target_is_directory=True)
    return True


def _may_share(repository: Repository, main: Path, worktree: Path, name: str, skipped: list[Skipped]) -> bool:
    """Whether a directory can be shared; if not, the reason is noted."""
    relative = str(PurePosixPath(name))
    source, target = main / relative, worktree / relative
    reason = ""
    if not source.is_dir():
        reason = "it is not linked, since the main checkout has no such folder; create it there, or remove "
        reason += "it from `symlink-directories`"
    elif not _ignored(repository, main, [relative]):
        reason = "it is not linked, since git does not ignore it; add it to .gitignore"
    elif os.path.lexists(target):
        reason = "it is not linked, since the worktree has its own, which is kept"
    elif not Path(os.path.realpath(target.parent)).is_relative_to(worktree):
        reason = "its folder is a symbolic link that leads out of the worktree"
    if reason:
        skipped.append(Skipped(path=name, reason=reason))
    return not reason


def _escaped(path: str) -> str:
    escaped = "".join(f"\\{char}" if char in "\\*?[" else char for char in path)
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") else escaped
