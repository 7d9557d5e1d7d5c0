"""A file that a process could write to through its memory is found, though no descriptor is open."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from isolation.worktree.pool import mappings
from isolation.worktree.pool.mappings import mapped_files

QUERIED = pytest.param(True, marks=pytest.mark.skipif(not mappings._can_query(), reason="needs Linux 6.11"))


@pytest.mark.parametrize("queried", [False, QUERIED])
def test_only_what_can_be_written_to_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, queried: bool
) -> None:
    """Several shared mappings are; one of its own, or for reading alone, is none."""
    monkeypatch.setattr(mappings, "_can_query", lambda: queried)
    kept = []
    for name, flags, protection in (
        ("one", mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
        ("other", mmap.MAP_SHARED, mmap.PROT_WRITE),
        ("own", mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE),
        ("read", mmap.MAP_SHARED, mmap.PROT_READ),
    ):
        (tmp_path / name).write_bytes(b"x" * mmap.PAGESIZE)
        with (tmp_path / name).open("r+b") as file:
            kept.append(mmap.mmap(file.fileno(), mmap.PAGESIZE, flags=flags, prot=protection))
    found = mapped_files(str(os.getpid()))
    here = {name for name in ("one", "other", "own", "read") if _identity(tmp_path / name) in found}
    assert here == {"one", "other"}
    for each in kept:
        each.close()


@pytest.mark.skipif(not mappings._can_query(), reason="needs Linux 6.11")
def test_both_ways_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """For this process, and for another one that shares memory without a file."""
    code = "import mmap, sys; m = mmap.mmap(-1, 4096); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()
        for process in (str(os.getpid()), str(other.pid)):
            asked = set(mapped_files(process))
            with monkeypatch.context() as patched:
                patched.setattr(mappings, "_can_query", lambda: False)
                assert asked == set(mapped_files(process))
        assert asked
        other.communicate()


def test_a_process_that_is_gone_is_an_error() -> None:
    """As when its mappings are read as text."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    with pytest.raises(OSError, match=r"No such"):
        mapped_files(str(gone.pid))


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
