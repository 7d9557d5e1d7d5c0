"""Refs read without a process, where that gives what git would give; whatever is unusual is left to git.

A ref is a file of its own or a line in `packed-refs`; a reftable can only be read by git. Sessions may write
to some of these files, so nothing else than a plain file with one id in it is believed, and the id counts
only if the repository has that commit.
"""

import os
import sys
import zlib
from pathlib import Path

from isolation.files.lookups import is_folder, is_there
from isolation.files.plain import read_plain
from isolation.paths import RepositoryPaths, current_branch, own_git_dir
from isolation.patterns import pattern

COMMIT_ID = pattern(r"[0-9a-f]{40}|[0-9a-f]{64}")
NO_REF = ""
_LONGEST = 200
_HEADER = b"commit "
_BRANCH = "ref: refs/heads/"


def read_ref(common: Path, ref: str) -> str | None:
    """Return the id that a ref of all checkouts holds, `NO_REF` if there is none; None if only git can tell.

    Whether the repository has what the id names is not known with it, see `has_commit`.
    """
    file = f"{common}/{ref}"
    if is_there(f"{common}/reftable") or ".." in ref or "\0" in ref:
        return None
    try:
        text = read_plain(file, _LONGEST, follow=False)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return _packed(common, ref)
    except OSError:
        # A folder has the refs below this name; anything else there is for git to judge.
        return _packed(common, ref) if is_folder(file) else None
    found = text.decode(errors="replace").removesuffix("\n")
    return found if COMMIT_ID.fullmatch(found) else None


def read_head(common: Path, checkout: Path) -> str | None:
    """Return the id that a checkout of the user is at; None if only git can tell."""
    git_dir = own_git_dir(checkout)
    try:
        text = read_plain(f"{git_dir}/HEAD", _LONGEST, follow=False).decode() if git_dir else ""
    except (OSError, ValueError):
        return None
    head = text.removesuffix("\n")
    if head.startswith(_BRANCH):
        return read_ref(common, head.removeprefix("ref: ")) or None
    return head if COMMIT_ID.fullmatch(head) else None


def has_commit(common: Path, commit: str) -> bool:
    """Return whether a commit is there as a file of its own; False if it is not, or in a pack."""
    try:
        start = read_plain(f"{common}/objects/{commit[:2]}/{commit[2:]}", _LONGEST, follow=False)
        return zlib.decompressobj().decompress(start, len(_HEADER)) == _HEADER
    except (OSError, zlib.error):
        return False


def has_refs_below(common: Path, ref: str) -> bool:
    """Return whether there may be refs below a name, as in a folder; False is certain."""
    if is_there(f"{common}/reftable") or os.path.lexists(f"{common}/{ref}"):
        return True
    packed = _read_packed(common)
    return packed is None or os.fsencode(f" {ref}/") in packed


def _packed(common: Path, ref: str) -> str | None:
    packed = _read_packed(common)
    if packed is None:
        return None
    before, found, _ = packed.partition(os.fsencode(f" {ref}\n"))
    if not found:
        return NO_REF
    text = before.rpartition(b"\n")[2].decode(errors="replace")
    return text if COMMIT_ID.fullmatch(text) else None


def _read_packed(common: Path) -> bytes | None:
    """Return the refs that git has put into one file; None if it cannot be read."""
    try:
        return read_plain(f"{common}/packed-refs", sys.maxsize)
    except FileNotFoundError:
        return b""
    except OSError:
        return None


def head_without_git(paths: RepositoryPaths) -> str:
    """Return the commit of the main checkout, read without a process; empty if that takes git."""
    checkout = paths.main_checkout or paths.top
    git_dir = own_git_dir(checkout) if checkout != paths.common_dir else paths.common_dir
    branch = current_branch(checkout)
    try:
        if not branch:
            head = (git_dir / "HEAD").read_text().strip() if git_dir else ""
            return head if COMMIT_ID.fullmatch(head) else ""
        loose = paths.common_dir / "refs" / "heads" / branch
        if loose.is_file():
            return loose.read_text().strip()
        ending = f" refs/heads/{branch}"
        lines = (paths.common_dir / "packed-refs").read_text(errors="surrogateescape").splitlines()
        return next((line.partition(" ")[0] for line in lines if line.endswith(ending)), "")
    except (OSError, ValueError):  # also what is not text, and a name that no file can have
        return ""
