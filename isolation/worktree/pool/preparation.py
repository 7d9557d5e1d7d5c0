"""Spares in which a command of the user has run ahead of their stories: it installs dependencies, say.

The command may leave ignored files and nothing else. Each of them is remembered by what the file system says
about it. Every later change leaves a newer change time, which no program can set, so a run that comes later
can tell whether a spare is still as the command left it.
"""

import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec import Struct

from isolation.git.repository import Repository


class Preparation(Struct, frozen=True, kw_only=True):
    """What runs in spares: `run` gets a tree and its commit, and returns whether it succeeded.

    `key` stands for the command. What it makes depends on the files that the globs `inputs` name.
    """

    key: str
    inputs: tuple[str, ...]
    run: Callable[[Path, str], Awaitable[bool]]


def ignored_files(repository: Repository, path: Path) -> str:
    """Return a hash of the ignored files of a tree; empty if it also has other untracked ones. Blocks."""
    listing = ("ls-files", "-z", "--others")
    if repository.run(*listing, "--exclude-standard", cwd=path).stdout:
        return ""
    digest = hashlib.sha256()
    for name in sorted(repository.run(*listing, cwd=path).fields(), key=os.fsencode):
        if name.endswith("/"):  # a repository, into which git does not look
            return ""
        found = os.lstat(path / name)
        numbers = (found.st_mode, found.st_ino, found.st_uid, found.st_gid, found.st_size, found.st_ctime_ns)
        digest.update(os.fsencode(f"{name}\0{numbers}\0"))
    return digest.hexdigest()


def inputs_differ(repository: Repository, inputs: Sequence[str], old: str, new: str) -> bool:
    """Whether a file that one of the globs names differs between two commits. Blocks."""
    if old == new:
        return False
    comparing = ("diff-tree", "-r", "--name-only", "--no-renames", old, new)
    return bool(repository.run(*comparing, "--", *(f":(glob){each}" for each in inputs)).stdout)
