"""Whether a tree holds exactly what its index names, by a walk: what git itself does not look at.

Git does not show a repository inside a tracked folder, the modes of folders or access lists. Neither does it
know who has a file open. A second name of a file elsewhere, by which it could be changed later, needs no
search: making it has left a newer change time on the file, so git has written that file again.
"""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from isolation.git.direct.index_file import IndexSummary
from isolation.worktree.pool.mappings import mapped_files
from isolation.worktree.pool.seals import umask

_HARMLESS = "security.selinux"


class Walked(Struct, frozen=True, kw_only=True):
    """Everything in a tree, by inode, on the device on which all of it is."""

    device: int
    inodes: frozenset[int]


def flaw_of(tree: Path, index: IndexSummary) -> str:
    """Return what distinguishes a tree from a new checkout of its index; empty if nothing does. Blocks.

    The caller has made sure that every file of the index is there with its content.
    """
    walked = walk(tree, index)
    if isinstance(walked, str):
        return walked
    held = held_inodes()
    return next(
        (
            f"process {held[walked.device, inode]} has something in it open"
            for inode in walked.inodes
            if (walked.device, inode) in held
        ),
        "",
    )


def walk(tree: Path, index: IndexSummary) -> Walked | str:
    """Return what is in a tree, or what distinguishes it from a new checkout; who has it open is not asked.

    Blocks.
    """
    mask = umask()
    if mask is None:
        return "the modes of new files are not known here"
    wanted = stat.S_IFDIR | 0o777 & ~mask | tree.parent.stat().st_mode & stat.S_ISGID
    files, empty, inodes = 0, 0, set[int]()
    device, folders = tree.stat().st_dev, [str(tree)]
    while folders:
        folder = folders.pop()
        found = os.lstat(folder)
        inodes.add(found.st_ino)
        if found.st_mode != wanted or found.st_uid != os.geteuid() or found.st_dev != device:
            return f"{folder} has another mode, owner or file system than a new folder"
        if _has_attributes(folder):
            return f"{folder} has extended attributes"
        with os.scandir(folder) as found_there:
            entries = list(found_there)
        below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        inodes.update([entry.inode() for entry in entries])  # known without a look at the files
        files += len(entries) - len(below)
        empty += not entries
        folders += below
    if (files - 1, empty) != (index.files, index.submodules):
        return f"{files - 1} files and {empty} empty folders, where the index has {index.files}"
    return Walked(device=device, inodes=frozenset(inodes))


def _has_attributes(path: str) -> bool:
    try:
        return any(name != _HARMLESS for name in os.listxattr(path, follow_symlinks=False))
    except OSError:
        return False


def held_inodes(*, without: Collection[int] = ()) -> dict[tuple[int, int], str]:
    """Return what processes have open or mapped, by device and inode, and one process each. Blocks.

    Not by path: theirs may be those of mounts. Processes `without` are not asked.
    """
    held: dict[tuple[int, int], str] = {}
    for process in _processes():
        if int(process) in without:
            continue
        try:
            found = os.stat(f"/proc/{process}/cwd")  # noqa: PTH116  as below
            held[found.st_dev, found.st_ino] = process
        except (FileNotFoundError, PermissionError):
            continue  # a part of the kernel, or nothing of it can be seen: most are
        except OSError:
            pass
        for link in _links(process):
            try:
                found = os.stat(link)  # noqa: PTH116  a link of procfs, not a path
            except OSError:
                continue
            held[found.st_dev, found.st_ino] = process
        with suppress(OSError):
            held.update(dict.fromkeys(mapped_files(process), process))
    return held


def _processes() -> Iterator[str]:
    with suppress(OSError):
        yield from (name for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208  many, as text


def _links(process: str) -> Iterator[str]:
    yield f"/proc/{process}/root"
    with suppress(OSError):
        for name in os.listdir(f"/proc/{process}/fd"):  # noqa: PTH208  many, as text
            yield f"/proc/{process}/fd/{name}"
