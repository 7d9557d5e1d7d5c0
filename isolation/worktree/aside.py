"""What no commit holds, out of the way while the commit of a worktree is judged.

Files that git ignores and empty folders are invisible to a commit, and yet a command may pass only because of
them. They are moved to a folder beside the worktrees, by a rename each, and moved back afterwards; in a
worktree that is a layer, to one among the files that the program exchanges with sessions, since no rename
leads out of an overlay. Nothing that a session or the user made is deleted: a killed run leaves the folder
and its list, by which the next one moves everything back. What was brought into the worktree, and not made
by its sessions, is remembered in the worktree's git directory and stays. What verify commands left there
moves like the rest, since the next ones must not depend on it, but it is remembered, too: no session made it.
"""

import os
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from isolation.files.deletion import delete_tree
from isolation.files.disk import replace_file
from isolation.git.repository import Repository
from isolation.kernel.layers import is_covered
from isolation.paths import EXCHANGE, own_git_dir
from isolation.worktree.removal import TRASH

ASIDE = ".aside"
_LIST = "names"
_BROUGHT = "autopilot-brought"
_LEFT = "autopilot-left-by-verify"


class Aside(Struct, frozen=True, kw_only=True):
    """The paths that are out of the way, and those that could not be moved; a folder ends with a slash.

    `by_sessions` are those of `names` that no verify command has left there.
    """

    names: tuple[str, ...] = ()
    by_sessions: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()


def uncommitted(repository: Repository, worktree: Path) -> tuple[str, ...]:
    """Return what is in a worktree and not in its index: ignored or not, whole folders as one."""
    return repository.run("ls-files", "--others", "--directory", "-z", cwd=worktree).fields()


def remember_brought(worktree: Path, names: Collection[str]) -> None:
    """Remember what was brought into a worktree, in addition to what was before."""
    _remember(worktree, _BROUGHT, names)


def remember_left(
    repository: Repository,
    worktree: Path,
    found: Aside,
    *,
    shared: Sequence[str],
    stays: Callable[[str], bool],
) -> None:
    """Remember what verify commands left in a worktree in which `found` was out of their way. Blocks."""
    if own_git_dir(worktree) is None:
        return  # a command has cut it off from its repository, which is found out next
    there = made_here(repository, worktree, shared=shared, stays=stays)
    _remember(worktree, _LEFT, set(there).difference(found.names))


def made_here(
    repository: Repository, worktree: Path, *, shared: Sequence[str], stays: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return what sessions made in a worktree and no commit holds. Blocks.

    Left out are the folders in `shared`, what was brought, and what `stays` accepts by its path.
    """
    brought = {*_remembered(worktree, _BROUGHT), *shared, EXCHANGE}
    return tuple(
        name
        for name in _apart(repository, worktree, {each.rstrip("/") for each in brought})
        if not stays(f"{name}x" if name.endswith("/") else name)
    )


def set_aside(
    repository: Repository, worktree: Path, *, shared: Sequence[str], stays: Callable[[str], bool]
) -> Aside:
    """Move away what sessions made in a worktree and no commit holds, see `made_here`. Blocks.

    If a killed run has left something out of the way, that is all: what was made since belongs to the same
    judgment.
    """
    folder = _folder_of(worktree)
    if (folder / _LIST).exists():
        return _move_all(_read_list(folder / _LIST), worktree)
    names = made_here(repository, worktree, shared=shared, stays=stays)
    if not names:
        return Aside()
    folder.mkdir(parents=True, exist_ok=True)
    _write_list(folder / _LIST, names)
    return _move_all(names, worktree)


def put_back(worktree: Path) -> tuple[str, ...]:
    """Move back what was set aside; what was made in its place goes to the trash. Blocks.

    Returns where what could not be moved back is.
    """
    folder = _folder_of(worktree)
    if not (folder / _LIST).exists() or not worktree.is_dir():
        return ()
    inner = _inner(worktree)
    for number, name in enumerate(_read_list(folder / _LIST)):
        target = worktree / name.rstrip("/")
        for source in (folder / str(number), inner / str(number)):
            if os.path.lexists(source) and _made_room(target, worktree):
                _moved(source, target)
    places = (*folder.iterdir(), *(inner.iterdir() if inner.is_dir() else ()))
    left = tuple(str(path) for path in places if path != folder / _LIST)
    if not left:
        with suppress(OSError):
            (folder / _LIST).unlink()
            folder.rmdir()
            folder.parent.rmdir()
        with suppress(OSError):
            inner.rmdir()
    return left


def _move_all(names: Sequence[str], worktree: Path) -> Aside:
    """Move what is still in the worktree; what has its place in the folder was moved before."""
    folder = _inner(worktree) if is_covered(worktree) else _folder_of(worktree)
    folder.mkdir(parents=True, exist_ok=True)
    places = {name: folder / str(number) for number, name in enumerate(names)}
    moved = [name for name, place in places.items() if os.path.lexists(place)]
    moved += [name for name, place in places.items() if name not in moved and _moved(worktree / name, place)]
    stuck = [name for name in names if name not in moved and os.path.lexists(worktree / name)]
    left = _remembered(worktree, _LEFT)
    return Aside(
        names=tuple(moved),
        by_sessions=tuple(name for name in moved if name not in left),
        stuck=tuple(stuck),
    )


def _folder_of(worktree: Path) -> Path:
    return worktree.parent / ASIDE / worktree.name


def _inner(worktree: Path) -> Path:
    """Return where a layer has them. The list is never there: sessions can write to it."""
    return worktree / EXCHANGE / ASIDE.lstrip(".")


def _apart(repository: Repository, worktree: Path, brought: set[str]) -> Iterator[str]:
    """Yield what is neither committed nor was brought; a folder that holds both kinds by its files."""

    def was_brought(name: str) -> bool:
        return any(name.rstrip("/") == each or name.startswith(f"{each}/") for each in brought)

    for name in uncommitted(repository, worktree):
        if name.endswith("/") and any(each.startswith(name) for each in brought):
            listing = ("--literal-pathspecs", "ls-files", "--others", "-z", "--", name)
            inner = repository.run(*listing, cwd=worktree).fields()
            yield from (each for each in inner if not was_brought(each))
        elif not was_brought(name):
            yield name


def _moved(source: Path, target: Path) -> bool:
    try:
        source.rename(target)
    except OSError:
        return False
    return True


def _made_room(target: Path, worktree: Path) -> bool:
    """Make the place free again, unless a command made its folder a link that leads out of the tree."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not Path(os.path.realpath(target.parent)).is_relative_to(worktree):
            return False
        if os.path.lexists(target):
            top = _inner(worktree) if is_covered(worktree) else worktree.parent / TRASH
            trash = top / f"{worktree.name}-{secrets.token_hex(6)}"
            trash.mkdir(parents=True)
            target.rename(trash / target.name)
            if top.is_relative_to(worktree):
                delete_tree(trash)
    except OSError:
        return False
    return True


def _remembered(worktree: Path, kind: str) -> set[str]:
    git_dir = own_git_dir(worktree)
    return set(_read_list(git_dir / kind)) if git_dir is not None else set()


def _remember(worktree: Path, kind: str, names: Collection[str]) -> None:
    git_dir, known = own_git_dir(worktree), _remembered(worktree, kind)
    if git_dir is not None and not known.issuperset(names):
        _write_list(git_dir / kind, sorted(known.union(names)))


def _read_list(path: Path) -> tuple[str, ...]:
    try:
        return tuple(os.fsdecode(name) for name in path.read_bytes().split(b"\0") if name)
    except OSError:
        return ()


def _write_list(path: Path, names: Sequence[str]) -> None:
    replace_file(path, b"".join(os.fsencode(name) + b"\0" for name in names), durable=False)
