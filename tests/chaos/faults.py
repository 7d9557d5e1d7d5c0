"""Faults of the machine, of the disk and of other people, each with its end.

A fault is a context: inside, something is broken; afterwards it is healed. What can be lost for a moment but
never for good is decided by the checker, as for kills.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.chaos.scenes import Scene
from tests.conftest import git

MB = 1 << 20
Act = Callable[[Scene], None]


@contextmanager
def own_disk(place: Path, *, options: str = "size=64m") -> Iterator[None]:
    """Have a folder on a small disk of its own, with what it held; the test is skipped without mounts."""
    place.mkdir(parents=True, exist_ok=True)
    kept = place.with_name(f"{place.name}.before")
    shutil.copytree(place, kept, symlinks=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        shutil.rmtree(kept)
        pytest.skip("no disk can be mounted here")
    try:
        shutil.copytree(kept, place, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(kept)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def no_space(place: Path) -> Iterator[None]:
    """Fill the disk of a folder to the last byte."""
    ballast = place / ".ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        size = MB
        while size:
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                size //= 2
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def no_inodes(place: Path) -> Iterator[None]:
    """Use up the files that the disk of a folder may have."""
    ballast = place / ".ballast"
    ballast.mkdir()
    with suppress(OSError):
        for number in range(100_000):
            (ballast / str(number)).touch()
    try:
        yield
    finally:
        shutil.rmtree(ballast)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Let a disk be read only; nobody may have a file of it open for writing."""
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)


@contextmanager
def held(*locks: Path) -> Iterator[None]:
    """Hold locks of git's, as another program does that is busy: what no process has open, nobody holds."""
    with ExitStack() as stack:
        for lock in locks:
            lock.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock.open("w"))
            stack.callback(lock.unlink, missing_ok=True)
        yield


def places(scene: Scene) -> dict[str, Path]:
    """Name the folders in which a disk may be full."""
    return {
        "journal": scene.repo / ".git" / "autopilot",
        "worktrees": scene.repo.with_name("repo.worktrees"),
        "objects": scene.repo / ".git" / "objects",
        "temporary files": scene.repo.with_name("temporary"),
    }


def flip_bits(path: Path, chance: random.Random, count: int = 3) -> None:
    """Change single bits of a file."""
    content = bytearray(path.read_bytes())
    for _ in range(count):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def tear(path: Path, chance: random.Random) -> None:
    """Leave only a first part of a file, as a disk does that lost power."""
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def commit_by_user(scene: Scene) -> None:
    """Commit something on the user's branch, which moves on."""
    (scene.repo / "more.txt").write_text("more\n")
    git(scene.repo, "add", "more.txt")
    git(scene.repo, "commit", "-q", "-m", "more", "--", "more.txt")


def tidy_by_user(scene: Scene) -> None:
    """Clean the repository as thoroughly as git can."""
    git(scene.repo, "worktree", "prune", "--expire=now")
    git(scene.repo, "pack-refs", "--all")
    git(scene.repo, "reflog", "expire", "--expire=now", "--all")
    git(scene.repo, "gc", "-q", "--prune=now")


def rebase_by_user(scene: Scene) -> None:
    """Rewrite the newest commit of the user's branch, so that the base of the stories is on no branch."""
    git(scene.repo, "commit", "-q", "--amend", "--no-edit", "-m", "another message", "--", "README.md")


def remove_worktrees(scene: Scene) -> None:
    """Delete the folders of all worktrees, as someone does who needs the space."""
    shutil.rmtree(scene.repo.with_name("repo.worktrees"), ignore_errors=True)


def swap(one: Path, two: Path) -> None:
    """Let two folders change their places."""
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


def delete_branches(scene: Scene) -> None:
    """Delete each branch of a story that git lets go."""
    names = git(scene.repo, "for-each-ref", "--format=%(refname:short)", "refs/heads/autopilot").split()
    for name in names:
        subprocess.run(["git", "branch", "-q", "-D", name], cwd=scene.repo, check=False, capture_output=True)
