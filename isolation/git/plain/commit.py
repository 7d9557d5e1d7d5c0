"""A commit made without git, as git would have made it: of a few small files that git takes as they are.

A git process takes longer than all of this. Whatever is unusual is left to git, before anything is visible.
The same files on the same parent at the same date give the same commit as with git.

Invariants:

- No session is alive in the tree.
- A branch moves by compare-and-swap, to a commit of which all objects are on the disk.
- An index is replaced under git's own lock, and only while it is the one that was compared.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from isolation.files.lookups import is_folder, is_link
from isolation.files.plain import open_plain
from isolation.git.checkout import CheckoutStatus
from isolation.git.commit_flaws import is_suspect
from isolation.git.direct.index_file import load_index
from isolation.git.plain.content import ATTRIBUTES, may_be_ignored, read_file, settings_of
from isolation.git.plain.index import with_files
from isolation.git.plain.objects import NewObjects, object_id
from isolation.git.plain.trees import Blob, IndexTrees, LeftToGitError
from isolation.git.repository import Repository
from isolation.patterns import pattern

MOST = 50
"""How many files are looked at here."""

_SHA1 = 40
_WHY = "autopilot-multi: checkpoint"
_UNUSUAL = pattern("[\0\ufdd0-\ufdef\ufffe\uffff]")
"""What git does not take for text."""


class Signature(Struct, frozen=True, kw_only=True):
    """Who makes a commit, as git writes it, and when, in seconds."""

    author: str
    committer: str
    date: int


class Files(Struct, frozen=True, kw_only=True):
    """Files of a tree that were `seen`, and which of them differ from a commit. What is gone is None.

    Of those that differ, some are `suspect`: they may hold conflict markers.
    """

    changed: dict[bytes, Blob | None]
    seen: dict[bytes, tuple[Blob, os.stat_result] | None]
    suspect: set[bytes]


class Made(Struct, frozen=True, kw_only=True):
    """A commit that was made, and the paths in which it differs from its parent; without any, the parent.

    If it is `suspect`, one of them may hold conflict markers.
    """

    tip: str
    changed: tuple[str, ...]
    suspect: bool


def commit_plainly(
    repository: Repository,
    cwd: Path,
    branch: str,
    status: CheckoutStatus,
    *,
    signature: Signature,
    message: str,
) -> Made | None:
    """Commit what is dirty in a worktree to its branch; None, and nothing is changed, if that is left to git.

    Blocks. The status must not be git's: the index is what was compared, and has the files of the branch.
    """
    git_dir, before = status.git_dir, status.head or ""
    if git_dir is None or not status.compared or len(before) != _SHA1:
        return None
    try:
        with NewObjects(repository.common_dir / "objects") as new:
            trees = IndexTrees(status.compared)
            names = _files(cwd, map(os.fsencode, status.dirty), trees)
            files = look_at(repository, cwd, trees, names, new)
            index = with_files(status.compared, files.seen)  # before anything is visible: it may be for git
            with _index_locked(git_dir, status.compared) as write:
                tip = before
                if files.changed:
                    tree = trees.changed(files.changed, new.add)
                    tip = add_commit(tree, (before,), signature, message, new)
                    new.appear()
                    _move(repository, branch, tip, before)
                    _log(git_dir, before, tip, signature, message)
                write(index)
    except (LeftToGitError, OSError, ValueError):
        return None
    changed = tuple(os.fsdecode(name) for name in sorted(files.changed))
    return Made(tip=tip, changed=changed, suspect=bool(files.suspect))


def look_at(
    repository: Repository, tree: Path, trees: IndexTrees, names: Iterable[bytes], new: NewObjects
) -> Files:
    """Compare files of a tree, by their names, with a commit, and add those that differ.

    Raises LeftToGitError where git has to look. Blocks. No session that owns these files may be alive.
    """
    settings = settings_of(repository)
    if not settings.usual:
        raise LeftToGitError("unusual settings")
    found = Files(changed={}, seen={}, suspect=set())
    for name in names:
        before = trees.get(name)
        if before is None and may_be_ignored(settings, tree, name):
            raise LeftToGitError("it may be ignored")
        file = read_file(settings, tree, name, trees)
        blob = Blob(file.mode, object_id(b"blob", file.content)) if file else None
        found.seen[name] = (blob, file.found) if blob and file else None
        if blob == before:
            continue
        if name.rpartition(b"/")[2] == ATTRIBUTES:
            raise LeftToGitError("git may convert other files in another way")
        found.changed[name] = blob
        if file:
            new.add(b"blob", file.content)
            found.suspect.update([name] if is_suspect(file.content) else [])
    return found


def add_commit(
    tree: bytes, parents: Sequence[str], signature: Signature, message: str, new: NewObjects
) -> str:
    """Add a commit of a tree; raises LeftToGitError for a message that git would write in another way."""
    if _UNUSUAL.search(message) or not message.endswith("\n"):
        raise LeftToGitError("an unusual message")
    when = f"{signature.date} +0000"
    lines = (
        f"tree {tree.hex()}",
        *(f"parent {parent}" for parent in parents),
        f"author {signature.author} {when}",
        f"committer {signature.committer} {when}",
    )
    try:
        content = "\n".join((*lines, "", message)).encode()
    except ValueError as error:
        raise LeftToGitError("a name or message in another encoding") from error
    return new.add(b"commit", content).hex()


def _files(tree: Path, names: Iterable[bytes], trees: IndexTrees) -> Iterator[bytes]:
    """Yield the names of files, also those in folders that are named; raises LeftToGitError for too many."""
    waiting, looked = list(names), 0
    while waiting:
        name, looked = waiting.pop(), looked + 1
        if looked > MOST:
            raise LeftToGitError("many files")
        path = f"{tree}/{os.fsdecode(name)}"
        if is_folder(path) and not is_link(path):
            if trees.get(name) is not None:
                raise LeftToGitError("a folder where a file was")
            waiting += [name + b"/" + os.fsencode(each) for each in os.listdir(path)]  # noqa: PTH208  only names
        else:
            yield name


def _move(repository: Repository, branch: str, tip: str, before: str) -> None:
    if repository.move_ref(f"refs/heads/{branch}", tip, before, _WHY, check=False).returncode != 0:
        raise LeftToGitError("the branch cannot be moved")


def _log(git_dir: Path, before: str, tip: str, signature: Signature, message: str) -> None:
    """Log a commit as that of a worktree's HEAD, if git keeps such a log, in a folder that is a session's."""
    when = f"{int(time.time())} {time.strftime('%z')}"
    subject = message.partition("\n")[0]
    line = f"{before} {tip} {signature.committer} {when}\tcommit: {subject}\n"
    with suppress(OSError):
        log = open_plain(f"{git_dir}/logs/HEAD", follow=False, flags=os.O_WRONLY | os.O_APPEND)
        try:
            if os.fstat(log).st_nlink == 1:
                os.write(log, line.encode(errors="surrogateescape"))
        finally:
            os.close(log)


@contextmanager
def _index_locked(git_dir: Path, data: bytes) -> Iterator[Callable[[bytes], None]]:
    """Hold the lock of an index that still has this content; what is written replaces it at the end."""
    index, written = f"{git_dir}/index", list[bytes]()
    lock = f"{index}.lock"
    descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _require_same(git_dir, data)
            yield written.append
            file.write(written[0])
            file.flush()
            # Still open, so it is never taken for one that was left.
            os.replace(lock, index)  # noqa: PTH105  text
    except BaseException:
        Path(lock).unlink(missing_ok=True)
        raise


def _require_same(git_dir: Path, data: bytes) -> None:
    if load_index(git_dir) != data:
        raise LeftToGitError("another command has written the index")
