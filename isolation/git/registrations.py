"""The worktrees that git knows of: reading the list, and removing an entry.

An entry is ours when its lock reason says so: every worktree of a story is locked with the run and
the story that it belongs to. Functions here change shared metadata only under the caller's
`metadata_lock`.
"""

import errno
import os
import re
import secrets
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from isolation.errors import RepositoryError
from isolation.files.lookups import is_folder, is_there
from isolation.git.checkout import admin_dir_of_missing, line_of, worktree_of
from isolation.git.contained.object_store import drop_store
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir
from isolation.patterns import pattern

_REASON = pattern(r"autopilot-multi run (?P<run>\S+) story (?P<story>\S+)")


class Registration(Struct, frozen=True, kw_only=True):
    """One worktree; `head` is set if it is on no branch, `lock_reason` if it is locked."""

    path: Path
    head: str
    branch: str | None
    lock_reason: str | None

    @property
    def run_id(self) -> str | None:
        """The run that this worktree was last opened for; None if it is not ours."""
        match = _REASON.fullmatch(self.lock_reason or "")
        return match["run"] if match else None

    @property
    def is_incomplete(self) -> bool:
        """Whether `git worktree add` was killed before it had written a HEAD."""
        return self.branch is None and set(self.head) <= {"0"}


def lock_reason(run_id: str, story_id: str) -> str:
    """Return the reason that marks a worktree as ours, for readers and for `gc`."""
    return f"autopilot-multi run {run_id} story {story_id}"


def is_ours(entry: Path | str) -> bool:
    """Whether an entry of git's list says that it is the worktree of a story."""
    return _REASON.fullmatch(_text(f"{entry}/locked") or "") is not None


def load_registrations(repository: Repository, *, locks: bool = True) -> tuple[Registration, ...]:
    """Read every worktree that git knows of; the main checkout comes first.

    Read from its own files, as documented in gitrepository-layout, without starting a process. Why they are
    locked is left out without `locks`.
    """
    common = repository.common_dir
    if is_there(f"{common}/reftable"):  # there HEAD is not a readable file
        return _listed_by_git(repository)
    main = _entry(f"{common}", repository.main_checkout or common, locks=locks)
    places = ((folder, worktree_of(folder)) for folder in _folders(repository))
    linked = [_entry(folder, path, locks=locks) for folder, path in places if path is not None]
    return (main, *sorted(linked, key=lambda entry: entry.path.parts))


def linked_paths(repository: Repository) -> tuple[Path, ...]:
    """Return only the paths of the linked worktrees."""
    try:
        folders = _folders(repository)
    except OSError:
        return ()
    return tuple(path for folder in folders if (path := worktree_of(folder)) is not None)


def _folders(repository: Repository) -> list[str]:
    """Return the git directories of the linked worktrees, as text, since there are many."""
    listed = f"{repository.common_dir}/worktrees"
    if not is_folder(listed):
        return []
    return [f"{listed}/{name}" for name in sorted(os.listdir(listed))]  # noqa: PTH208  names are enough


def checkouts(repository: Repository) -> tuple[Path, ...]:
    """Return the paths of all checkouts: the main one, if there is one, and the linked worktrees."""
    main = repository.main_checkout
    return (*(() if main is None else (main,)), *linked_paths(repository))


def clear_missing(repository: Repository, path: Path, *, into: Path | None = None) -> None:
    """Remove the entry of a worktree whose folder is gone from git's list; the branch stays.

    The entry is moved out of git's directory in one step, so that a crash leaves a whole entry or none. Then
    it is deleted, unless it is to be kept as `into`.
    """
    if os.path.lexists(path / ".git"):
        raise RepositoryError(f"{path} still exists", hint="it is kept; run again")
    with suppress(OSError):  # what is left there is found all the same
        repository.take_over(path.name)
        drop_store(repository.common_dir, path.name)
    # Not `git worktree prune`, which would remove every entry whose folder is missing.
    entry = admin_dir_of_missing(repository, path)
    if entry is None:
        return
    trash = removed_entries(repository)
    aside = into or trash / f"{entry.name}-{secrets.token_hex(6)}"
    try:
        aside.parent.mkdir(parents=True, exist_ok=True)
        move_entry(entry, aside)
    except OSError as error:
        raise RepositoryError(
            f"the registration of {path} could not be removed: {error.strerror}",
            hint=f"`git worktree remove {shlex.quote(str(path))}` does it by hand",
        ) from error
    if into is None:
        shutil.rmtree(aside, ignore_errors=True)
    for folder in (trash, entry.parent):
        with suppress(OSError):
            folder.rmdir()


def move_entry(source: Path, target: Path) -> None:
    """Take an entry off git's list or put it there in one step, also if our folder is on another disk.

    A crash leaves it whole where it was or where it goes to, or a whole copy beside the list.
    """
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        listed = next(path.parent for path in (source, target) if path.parent.name == "worktrees")
        beside = listed.with_name(f"autopilot-moved-{secrets.token_hex(6)}")
        if target.parent == listed:
            shutil.copytree(source, beside, symlinks=True)
            beside.rename(target)
            shutil.rmtree(source)
        else:
            source.rename(beside)
            shutil.copytree(beside, target, symlinks=True)
            shutil.rmtree(beside)


def entry_run(entry: Path) -> str | None:
    """Return the run that a worktree was last opened for, by its part of the git directory."""
    match = _REASON.fullmatch(_text(f"{entry}/locked") or "")
    return match["run"] if match else None


def removed_entries(repository: Repository) -> Path:
    """Return the folder of entries that are on no list any more; a crash may leave some there."""
    return autopilot_dir(repository.common_dir) / "trash"


def clear_begun(repository: Repository, names: re.Pattern[str]) -> None:
    """Remove entries of ours with such names that lead nowhere: git was killed while it made them."""
    for locked in (repository.common_dir / "worktrees").glob("*/locked"):
        reason = _REASON.fullmatch(_text(f"{locked}") or "")
        if reason and names.fullmatch(reason["story"]) and not _text(f"{locked.with_name('gitdir')}"):
            shutil.rmtree(locked.parent, ignore_errors=True)


def _entry(git_dir: str, path: Path, *, locks: bool) -> Registration:
    head = _text(f"{git_dir}/HEAD") or ""
    branch = head.removeprefix("ref:").strip() if head.startswith("ref:") else None
    return Registration(
        path=path,
        head="" if branch else head,
        branch=branch.removeprefix("refs/heads/") if branch else None,
        lock_reason=_text(f"{git_dir}/locked") if locks else None,
    )


def _text(file: str) -> str | None:
    line = line_of(file)
    return None if line is None else line.strip()


def _listed_by_git(repository: Repository) -> tuple[Registration, ...]:
    text = repository.run("worktree", "list", "--porcelain", "-z").stdout
    return tuple(_parse(block.split("\0")) for block in text.split("\0\0") if block)


def _parse(lines: list[str]) -> Registration:
    values = dict(line.partition(" ")[::2] for line in lines)
    branch = values.get("branch")
    return Registration(
        path=Path(values["worktree"]),
        head="" if branch else values.get("HEAD", ""),
        branch=branch.removeprefix("refs/heads/") if branch else None,
        lock_reason=values.get("locked"),
    )
