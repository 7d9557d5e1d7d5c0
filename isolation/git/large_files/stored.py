"""Files that git-lfs stores beside git: a commit holds a pointer, so a bundle of commits lacks the content.

A file is named by the SHA-256 of its content. That is checked whenever one is taken over, so a file from
another machine can be nothing but what the commit names.
"""

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from isolation.errors import RepositoryError
from isolation.git.contained.large_store import LARGE_FILES, keep_copy, place_of
from isolation.git.repository import Repository
from isolation.patterns import pattern

_POINTER = pattern(r"version https://git-lfs\.github\.com/spec/v1\n(?:.+\n)*?oid sha256:([0-9a-f]{64})\n")
_LONGEST_POINTER = 1024  # in bytes; git-lfs takes nothing longer for a pointer
_USES = pattern(r"^[^#\s].*\sfilter=lfs\b", re.MULTILINE)
_MOST_ATTRIBUTES = 1 << 20


def stored_files(repository: Repository, base: str, tips: Sequence[str]) -> dict[str, Path]:
    """Return the stored files that the commits after `base` name, as far as this clone has them."""
    store = _store(repository)
    if not store.is_dir() or not tips:
        return {}
    small = f"--filter=blob:limit={_LONGEST_POINTER + 1}"
    listed = repository.run("rev-list", "--objects", "--no-object-names", small, *tips, f"^{base}").stdout
    content = repository.run("cat-file", "--batch", "--buffer", stdin=listed.encode()).stdout
    places = {name: place_of(store, name) for name in _POINTER.findall(content)}
    return {name: place for name, place in places.items() if place.is_file()}


def take_stored(repository: Repository, files: Iterable[Path]) -> None:
    """Store copies of files, each under the digest of its content that is its name; existing ones stay."""
    store = _store(repository)
    for source in files:
        place = place_of(store, source.name)
        if place.is_file():
            continue
        if not keep_copy(source, place):
            raise RepositoryError(f"{source} is not the file that a commit names", hint="run its job again")


def unprepared(repository: Repository) -> str:
    """Return why files meant for git-lfs would be committed whole, or stay pointers; empty if they would not.

    Without the filter, git takes the attribute for a name that means nothing, and says nothing.
    """
    attributes = repository.top / ".gitattributes"
    try:
        with attributes.open("rb") as file:
            text = file.read(_MOST_ATTRIBUTES).decode(errors="replace")
    except OSError:
        return ""
    if not _USES.search(text):
        return ""
    if shutil.which("git-lfs") is None:
        return "git-lfs is not installed"
    filtered = repository.run("config", "--get-regexp", r"^filter\.lfs\.(clean|process)$", check=False)
    return "" if filtered.stdout.strip() else "git's filter for it is not set up"


def _store(repository: Repository) -> Path:
    """Return the folder of the stored files; the user may have moved it."""
    moved = repository.run("config", "--type=path", "--get", "lfs.storage", check=False).stdout.strip()
    return repository.common_dir / (moved or LARGE_FILES) / "objects"
