"""Commits that travel between clones while a run is active: bundles of what the other side lacks.

A bundle holds references, so each commit that travels has one, below `refs/autopilot/travel/`, which also
keeps it from being pruned. Nothing here moves a branch except by compare-and-swap.
"""

import secrets
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from isolation.errors import RepositoryError
from isolation.git.contained.object_store import take_over_left
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository

TRAVEL = "refs/autopilot/travel"
FENCED = "refs/autopilot/fenced"
_MOST = 200
"""How many commits a clone names when it is asked what it has."""
_ATTEMPTS, _PAUSE = 5, 0.2
_QUIET = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
_CHECKS = ("-c", "fetch.fsckObjects=true", "-c", "protocol.file.allow=always")
_PASSING = ("-c", "core.fsync=none")
"""For files that are read and removed at once: nothing is lost with them."""
_ONE_FLUSH = ("-c", "core.fsyncMethod=batch")
"""All objects of a command reach the disk with one flush of it; a git before 2.37 makes one for each."""


def commits_here(repository: Repository) -> tuple[str, ...]:
    """Return the newest commits that came here, and those of branches."""
    args = ("for-each-ref", f"--count={_MOST}", "--sort=-creatordate", "--format=%(objectname)")
    found = repository.run(*args, TRAVEL, "refs/heads").stdout.split()
    return tuple(dict.fromkeys(found))


def known(repository: Repository, commits: Collection[str]) -> tuple[str, ...]:
    """Return those of the commits that this clone has."""
    if not commits:
        return ()
    asked = "".join(f"{commit}\n" for commit in commits).encode()
    output = repository.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked).stdout
    lines = (line.split() for line in output.splitlines())
    return tuple(line[0] for line in lines if line[1:] == ["commit"])


def write_travel_bundle(
    repository: Repository, path: Path, commits: Sequence[str], *, without: Collection[str]
) -> bool:
    """Write what the commits have beyond `without`; false if that is nothing."""
    refs = [f"{TRAVEL}/{commit}" for commit in commits]
    updates = "".join(f"update {ref} {commit}\n" for ref, commit in zip(refs, commits, strict=True))
    repository.run("update-ref", "--stdin", stdin=updates.encode())
    args = ("bundle", "create", "--quiet", str(path), *refs, *(f"^{commit}" for commit in without))
    output = repository.run(*args, check=False)
    if output.returncode == 0:
        return True
    if "empty bundle" in output.stderr:
        return False
    raise RepositoryError(f"git cannot bundle commits: {output.stderr.strip()}", hint="see `git fsck`")


def take_travel_bundle(repository: Repository, path: Path) -> None:
    """Take the commits of a bundle over, checked by git.

    Git looks at the HEAD of every worktree for that; a session may just have committed to its own store.
    """
    fetch = (*_CHECKS, "fetch", *_QUIET, str(path), f"+{TRAVEL}/*:{TRAVEL}/*")
    for _ in range(_ATTEMPTS - 1):
        if repository.run(*fetch, check=False).returncode == 0:
            return
        with suppress(OSError):
            take_over_left(repository.common_dir)
        time.sleep(_PAUSE)
    repository.run(*fetch)


def packed(
    repository: Repository, folder: Path, commits: Sequence[str], *, without: Collection[str], most: int
) -> bytes:
    """Return what commits have beyond `without` as a pack; nothing if that is more than `most` bytes.

    A bundle of a few objects would take several processes on either side, and a reference.
    """
    revisions = "".join((*(f"{each}\n" for each in commits), *(f"^{each}\n" for each in without)))
    stem = folder / secrets.token_hex(8)
    folder.mkdir(parents=True, exist_ok=True)
    args = (*_PASSING, "pack-objects", "--revs", "--quiet", "--delta-base-offset", str(stem))
    try:
        name = repository.run(*args, stdin=revisions.encode()).stdout.strip()
        path = folder / f"{stem.name}-{name}.pack"
        return path.read_bytes() if path.stat().st_size <= most else b""
    finally:
        for made in folder.glob(f"{stem.name}-*"):
            made.unlink()


def unpack(repository: Repository, pack: bytes) -> None:
    """Take the objects of a small pack over, checked by git: all that they name must be there."""
    repository.run(*_ONE_FLUSH, "unpack-objects", "-q", "--strict", stdin=pack)


def forget_travel(repository: Repository) -> None:
    """Remove the references of commits that travelled; branches keep what matters."""
    listed = repository.run("for-each-ref", "--format=delete %(refname)", TRAVEL).stdout
    if listed:
        repository.run("update-ref", "--stdin", stdin=listed.encode())


def set_branch(repository: Repository, branch: str, commit: str) -> None:
    """Have a branch of this clone, which no worktree has checked out, point at a commit."""
    if repository.branch_tip(branch) != commit:
        message = ("-m", "autopilot-multi: from another machine")
        repository.run("update-ref", *message, f"refs/heads/{branch}", commit)


def move_branch(repository: Repository, branch: str, commit: str) -> None:
    """Move a branch to a commit that came from a worker; what the branch leaves behind is kept."""
    with metadata_lock(repository.common_dir):
        here = repository.branch_tip(branch)
        if here == commit:
            return
        if here is not None and not repository.is_ancestor(here, commit):
            repository.run("update-ref", f"refs/autopilot/replaced/{branch}/{here[:12]}", here)
        message = ("-m", "autopilot-multi: from a worker")
        repository.run("update-ref", *message, f"refs/heads/{branch}", commit, here or "0" * len(commit))


def keep_fenced(repository: Repository, name: str, commit: str) -> str:
    """Keep commits aside that came too late; return the name of their reference."""
    ref = f"{FENCED}/{name}"
    repository.run("update-ref", ref, commit)
    return ref


def check_out_base(repository: Repository, commit: str) -> None:
    """Have the checkout of a worker's clone show a commit; no story works in it."""
    if repository.head() != commit:
        repository.run("checkout", "--quiet", "--force", "--detach", commit)
