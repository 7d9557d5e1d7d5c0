"""Which paths belong to the checkout that verify commands must not use, and where a text names them."""

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

_NAME = rb"[\w.@+~-]"
_REST = rb"((?:/" + _NAME + rb"+)*)"
_NOT_ITS_FILES = {"node_modules", ".git"}
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")


class Checkout:
    """The trees of a repository other than story worktrees: the main checkout, and where the run starts.

    `shared` are its folders that worktrees link to on purpose. What is in them, in an environment, in
    `node_modules` or in a repository of its own is no file that a story could change, so it does not count.
    """

    def __init__(self, trees: tuple[Path, ...], shared: tuple[Path, ...], spelled: str = "") -> None:
        self.trees = tuple(dict.fromkeys(_real(tree) for tree in trees))
        self._shared = tuple(_real(folder) for folder in shared)
        self._spelled = spelled

    @cached_property
    def _pattern(self) -> "re.Pattern[bytes]":
        names = {os.fsencode(tree) for tree in self.trees}
        # A user who works under a path with a symbolic link has that path in files and variables.
        if self._spelled and _real(Path(self._spelled)) in self.trees:
            names.add(os.fsencode(self._spelled.rstrip("/")))
        either = b"|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        # `/home/me/app.worktrees` does not name `/home/me/app`; a full stop after it does.
        return re.compile(rb"(?<!" + _NAME + rb")(?:" + either + rb")(?!" + _NAME + rb")" + _REST)

    def contains(self, path: Path) -> Path | None:
        """Return the real path if it belongs to the checkout, None if not."""
        if "\0" in str(path):  # no name of a file, though a file may hold it
            return None
        try:
            real = _real(path)
            tree = next((each for each in self.trees if real.is_relative_to(each)), None)
            return real if tree is not None and self._counts(real, tree) else None
        except OSError:  # such as a name that is too long for a file
            return None

    def named_in(self, text: bytes) -> Path | None:
        """Return the first path of the checkout that a text names."""
        return next(self._named(text), None)

    def _named(self, text: bytes) -> Iterator[Path]:
        for match in self._pattern.finditer(text):
            if found := self.contains(Path(os.fsdecode(match[0]))):
                yield found

    def _counts(self, real: Path, tree: Path) -> bool:
        if any(real.is_relative_to(folder) for folder in self._shared):
            return False
        if _NOT_ITS_FILES.intersection(real.relative_to(tree).parts):
            return False
        folder = real
        while folder != tree:
            if (folder / ".git").is_dir() or is_environment(folder):
                return False
            folder = folder.parent
        return True


def is_environment(folder: Path) -> bool:
    """Whether a folder is a Python environment: one of `venv`, uv, virtualenv or conda."""
    return any((folder / mark).exists() for mark in _ENVIRONMENT_MARKS)


def head_of(path: Path, most: int = 1 << 20) -> bytes:
    """Read the beginning of a file; empty if it cannot be read or is no regular file."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as reader:
            return reader.read(most)
    except OSError:
        return b""


def entries_of(folder: Path, most: int = 20_000) -> list["os.DirEntry[str]"]:
    """List a folder, in the order of names; empty if it cannot be read."""
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append(entry)
                if len(found) == most:
                    break
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
