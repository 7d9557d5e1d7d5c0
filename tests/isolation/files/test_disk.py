"""Waits for the disk: shared by those that come while another one is under way, and by no others."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolation.files import disk
from isolation.files.disk import sync_disk, write_new

LIMIT = 20.0
CALLERS = 5


class Disk:
    """A disk whose waits end one by one, when the test says so."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.flushed = 0
        self.broken = False

    def flush(self, _folder: int, path: Path) -> None:
        """Wait until the test lets it end."""
        self.began.release()
        assert self.may_end.acquire(timeout=LIMIT)
        self.flushed += 1
        if self.broken:
            raise OSError(errno.EIO, "Input/output error", str(path))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Disk:
    slow = Disk()
    monkeypatch.setattr(disk, "_flush", slow.flush)
    return slow


@contextmanager
def callers(path: Path, count: int) -> Iterator[list[OSError | None]]:
    """Have threads wait for the disk; yield what came of it, which is whole at the end of the block."""
    found: list[OSError | None] = []
    asked = threading.Semaphore(0)

    def call() -> None:
        asked.release()
        try:
            sync_disk(path)
        except OSError as error:
            found.append(error)
        else:
            found.append(None)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert asked.acquire(timeout=LIMIT)
    try:
        yield found
    finally:
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive()


def all_wait(path: Path, count: int) -> None:
    """Wait until so many threads wait for another one's turn to end."""
    syncs = disk._syncs[path.stat().st_dev]
    while True:
        with syncs.changed:
            if len(syncs.changed._waiters) == count:  # type: ignore[attr-defined]  # nothing announces it
                return


def test_those_that_come_meanwhile_share_the_next_wait(tmp_path: Path, slow: Disk) -> None:
    """The one that is under way may have begun before they wrote something, so it does not count for them."""
    with callers(tmp_path, 1):
        assert slow.began.acquire(timeout=LIMIT)
        with callers(tmp_path, CALLERS) as later:
            all_wait(tmp_path, CALLERS)
            slow.may_end.release()
            assert slow.began.acquire(timeout=LIMIT)
            assert later == []  # the first wait has ended, and none of them is content with it
            slow.may_end.release()
        assert later == [None] * CALLERS
    assert slow.flushed == 2
    slow.may_end.release()
    sync_disk(tmp_path)
    assert slow.flushed == 3


def test_all_that_share_a_wait_learn_of_its_failure(tmp_path: Path, slow: Disk) -> None:
    """Nobody takes for durable what the disk could not write; the next wait is a new one."""
    with callers(tmp_path, 1) as first:
        assert slow.began.acquire(timeout=LIMIT)
        with callers(tmp_path, CALLERS) as later:
            all_wait(tmp_path, CALLERS)
            slow.may_end.release()
            assert slow.began.acquire(timeout=LIMIT)
            slow.broken = True
            slow.may_end.release()
    assert first == [None]
    assert [error and error.errno for error in later] == [errno.EIO] * CALLERS
    slow.broken = False
    slow.may_end.release()
    sync_disk(tmp_path)


def test_a_folder_that_is_gone_has_nothing_to_wait_for(tmp_path: Path, slow: Disk) -> None:
    """There is no disk to ask."""
    sync_disk(tmp_path / "gone")
    assert slow.flushed == 0


def test_a_file_that_is_new_is_written_and_one_that_is_there_replaced(tmp_path: Path) -> None:
    """Whoever has the old one open keeps it whole; a failed write leaves none behind."""
    file = tmp_path / "new" / "list"
    file.parent.mkdir()
    write_new(file, b"one\n")
    with file.open("rb") as old:
        write_new(file, b"another\n")
        assert (old.read(), file.read_bytes()) == (b"one\n", b"another\n")
    assert [each.name for each in file.parent.iterdir()] == ["list"]


def test_a_new_file_that_cannot_be_written_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk an empty file would count as one that says nothing."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            write_new(tmp_path / "list", b"one\n")
    assert not (tmp_path / "list").exists()
