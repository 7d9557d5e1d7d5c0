"""A story's own view of the branches of all stories: its commands move its own branch, and no other.

A commit needs a writable folder for refs, and what can write there can also move or delete the branches of
other stories. So in the mounts of a session, and of a git command on a story's tree, a folder of the story's
own stands in the place of the stories' branches. It holds the story's branch as a file; the others are found
in a list of packed refs, which is read-only. What becomes of the own branch is taken over when a command or a
session has ended, and whenever the repository is opened, so also after everything was killed.

Invariants:

- Which branch is a story's own does not depend on anything that a session can write.
- A branch is taken over only from the commit at which it was handed out, so nothing that was moved meanwhile
  is overwritten; what cannot be taken over stays under a ref.
- All other changes in the folder have no effect outside.
- Reftables and means without mounts have none of this: there all stories' branches stay open to sessions.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from isolation.errors import RepositoryError
from isolation.files.deletion import delete_tree
from isolation.files.disk import LockFile, replace_file, write_new
from isolation.files.lookups import is_folder, is_link, is_there
from isolation.files.plain import read_plain
from isolation.files.unheld_locks import remove_unheld
from isolation.git.contained.story_branches import (
    NAMESPACE,
    PREFIX,
    branches_of,
    commit_in,
    packed_text,
    text_in,
)
from isolation.git.direct.refs import read_ref
from isolation.paths import autopilot_dir

PARTED = "refs/autopilot/parted"
"""Where a session's commit stays if its branch was moved from outside at the same time."""

_LONGEST_LOG = 1 << 20
_TRIES = 5
_LOCK_SECONDS = 10.0


class Answer(Protocol):
    """What git answered."""

    @property
    def returncode(self) -> int:
        """The exit code."""

    @property
    def stderr(self) -> str:
        """What it complained about."""


Git = Callable[..., Answer]
"""Runs git outside of the story's tree, with these arguments, and does not raise if it fails."""

Move = Callable[[str, str, str, str], Answer]
"""Moves a ref to a commit from another one, and says why in its log; does not raise if it fails."""


class RefMounts(Struct, frozen=True, kw_only=True):
    """What stands where, so that a process moves the branch of one story only."""

    writable: tuple[Path, ...]
    read_only: dict[Path, str]
    sources: dict[Path, Path]


class _Place(Struct, frozen=True, kw_only=True):
    """The folder of one story: what is mounted, and what was handed out, which is not."""

    common: Path
    name: str
    folder: Path
    heads: Path
    logs: Path
    own_file: str
    handed_out_file: str
    for_sessions: RefMounts
    for_commands: RefMounts

    @property
    def own(self) -> str:
        """The last part of the name of its own branch."""
        return text_in(self.own_file) or self.name

    @property
    def handed_out(self) -> str:
        """The commit that its branch had when it was last the same inside and outside; empty for none."""
        return text_in(self.handed_out_file)

    @property
    def is_moved(self) -> bool:
        """Whether there may be something to take over."""
        return commit_in(f"{self.heads}/{self.own}") != self.handed_out

    def note(self, commit: str) -> None:
        """Note the commit that the branch has inside and outside."""
        write_new(self.handed_out_file, commit.encode())

    def hand_out(self, commit: str, seen: str) -> None:
        """Note, and write, the commit that the branch has inside, unless it is not as seen any more."""
        own = self.own
        lock, file = self.heads / f"{own}.lock", self.heads / own
        if commit_in(file) != commit:
            try:
                # Git's own protocol: what has made the lock may replace the file.
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                new = os.open(lock, flags, 0o666)
                try:
                    os.write(new, f"{commit}\n".encode())
                finally:
                    os.close(new)
            except OSError:
                return  # a command is writing it, or was killed there; the next one tries again
            if commit_in(file) != seen:
                lock.unlink()
                return
            if not commit or not file.is_file() or file.is_symlink():
                _remove(file)
            if commit:
                os.rename(lock, file)  # noqa: PTH104  pathlib makes one more path of it
            else:
                lock.unlink()
        self.note(commit)


def _folder_of(common: Path, name: str) -> str:
    return f"{autopilot_dir(common)}/refs/{name}"


@lru_cache(maxsize=1024)
def _place(common: Path, name: str) -> _Place:
    """Return where everything of a story is; every command on its tree asks."""
    folder = Path(_folder_of(common, name))
    heads, logs, (listed, *shown) = folder / "heads", folder / "logs", _shown(common)
    for_sessions, for_commands = (
        RefMounts(
            writable=tuple(shown),
            read_only={listed: "git's list of refs"},
            sources={shown[0]: heads, shown[1]: logs, listed: folder / name_of_list},
        )
        for name_of_list in ("packed-refs", "packed-refs-of-commands")
    )
    return _Place(
        common=common,
        name=name,
        folder=folder,
        heads=heads,
        logs=logs,
        own_file=f"{folder}/own",
        handed_out_file=f"{folder}/handed-out",
        for_sessions=for_sessions,
        for_commands=for_commands,
    )


@lru_cache(maxsize=64)
def _shown(common: Path) -> tuple[Path, Path, Path]:
    """Return git's list of refs, and where the branches of all stories are, and their logs."""
    return common / "packed-refs", common / "refs" / NAMESPACE, common / "logs" / "refs" / NAMESPACE


def lock_of(common: Path, name: str) -> str:
    """Return the lock of a story's own branch, as its sessions make it."""
    place = _place(common, name)
    return f"{place.heads}/{place.own}.lock"


def log_of(common: Path, name: str) -> str:
    """Return the log of a story's own branch, as its sessions write it."""
    place = _place(common, name)
    return f"{place.logs}/{place.own}"


def ref_mounts(common: Path, name: str, branch: str = "", *, fresh: bool = False) -> RefMounts | None:
    """Make the view of a story's refs and return its mounts; None where refs are not files. Blocks.

    `branch` is the story's own, unless it has the name of the worktree or was given before. With `fresh` the
    branches of others are looked up again, for a session. Git commands on the tree need none of them: they
    have a copy of git's own list until git packs its refs, since a new file costs new mounts.
    """
    place, leaf = _place(common, name), branch.removeprefix(PREFIX.removeprefix("refs/heads/"))
    mounts = place.for_sessions if fresh else place.for_commands
    heads, logs = mounts.writable
    listed = common / "packed-refs"
    if "/" in leaf or is_there(f"{common}/reftable"):
        return None
    if any(is_link(each) for each in (f"{common}/refs", heads, logs)):
        return None
    begun = any(is_there(each.sources[listed]) for each in (place.for_sessions, place.for_commands))
    for folder in (heads, logs, place.folder, place.heads, place.logs):
        if not is_folder(folder):
            _make_folder(folder)
    if not is_there(listed):
        listed.touch()  # only what exists can be covered
    own = place.own
    if leaf and leaf != own:
        replace_file(place.own_file, leaf.encode(), durable=False)
        own = leaf
    if not begun:
        with suppress(OSError):
            write_new(f"{place.logs}/{own}", read_plain(f"{logs}/{own}", _LONGEST_LOG))
    _refresh(place, own)
    if fresh:
        _write_list(mounts.sources[listed], branches_of(common).text())
    elif not _is_current(mounts.sources[listed], listed):
        _write_list(mounts.sources[listed], packed_text(common))
    return mounts


def take_over_ref(common: Path, name: str, git: Git, move: Move, *, top: Path) -> bool:
    """Move a story's branch to where its commands have moved it; false if there was nothing to do. Blocks.

    `top` is the checkout in which `git` works. A kill or a power failure may have left the lock of the branch
    behind; it is removed if no process holds it.
    """
    place = _place(common, name)
    if not place.is_moved:
        return False
    try:
        with _locked(place):
            for _ in range(_TRIES):
                if _take_over(place, git, move):
                    return True
                _free(common / f"{PREFIX}{place.own}.lock", (top, common))
    except OSError as error:
        raise RepositoryError(
            f"the branch autopilot/{place.own} cannot be taken over from its story: {error.strerror}",
            hint="its commits are kept; free disk space, then run again",
        ) from error
    raise RepositoryError(
        f"{PREFIX}{place.own} is moved all the time", hint="its commits are kept; run again"
    )


def _free(lock: Path, shared: tuple[Path, ...]) -> None:
    """Remove the lock of a branch if no process holds it; git has waited for it already."""
    if os.path.lexists(lock) and not remove_unheld([lock], own=(), shared=shared) and os.path.lexists(lock):
        raise RepositoryError(
            f"another git command holds {lock}", hint="its commits are kept; run again when it has ended"
        )


@contextmanager
def _locked(place: _Place) -> Iterator[None]:
    """Hold the right to take over; another thread, or a process that shows the run, may want it, too."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while (lock := LockFile.attempt(place.folder / "lock")) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, "another autopilot-multi holds its lock")
        time.sleep(0.003)
    with lock:
        yield


def _take_over(place: _Place, git: Git, move: Move) -> bool:
    """Take a branch over; false if somebody else moves it, or has locked it, at the same time."""
    ref, inside, before = PREFIX + place.own, commit_in(place.heads / place.own), place.handed_out
    outside = _outside(place.common, ref)
    if inside in {"", outside}:  # a branch that was deleted inside stays, outside
        place.hand_out(outside, inside)
    elif outside != before:
        _move(git, move, f"{PARTED}/{place.own}/{inside[:12]}", inside, "")
        place.hand_out(outside, inside)
    else:
        moved = _move(git, move, ref, inside, outside)
        if moved is None:
            return False
        if moved:
            place.note(inside)
        else:
            place.hand_out(outside, inside)
    return True


def _move(git: Git, move: Move, ref: str, commit: str, before: str) -> bool | None:
    """Move a ref to a commit from another one, empty for none; false if there is no such commit.

    None if git did not move it for another reason, such as that it is not where it was.
    """
    # Git wants zeros for a ref that must not exist yet.
    expected = before or "0" * len(commit)
    answer = move(ref, commit, expected, "autopilot-multi: committed in its worktree")
    if answer.returncode == 0:
        return True
    return False if git("cat-file", "-e", f"{commit}^{{commit}}").returncode != 0 else None


def pending(common: Path) -> list[str]:
    """Return the names of the worktrees whose branch is to be taken over."""
    names = _names(autopilot_dir(common) / "refs")
    return [name for name in names if _place(common, name).is_moved]


def is_moved(common: Path, name: str) -> bool:
    """Return whether commands in the worktree of this name may have moved its branch."""
    return _place(common, name).is_moved


def others_written(common: Path, name: str) -> tuple[str, ...]:
    """Return the branches that were made or moved inside, and have no effect outside."""
    place = _place(common, name)
    own = {place.own, f"{place.own}.lock"}
    return tuple(f"autopilot/{leaf}" for leaf in _names(place.heads) if leaf not in own)


def is_deleted(common: Path, name: str) -> bool:
    """Return whether the story's own branch was deleted inside; it stays outside, and is handed out again."""
    place = _place(common, name)
    return bool(place.handed_out) and not os.path.lexists(place.heads / place.own)


def drop_refs(common: Path, name: str) -> None:
    """Delete the view of a story's refs; nothing may be running in its worktree. Blocks."""
    folder = _folder_of(common, name)
    if os.path.lexists(folder):
        delete_tree(Path(folder))


def _refresh(place: _Place, own: str) -> None:
    """Hand out what the branch has become outside, unless something inside is still to be taken over."""
    inside, before = commit_in(f"{place.heads}/{own}"), place.handed_out
    outside = _outside(place.common, PREFIX + own)
    if inside == before != outside or not inside:
        place.hand_out(outside, inside)


def _make_folder(folder: Path) -> None:
    """Make a folder; as a rule, the one above it is there."""
    try:
        os.mkdir(folder)  # noqa: PTH102  pathlib looks for more
    except OSError:
        folder.mkdir(parents=True, exist_ok=True)


def _write_list(file: Path, text: bytes) -> None:
    """Write a list of refs, unless it is there; a new file would cost new mounts."""
    try:
        same = read_plain(file, len(text) + 1) == text
    except OSError:
        same = False
    if not same:
        write_new(file, text)
    else:
        os.utime(file)


def _is_current(file: Path, packed: Path) -> bool:
    """Whether a list is there, and was made after git's own."""
    try:
        return file.stat().st_mtime_ns >= packed.stat().st_mtime_ns
    except OSError:
        return False


def _outside(common: Path, ref: str) -> str:
    """Return the commit of a ref in the repository itself; empty if there is none, or only git could tell."""
    return read_ref(common, ref) or ""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  names are enough
    except OSError:
        return []


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            delete_tree(path)
        else:
            path.unlink()
