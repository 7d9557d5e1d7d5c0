"""Git commands on a story's tree, with a real process that works against them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.errors import GitCommandError, WorkspaceError
from isolation.git.repository import Repository
from isolation.keeper import confined
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount

TRIES = 40

# Exchanges a folder and a link to the main checkout's folder, again and again, until it is told to end.
SWAPPER = """
import ctypes, os, sys
rename = ctypes.CDLL(None).renameat2
rename.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
one, other = map(os.fsencode, sys.argv[1:3])
print("swapping", flush=True)
while True:
    rename(-100, one, -100, other, 2)
"""


guarded = pytest.mark.skipif(not can_mount(), reason="this machine cannot mount, and Landlock not in /tmp")


@guarded
def test_a_folder_that_is_swapped_for_a_link_does_not_lead_a_checkout_out_of_the_tree(
    make_repository: Callable[..., Path],
) -> None:
    """Git looks at a folder and then writes to it; in between it may have become a link to elsewhere."""
    names = [f"{number:02}" for number in range(20)]
    top = make_repository(files={f"aa/{name}": "mine\n" for name in names})
    tree = top.parent / f"{top.name}.worktrees" / "a"
    git(top, "worktree", "add", "-q", "-b", "autopilot/a", str(tree))
    for name in names:
        (tree / "aa" / name).write_text("evil\n")
    git(tree, "commit", "-qam", "evil")
    (tree / "link").symlink_to(top / "aa")
    repository = Repository.open(top)
    command = [sys.executable, "-c", SWAPPER, str(tree / "aa"), str(tree / "link")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout is not None
            swapper.stdout.readline()
            for number in range(TRIES):
                commit = "autopilot/a" if number % 2 else "autopilot/a~1"
                repository.run("checkout", "--force", "--quiet", "--detach", commit, cwd=tree, check=False)
        finally:
            swapper.kill()
    assert {path.name: path.read_text() for path in (top / "aa").iterdir()} == dict.fromkeys(names, "mine\n")


@guarded
def test_a_command_that_a_session_made_wait_for_ever_is_ended(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git opens `.gitignore` whatever it is, and a FIFO has no other end; at the top it is not even tried."""
    tree = repo.parent / f"{repo.name}.worktrees" / "a"
    git(repo, "worktree", "add", "-q", "-b", "autopilot/a", str(tree))
    repository = Repository.open(repo)
    assert repository.run("status", "--porcelain", cwd=tree).stdout == ""
    os.mkfifo(tree / ".gitignore")
    with pytest.raises(WorkspaceError, match="is not a file, so git would wait for it"):
        repository.run("status", "--porcelain", cwd=tree)
    (tree / "inner").mkdir()
    (tree / ".gitignore").rename(tree / "inner" / ".gitignore")
    (tree / "inner" / "file").touch()
    monkeypatch.setattr(confined, "_LOOK_SECONDS", 0.3)
    with pytest.raises(GitCommandError, match=r"waits for .*inner/\.gitignore, which is not a file"):
        repository.run("status", "--porcelain", cwd=tree)
    # The runner still waits for the command; an end of the FIFO lets it go.
    os.close(os.open(tree / "inner" / ".gitignore", os.O_WRONLY))


@guarded
def test_nothing_of_a_command_is_left(repo: Path, tmp_path: Path) -> None:
    """What a filter leaves running is killed before the command counts as ended."""
    tree = repo.parent / f"{repo.name}.worktrees" / "a"
    git(repo, "worktree", "add", "-q", "-b", "autopilot/a", str(tree))
    pid = tmp_path / "pid"
    git(repo, "config", "filter.daemon.clean", f"(setsid sleep 600 > /dev/null 2>&1 & echo $! > {pid}); cat")
    (tree / ".gitattributes").write_text("* filter=daemon\n")
    Repository.open(repo).run("add", "--all", cwd=tree)
    assert not Path("/proc", pid.read_text().strip()).exists()
