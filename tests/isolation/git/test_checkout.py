"""What was read of git's list of worktrees is kept only as long as the file is certainly the same."""

import os
import time
from pathlib import Path

import pytest

from isolation.git import checkout
from isolation.git.checkout import line_of
from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository
from tests.conftest import git


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file be old enough to be remembered."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 10**9)


@pytest.mark.usefixtures("old")
def test_a_file_that_has_not_changed_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All worktrees are asked about before each session."""
    file = tmp_path / "HEAD"
    file.write_text("ref: refs/heads/one\n")
    assert line_of(f"{file}") == "ref: refs/heads/one"
    monkeypatch.setattr(checkout, "read_plain", None)
    assert line_of(f"{file}") == "ref: refs/heads/one"
    file.unlink()
    assert line_of(f"{file}") is None


@pytest.mark.usefixtures("old")
def test_a_file_that_was_replaced_is_read_again(repo: Path) -> None:
    """A worktree that is on another branch is seen at once, though the name is as long."""
    git(repo, "worktree", "add", "-q", "-b", "one", f"{repo}-more")
    repository = Repository.open(repo)
    assert load_registrations(repository)[1].branch == "one"
    git(Path(f"{repo}-more"), "switch", "-q", "-c", "two")
    assert load_registrations(repository)[1].branch == "two"
    git(repo, "worktree", "lock", "--reason", "mine", f"{repo}-more")
    assert load_registrations(repository)[1].lock_reason == "mine"


def test_a_young_file_is_not_remembered(tmp_path: Path) -> None:
    """What is written at the same moment, by the clock of the file system, looks the same."""
    file = tmp_path / "gitdir"
    file.write_text("0000\n")
    for number in range(500):
        before = file.stat()
        text = f"{number:04}"
        with file.open("r+") as opened:
            opened.write(text)
        os.utime(file, ns=(before.st_mtime_ns, before.st_mtime_ns))
        assert line_of(f"{file}") == text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_list_that_cannot_be_read_is_an_error(repo: Path) -> None:
    """It does not count as one without worktrees: a branch could be in use in one."""
    git(repo, "worktree", "add", "-q", "-b", "one", f"{repo}-more")
    repository, listed = Repository.open(repo), repo / ".git" / "worktrees"
    listed.chmod(0o300)
    try:
        with pytest.raises(PermissionError):
            load_registrations(repository)
    finally:
        listed.chmod(0o700)
