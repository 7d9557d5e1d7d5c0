"""Moves a branch that may be checked out: by compare-and-swap, and its checkouts follow.

The order is: look at the checkouts, move the ref together with the refs that record it, let each checkout
follow. A crash between the last two leaves a checkout that is behind its branch; `settle` completes it.
Nothing is forced: a file that the user has changed and the move would touch stops it before anything moves.
"""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import TargetError
from isolation.git.checkout import read_status
from isolation.git.commits import named, operation_in_progress
from isolation.git.landing.held_index import HeldIndex, hold_index, release_stale, take_index
from isolation.git.landing.present import present
from isolation.git.metadata_lock import metadata_lock
from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository, failure
from isolation.paths import holds_worktrees, own_git_dir

_NO_BLOB = "0" * 40
_ABSENT = ("", "")
_LONGEST_LOCK = 10.0
_PAUSE = 0.05


class Move(Struct, frozen=True, kw_only=True):
    """A branch and the two commits between which it moves; `recorded` are refs to set, "" deletes one."""

    branch: str
    old: str
    new: str
    reason: str
    recorded: Mapping[str, str] = {}


def checkouts_of(repository: Repository, branch: str) -> tuple[Path, ...]:
    """Return where a branch is checked out."""
    return tuple(
        entry.path
        for entry in load_registrations(repository)
        if entry.branch == branch and own_git_dir(entry.path) is not None
    )


def require_movable(repository: Repository, branch: str, touched: Mapping[str, Collection[str]]) -> None:
    """Refuse to touch files that the user has changed, in any checkout of the branch.

    `touched` are the paths that come from each commit; a file that is as in there already is no obstacle.
    """
    for checkout in checkouts_of(repository, branch):
        git_dir = own_git_dir(checkout)
        if git_dir is not None and (operation := operation_in_progress(git_dir)):
            raise TargetError(
                f"{checkout}, where {branch} is checked out, is in the middle of {operation}",
                hint="finish or abort it there, then try again.",
            )
        if in_the_way := _in_the_way(repository, checkout, touched):
            raise TargetError(
                f"{checkout} has changes of yours in files that {branch} would get: {named(in_the_way)}",
                hint="commit or stash them, then try again; nothing was changed.",
            )


def _in_the_way(
    repository: Repository, checkout: Path, touched: Mapping[str, Collection[str]]
) -> tuple[str, ...]:
    """Return the paths with changes of the user's that a move would touch, or the folders above them."""
    dirty = set(read_status(repository, checkout).dirty) | set(_hidden(repository, checkout))
    tracked = set(repository.run("ls-files", "-z", cwd=checkout).fields())
    found = set()
    for path in {each for paths in touched.values() for each in paths}:
        parents = {path[:end] for end, letter in enumerate(path) if letter == "/"}
        found |= ({path} | parents) & dirty
        found |= {each for each in dirty if each.startswith(f"{path}/")}
        # What git ignores is not dirty, and would be overwritten.
        found |= {each for each in {path} | parents if _is_untracked(checkout, each, tracked)}
    for commit, paths in touched.items():
        found -= present(repository, checkout, commit, found.intersection(paths))
    return tuple(sorted(found))


def _is_untracked(checkout: Path, path: str, tracked: Collection[str]) -> bool:
    """Whether something is at a path that git does not know; of folders it knows those with its files."""
    here = checkout / path
    if path in tracked or not os.path.lexists(here):
        return False
    return here.is_symlink() or not here.is_dir()


def _hidden(repository: Repository, checkout: Path) -> tuple[str, ...]:
    """Return the files whose changes are hidden from git, by assume-unchanged or skip-worktree."""
    marked = repository.run("ls-files", "-v", "-z", cwd=checkout).fields()
    hidden = [entry[2:] for entry in marked if entry[0].islower() or entry[0] == "S"]
    there = [path for path in hidden if os.path.lexists(checkout / path)]
    return tuple(path for path in there if _differs(repository, checkout, path))


def _differs(repository: Repository, checkout: Path, path: str) -> bool:
    listed = repository.run("--literal-pathspecs", "ls-files", "-s", "--", path, cwd=checkout).stdout.split()
    found = repository.run("hash-object", "--", path, cwd=checkout, check=False)
    return found.returncode != 0 or found.stdout.strip() not in listed[1:2]


def hold_checkouts(repository: Repository, branch: str) -> tuple[HeldIndex, ...]:
    """Keep other git commands from committing to a branch where it is checked out, until each `release`."""
    with ExitStack() as stack:
        held = []
        for path in checkouts_of(repository, branch):
            held.append(take_index(repository, path))
            stack.callback(held[-1].release)
        stack.pop_all()
    return tuple(held)


def move(repository: Repository, wanted: Move, *, held: Sequence[HeldIndex] = ()) -> bool:
    """Move the branch and let its checkouts follow; False if it is no longer where it was.

    If a checkout cannot follow, because the user has changed something this very moment, the branch moves
    back and `TargetError` says why. Checkouts that are `held` already are released at the end, too.
    """
    with ExitStack() as stack:
        for index in held:
            stack.callback(index.release)
        touched = repository.changed_paths(wanted.old, wanted.new)
        # From here on no other git command can stage or commit there: one between the move of the branch and
        # that of the index would commit the old files on top of the new ones.
        free = set(checkouts_of(repository, wanted.branch)) - {index.checkout for index in held}
        held = [*held, *(stack.enter_context(hold_index(repository, path)) for path in sorted(free))]
        require_movable(repository, wanted.branch, {wanted.new: touched})
        # Looked at while the branch is where it was; what changes from now on is the user's.
        there = {index.checkout: present(repository, index.checkout, wanted.new, touched) for index in held}
        changes = _changes(repository, wanted.old, wanted.new) if any(there.values()) else []
        earlier = {ref: _value(repository, ref) for ref in wanted.recorded}
        if not _swap(repository, wanted):
            return False
        followed: list[HeldIndex] = []
        try:
            for index in held:
                _list(index, [each for each in changes if each.path in there[index.checkout]])
                index.follow(wanted.old, wanted.new)
                followed.append(index)
        except TargetError:
            reason = f"{wanted.reason} was not possible"
            back = replace(wanted, old=wanted.new, new=wanted.old, reason=reason, recorded=earlier)
            if _swap(repository, back):
                for index in followed:
                    index.follow(wanted.new, wanted.old)
            raise
    return True


def _value(repository: Repository, ref: str) -> str:
    return repository.run("rev-parse", "--verify", "--quiet", ref, check=False).stdout.strip()


def has_ref(repository: Repository, ref: str) -> bool:
    """Whether a ref exists, by its full name."""
    return bool(_value(repository, ref))


def _swap(repository: Repository, wanted: Move) -> bool:
    """Move the branch together with the refs that record it, all or none; False if somebody was faster."""
    lines = [f"update refs/heads/{wanted.branch} {wanted.new} {wanted.old}"]
    lines += [f"update {ref} {value}" if value else f"delete {ref}" for ref, value in wanted.recorded.items()]
    text = "".join(f"{line}\n" for line in ("start", *lines, "prepare", "commit"))
    # From a checkout of the branch, git also logs the move of its HEAD; from a story's, it could not write.
    own = [
        each
        for each in checkouts_of(repository, wanted.branch)
        if not holds_worktrees(repository.common_dir, each.parent)
    ]
    where = next(iter(own), None)
    with metadata_lock(repository.common_dir):
        args = ("update-ref", "-m", f"autopilot-multi: {wanted.reason}", "--stdin")
        output = repository.run(*args, cwd=where, check=False, stdin=text.encode())
        if output.returncode == 0:
            return True
        if repository.branch_tip(wanted.branch) != wanted.old:
            return False
    raise failure(args, output)


class _Change(Struct, frozen=True, kw_only=True):
    """One path between two commits, as mode and blob on both sides; zeros where it is missing."""

    path: str
    old: tuple[str, str]
    new: tuple[str, str]


def release_checkouts(repository: Repository, branch: str) -> None:
    """Remove what a killed process of ours held to keep a branch where it was. The caller holds the lease."""
    for checkout in checkouts_of(repository, branch):
        release_stale(checkout)


def release(repository: Repository, branch: str, refs: Collection[str], *, since: float) -> None:
    """Remove the locks that a killed move has left. The caller holds the lease, and knows of such a move.

    A git command that was killed with it leaves its own locks, which block the branch for good. Only those
    go that are younger than the intent to move, and older than any such command takes.
    """
    common = repository.common_dir
    release_checkouts(repository, branch)
    for checkout in checkouts_of(repository, branch):
        _remove_left((own_git_dir(checkout) or common) / "HEAD.lock", since)
    for ref in (f"refs/heads/{branch}", *refs, "packed-refs"):
        _remove_left(common / f"{ref}.lock", since)


def _remove_left(lock: Path, since: float) -> None:
    with suppress(FileNotFoundError):
        while since <= (made := lock.stat().st_mtime):
            # A lock from the future is as old as one can be: the clock was set back since.
            if abs(time.time() - made) > _LONGEST_LOCK:
                lock.unlink()
            time.sleep(_PAUSE)


def repair(repository: Repository, recorded: Mapping[str, str]) -> None:
    """Set the refs of a move that has happened; a killed git command may have set only the branch."""
    for ref, value in recorded.items():
        if _value(repository, ref) != value:
            args = (ref, value) if value else ("-d", ref)
            repository.run("update-ref", *args)


def settle(repository: Repository, branch: str, old: str, new: str) -> None:
    """Complete the move of a branch that has happened, in each checkout that did not follow.

    Git writes files first and the index last, so a killed move leaves an index that is wholly at the old
    commit, and files at either, the last one perhaps in part.
    """
    changes = _changes(repository, old, new)
    for checkout in checkouts_of(repository, branch):
        with hold_index(repository, checkout) as held:
            listed = repository.run("ls-files", "-s", "-z", cwd=checkout).fields()
            words = (entry.partition("\t") for entry in listed)
            index = {path: tuple(before.split()[:2]) for before, _, path in words}
            if changes and all(index.get(each.path, _ABSENT) == each.old for each in changes):
                _take(held, [each for each in changes if _is_written(repository, checkout, each)])
                held.follow(old, new)


def _changes(repository: Repository, old: str, new: str) -> list[_Change]:
    fields = repository.run(
        "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new
    ).fields()
    changes = []
    for words, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old_blob, new_blob, _ = words.removeprefix(":").split()
        changes.append(_Change(path=path, old=_side(old_mode, old_blob), new=_side(new_mode, new_blob)))
    return changes


def _side(mode: str, blob: str) -> tuple[str, str]:
    return (mode, blob) if set(mode) != {"0"} else _ABSENT


def _is_written(repository: Repository, checkout: Path, change: _Change) -> bool:
    """Whether a file is no longer as in the old commit because of the killed move; a user's change is not."""
    path = checkout / change.path
    if not os.path.lexists(path):
        return change.old != _ABSENT
    if path.is_symlink() or not path.is_file() or change.new == _ABSENT:
        return False
    found = repository.run("hash-object", "--", change.path, cwd=checkout).stdout.strip()
    if found == change.old[1]:
        return False
    whole = repository.run("cat-file", "blob", change.new[1]).stdout.encode(errors="surrogateescape")
    return found == change.new[1] or whole.startswith(path.read_bytes())


def _take(held: HeldIndex, written: Sequence[_Change]) -> None:
    """Update the index to what the killed move has written, and complete the files."""
    if written:
        _list(held, written)
        there = [each.path for each in written if each.new != _ABSENT]
        held.run("checkout-index", "--force", "-u", "-z", "--stdin", stdin=_fields(there))


def _list(held: HeldIndex, written: Sequence[_Change]) -> None:
    """Update the index to files that are there."""
    lines = [
        f"0 {_NO_BLOB}\t{each.path}" if each.new == _ABSENT else f"{each.new[0]} {each.new[1]} 0\t{each.path}"
        for each in written
    ]
    if lines:
        held.run("update-index", "-z", "--index-info", stdin=_fields(lines))


def _fields(parts: Sequence[str]) -> bytes:
    return "".join(f"{part}\0" for part in parts).encode(errors="surrogateescape")
