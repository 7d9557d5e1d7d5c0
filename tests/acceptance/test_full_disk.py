"""Git's objects on a full disk that is healed later: by the real program."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git

SMALL, LARGE = 300, 20_000  # KiB


@contextmanager
def _small_disk(objects: Path) -> Iterator[None]:
    """Have the objects on a small disk of their own."""
    kept = objects.with_name("kept")
    shutil.copytree(objects, kept)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}k", "tmpfs", str(objects)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no disk can be mounted here")
    try:
        shutil.copytree(kept, objects, dirs_exist_ok=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(objects)], check=True)


def test_stories_that_a_full_disk_stopped_are_resumed(repo: Path, tmp_path: Path) -> None:
    """The work is kept, no session runs again, and those that depend on it follow."""
    ledger, objects = tmp_path / "ledger", repo / ".git" / "objects"
    for name in "abcd":
        work = f"echo {name} >> {ledger}; head -c 200000 /dev/urandom > {name}.bin"
        write_story(repo, name, command=work, verify=[f"test -s {name}.bin"])
    write_story(repo, "e", command=f"echo e >> {ledger}; test -s d.bin && touch e", depends_on=["d"])
    commit_stories(repo)
    with _small_disk(objects):
        ran = run(repo, "--json")
        assert ran.code == 2
        stopped = [story for story in ran.data["stories"] if story["status"] == "stopped"]
        assert len(stopped) >= 3
        assert "No space left on device; free disk space, then resume the run" in stopped[0]["reason"]
        assert stopped[0]["next"] == f"autopilot-multi resume {ran.data['run_id']}"
        assert run(repo, "resume", "--json").code == 2, "still full"
        subprocess.run(["mount", "-o", f"remount,size={LARGE}k", str(objects)], check=True)
        resumed = run(repo, "resume", "--json")
        assert resumed.code == 0, resumed.out
        assert {story["status"] for story in resumed.data["stories"]} == {"done"}
        assert sorted(ledger.read_text().split()) == list("abcde")
        git(repo, "fsck", "--full", "--strict")
