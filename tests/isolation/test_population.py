"""Worktrees whose creation was killed half-way, and what a rerun makes of them."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from isolation import population
from isolation.checkout import look
from isolation.errors import WorkspaceError
from isolation.registrations import load_registrations
from isolation.repository import Repository
from tests.conftest import git
from tests.isolation.worktrees import OPENER, branches, git_dir_of, make, wanted


@pytest.fixture
def repository(repo: Path) -> Repository:
    return Repository.open(repo)


def slow_smudge(top: Path, fifo: Path) -> None:
    """Let the checkout of `b.slow` block until it is killed, telling when it has come to it."""
    os.mkfifo(fifo)
    git(top, "config", "filter.slow.smudge", f"echo begun > {fifo}; sleep 1000")
    git(top, "config", "filter.slow.required", "true")


def kill_at(fifo: Path, args: list[str]) -> None:
    """Start a coordinator, and kill it with all its children once somebody writes to the fifo."""
    with subprocess.Popen(args, stdin=subprocess.PIPE, start_new_session=True) as opener:
        assert opener.stdin is not None
        opener.stdin.write(b"\n")
        opener.stdin.flush()
        fifo.read_text()
        os.killpg(opener.pid, signal.SIGKILL)


async def test_a_creation_killed_while_filling_is_completed(
    make_repository: Callable[..., Path], tmp_path: Path
) -> None:
    """Reliability 14: SIGKILL of coordinator and git in the middle; then all files, one branch, no lock."""
    files = {".gitattributes": "*.slow filter=slow\n", "a.txt": "long content\n", "b.slow": "b", "c.txt": "c"}
    repository = Repository.open(make_repository(files=files))
    fifo = tmp_path / "fifo"
    slow_smudge(repository.top, fifo)
    await trio.to_thread.run_sync(kill_at, fifo, [sys.executable, "-c", OPENER, str(repository.top), "one"])
    path = wanted(repository).path
    assert (git_dir_of(path) / "index.lock").exists()
    assert not (git_dir_of(path) / "index").exists()
    (path / "a.txt").write_text("long")  # as a write that was cut short
    git(repository.top, "config", "--remove-section", "filter.slow")
    workspace = await make(repository, run="run-2")
    assert look(repository, path).dirty == ()
    assert (path / "b.slow").read_text() == "b"
    assert workspace.reattached
    assert branches(repository.top) == {"main", "autopilot/one"}
    assert len(load_registrations(repository)) == 2


async def test_completing_a_torn_tree_overwrites_nobodys_work(make_repository: Callable[..., Path]) -> None:
    """Reliability 14: missing files come back, a changed one stays changed."""
    repository = Repository.open(make_repository(files={"a": "a\n", "b": "b\n"}))
    first = await make(repository)
    (git_dir_of(first.path) / "index").unlink()
    (first.path / "a").write_text("somebody's work\n")
    (first.path / "b").unlink()
    await make(repository, run="run-2", torn=True)
    assert (first.path / "a").read_text() == "somebody's work\n"
    assert (first.path / "b").read_text() == "b\n"
    assert look(repository, first.path).dirty == ("a",)


@pytest.mark.parametrize("stage", ["pointer only", "no head", "nothing but a folder"])
async def test_a_registration_killed_half_way_is_made_anew(repository: Repository, stage: str) -> None:
    """Reliability 14: whatever `git worktree add` had written when it was killed, a rerun succeeds."""
    request = wanted(repository)
    git(
        repository.top,
        "worktree",
        "add",
        "-q",
        "--no-checkout",
        "--lock",
        "-b",
        request.branch,
        str(request.path),
    )
    git_dir = git_dir_of(request.path)
    if stage == "no head":
        (git_dir / "HEAD").write_text("0" * 40 + "\n")
    elif stage == "pointer only":
        (git_dir / "gitdir").unlink()
    else:
        shutil.rmtree(git_dir)
        (request.path / ".git").unlink()
    await make(repository, torn=True)
    assert (request.path / "README.md").exists()
    assert look(repository, request.path).branch == request.branch


async def test_an_index_lock_of_a_living_git_is_respected(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a process lives in a torn tree its lock stays, and the wait is bounded."""
    monkeypatch.setattr(population, "_ORPHAN_PATIENCE", 0.2)
    first = await make(repository)
    git_dir = git_dir_of(first.path)
    (git_dir / "index").unlink()
    (git_dir / "index.lock").write_text("")
    async with trio.open_nursery() as nursery:
        cat = partial(trio.run_process, ["cat"], stdin=subprocess.PIPE, cwd=first.path)
        process = await nursery.start(cat)
        with pytest.raises(WorkspaceError, match="at work"):
            await make(repository, run="run-2")
        assert (git_dir / "index.lock").exists()
        await process.stdin.aclose()
