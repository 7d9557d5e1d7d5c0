"""Where a story's sessions put git objects: in a folder of its own, beside the repository's.

A commit needs a folder for objects that can be written to, and what can write there can also delete. So in
the mounts of a session, and of a git command on a story's tree, the story's own store stands in the place of
the repository's objects; those are read-only, and git finds them as an alternate. Outside, the store is an
alternate of the repository. So every object is found at once, even if everything is killed.

Invariants:

- What is in the repository's objects stays as it is, whatever a session does: git prefers them to those of an
  alternate. A store has no packs, which would come first, and no alternates.
- An object is taken over as the bytes that were verified. It is seen there once they are on the disk; only
  then is it removed from the store.
- A store is registered as an alternate before anything is written to it, until it is deleted. It is made
  and deleted under one lock, and made only while its worktree is there: a command that comes too late must
  not register what is being deleted.
- What a command could not take over is taken over before another tree needs it, or when the next run begins.
"""

import errno
import hashlib
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import RepositoryError, WorkspaceError
from isolation.files.deletion import delete_tree
from isolation.files.disk import attempt_in_folder, replace_file, sync_disk
from isolation.files.lookups import is_folder, is_link
from isolation.files.plain import read_plain
from isolation.git.contained.large_store import drop_large, large_mounts, take_over_large
from isolation.git.contained.private_refs import drop_refs
from isolation.git.contained.stand_in_sets import release_stand_ins
from isolation.model import Means
from isolation.paths import autopilot_dir, repository_hash
from isolation.patterns import pattern

SHARED = ".shared"
"""The store of the commands on a tree that stories share; no story can have this name."""

_LOCK_SECONDS = 60.0
_SETTLED = 10**8
_CHUNK = 1 << 20
_FOLDER = pattern(r"[0-9a-f]{2}")
_HASHES = {38: hashlib.sha1, 62: hashlib.sha256}
_HEADER = pattern(rb"(?:blob|tree|commit|tag) (\d{1,19})\0")
_LONGEST_HEADER = 28
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}


class ObjectMounts(Struct, frozen=True, kw_only=True):
    """What stands where, so that a process adds to a store and only reads the repository's objects."""

    read_only: dict[Path, str]
    writable: tuple[Path, ...]
    sources: dict[Path, Path]


class _Layout(Struct, frozen=True, kw_only=True):
    """The mounts of a store without those of git-lfs, and what must be there for them.

    Of the alternates, `ours` are those that begin so; a process finds the repository's objects at `leads`.
    """

    mounts: ObjectMounts
    needed: tuple[Path, ...]
    store: Path
    links: Path
    ours: bytes
    leads: bytes


class _Taken(Struct, frozen=True, kw_only=True):
    """An object of a store, and its verified copy, which is not visible at its target yet."""

    source: Path
    copy: Path
    target: Path


@lru_cache(maxsize=1024)
def store_of(common: Path, name: str) -> Path:
    """Return the folder for the objects that are made in the worktree of this name."""
    return autopilot_dir(common) / "objects" / name


def object_mounts(
    common: Path, name: str, means: Means, *, seen: Path | None = None, tree: Path | None = None
) -> ObjectMounts | None:
    """Make the store of a worktree and return its mounts; None where the objects cannot be protected.

    `seen` is where the git directory stands for the process. A `tree` is the worktree, which must be there.
    Blocks.
    """
    seen = seen or common
    # What every command and every session asks is asked as text: pathlib takes longer than the answer.
    if means is not Means.MOUNTS or is_link(f"{common}/objects") or "\n" in f"{common}{seen}":
        return None
    layout = _layout(common, name, seen)
    mounts = layout.mounts
    for folder in layout.needed:
        if not is_folder(folder):
            folder.mkdir(parents=True, exist_ok=True)
    _write_links(common, layout, _make_store(common, layout.store, tree))
    large = large_mounts(common, name)
    if not large:
        return mounts
    own, *others = large
    return ObjectMounts(
        read_only={**dict.fromkeys(others, "git-lfs's files"), **mounts.read_only},
        writable=(*mounts.writable, own),
        sources={**large, **mounts.sources},
    )


@lru_cache(maxsize=1024)
def _layout(common: Path, name: str, seen: Path) -> _Layout:
    """Return where everything of a store is; every command on its tree asks."""
    usual, store = _layout_of_all(common, seen), store_of(common, name)
    objects = common / "objects"
    sources = {**usual.mounts.sources, objects: store, objects / "pack": store / "pack"}
    return replace(usual, mounts=replace(usual.mounts, sources=sources), store=store)


@lru_cache(maxsize=64)
def _layout_of_all(common: Path, seen: Path) -> _Layout:
    """Return what is the same for every store of a repository."""
    objects, ours, store = common / "objects", autopilot_dir(common), store_of(common, "")
    shown, nothing = ours / "shared-objects", ours / "object-links" / "none"
    links = ours / "object-links" / repository_hash(seen)
    mounts = ObjectMounts(
        read_only={
            objects / "info": "what git knows about its objects",
            objects / "pack": "git's packs",
            shown: "git's objects",
            shown / "info": "what git knows about its objects",
        },
        writable=(objects,),
        sources={
            objects: store,
            objects / "info": links,
            objects / "pack": store / "pack",
            shown: objects,
            shown / "info": nothing,
        },
    )
    return _Layout(
        mounts=mounts,
        needed=(shown, objects / "info", nothing, links),
        store=store,
        links=links / "alternates",
        ours=os.fsencode(ours / "objects") + b"/",
        leads=os.fsencode(autopilot_dir(seen) / "shared-objects"),
    )


_removed: dict[Path, list[str]] = {}
"""What was removed from each store. Any command on a tree may find it, but only the judge of the session that
left it can name it."""


def removed_from(common: Path, name: str) -> tuple[str, ...]:
    """Return what was removed from a store since the last time that this was asked."""
    return tuple(_removed.pop(store_of(common, name), ()))


def take_over(common: Path, name: str) -> None:
    """Move what is whole from a store to the repository's objects. Blocks; commands may be running there.

    What no git writes, such as a link, a FIFO or an object that is not what its name says, is removed;
    `removed_from` returns its names.
    """
    taken: list[_Taken] = []
    store = store_of(common, name)
    try:
        for inside, hashed in _stored(store):
            source, target = store / inside, common / "objects" / inside
            if hashed is not None and target.exists():
                _remove(source)
                continue
            copy = None if hashed is None else _copy(source, target, hashed())
            if copy is not None:
                taken.append(_Taken(source=source, copy=copy, target=target))
            elif os.path.lexists(source):  # else another command has just taken it over
                _remove(source)
                _removed.setdefault(store, []).append(inside)
        if taken:
            # Git has synced them, and branches lead to them: what is removed must be on the disk elsewhere.
            sync_disk(common / "objects")
        for each in taken:
            each.copy.rename(each.target)
            _remove(each.source)
    finally:
        for each in taken:
            each.copy.unlink(missing_ok=True)
    take_over_large(common, name)


def _stored(store: Path) -> Iterator[tuple[str, "Callable[[], hashlib._Hash] | None"]]:
    """Yield the paths in a store where objects are, each with the hash of its name; None if it cannot be one.

    What git is writing, or was when it was killed, is left out.
    """
    for folder in _entries(store):
        if _FOLDER.fullmatch(folder.name) is None:
            continue
        if not folder.is_dir(follow_symlinks=False):
            yield folder.name, None
            continue
        entries = _entries(folder.path)
        if not entries and store.name == SHARED:
            _remove_unused(folder)
        for entry in entries:
            hashed = _HASHES.get(len(entry.name))
            if not entry.is_file(follow_symlinks=False):
                yield f"{folder.name}/{entry.name}", None
            elif hashed is not None:
                yield f"{folder.name}/{entry.name}", hashed


def _remove_unused(folder: os.DirEntry[str]) -> None:
    """Remove an empty folder of the commands' store: else they would leave one for each first byte of an id.

    Git may be about to write to one that it has just made; one that is missed all the same is made again by
    `run_confined`, which repeats the command. A session's command would not be repeated.
    """
    with suppress(OSError):
        if abs(time.time_ns() - folder.stat(follow_symlinks=False).st_ctime_ns) > _SETTLED:
            os.rmdir(folder.path)  # noqa: PTH106  it is only a name here


def take_over_left(common: Path) -> None:
    """Take over what a full or broken disk, or a kill, has left in any store. Blocks.

    A command on another tree does not see it there. Raises OSError if a disk is still full or broken.
    """
    for store in _entries(store_of(common, "")):
        try:
            take_over(common, store.name)
        except OSError as error:
            if error.errno in _DISK:
                raise


def drop_store(common: Path, name: str) -> None:
    """Take over what is in a store, then delete it, and the refs beside it. Blocks.

    Nothing may be running in its worktree, and its branch is taken over already.
    """
    store = store_of(common, name)
    drop_refs(common, name)
    drop_large(common, name)
    release_stand_ins(f"{autopilot_dir(common)}/seal", name)
    if not is_folder(store):
        return
    take_over(common, name)
    with _locked(common):
        _write_lines(common, [line for line in _lines(common) if line != os.fsencode(store)])
        delete_tree(store)


def settle_stores(common: Path) -> None:
    """Correct the registrations of stores after the repository was moved or copied. Blocks."""
    ours = os.fsencode(autopilot_dir(common) / "objects") + b"/"
    marked = b"/autopilot/objects/"
    if not any(marked in line and not line.startswith(ours) for line in _lines(common)):
        return
    with _locked(common):
        kept = [line for line in _lines(common) if marked not in line]
        _write_lines(
            common, kept + [os.fsencode(entry.path) for entry in _entries(store_of(common, "").absolute())]
        )


def _write_links(common: Path, layout: _Layout, alternates: list[bytes]) -> None:
    """Write the file that leads a process to the repository's objects, and to their alternates."""
    objects = f"{common}/objects"
    others = [
        line
        if line.startswith((b"/", b'"'))
        else os.fsencode(os.path.normpath(f"{objects}/{os.fsdecode(line)}"))
        for line in alternates
        if line and not line.startswith((layout.ours, b"#"))
    ]
    text = b"".join(line + b"\n" for line in (layout.leads, *others))
    try:
        same = read_plain(layout.links, len(text) + 1) == text
    except OSError:
        same = False
    if not same:
        replace_file(layout.links, text, durable=False)


def _make_store(common: Path, store: Path, tree: Path | None) -> list[bytes]:
    """Make a store and register it as one step: a look at a tree may meet the removal of the same tree.

    Returns all alternates.
    """
    folders, line = (f"{store}/info", f"{store}/pack"), os.fsencode(store)
    if all(is_folder(each) for each in folders) and line in (lines := _lines(common)):
        return lines
    with _locked(common):
        if tree is not None and not tree.is_dir():
            raise WorkspaceError(f"the worktree {tree} is gone", hint="run the story again")
        for folder in folders:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103  text
        lines = _lines(common)
        if line not in lines:
            lines.append(line)
            _write_lines(common, lines)
        return lines


def _alternates(common: Path) -> str:
    return f"{common}/objects/info/alternates"


def _lines(common: Path) -> list[bytes]:
    try:
        return read_plain(_alternates(common), sys.maxsize).splitlines()
    except OSError:
        return []


def _write_lines(common: Path, lines: list[bytes]) -> None:
    if lines:
        # A power failure may lose those of stores, which are registered again.
        ours = os.fsencode(store_of(common, "")) + b"/"
        others = not all(line.startswith(ours) for line in lines)
        replace_file(_alternates(common), b"".join(line + b"\n" for line in lines), durable=others)
    else:
        with suppress(FileNotFoundError):
            os.unlink(_alternates(common))  # noqa: PTH108  text


@lru_cache(maxsize=64)
def _lock_of_alternates(common: Path) -> Path:
    return autopilot_dir(common) / "alternates.lock"


@contextmanager
def _locked(common: Path) -> Iterator[None]:
    """Hold the right to change the alternates; its own lock, since commands run under the other one."""
    path, deadline = _lock_of_alternates(common), time.monotonic() + _LOCK_SECONDS
    while (lock := attempt_in_folder(path)) is None:
        if time.monotonic() > deadline:
            raise RepositoryError(
                f"waited {_LOCK_SECONDS:.0f} s for {path}", hint="is another autopilot-multi suspended?"
            )
        time.sleep(0.003)
    with lock:
        yield


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            delete_tree(path)
        else:
            path.unlink()


def _copy(source: Path, target: Path, digest: "hashlib._Hash") -> Path | None:
    """Copy an object, to a file beside its target, if it is what its name says."""
    target.parent.mkdir(exist_ok=True)
    temporary = target.with_name(f"tmp_obj_{os.getpid()}-{os.urandom(6).hex()}")
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None  # another command has just taken it over
    whole = False
    try:
        with os.fdopen(descriptor, "rb") as file, temporary.open("xb") as copy:
            whole = _is_whole(file, copy, digest, target.parent.name + target.name)
        temporary.chmod(0o444)
    except OSError:
        whole = False
        raise
    finally:
        if not whole:
            temporary.unlink(missing_ok=True)
    return temporary if whole else None


def _is_whole(file: BinaryIO, copy: BinaryIO, digest: "hashlib._Hash", name: str) -> bool:
    """Copy a loose object; return whether it has the form of one, and the name of its content."""
    inflating, start, size = zlib.decompressobj(), b"", 0
    try:
        while part := file.read(_CHUNK):
            copy.write(part)
            while part and not inflating.eof:
                data = inflating.decompress(part, _CHUNK)
                part = inflating.unconsumed_tail
                digest.update(data)
                size += len(data)
                start += data[: _LONGEST_HEADER - len(start)]
    except zlib.error:
        return False
    header = _HEADER.match(start)
    if header is None or not inflating.eof or inflating.unused_data or file.read(1):
        return False
    return size == header.end() + int(header[1]) and digest.hexdigest() == name
