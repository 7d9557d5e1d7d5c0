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
def _small_disk(git_dir: Path, disk: Path) -> Iterator[None]:
    """Have the objects, and those that stories make, on a small disk of their own."""
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no disk can be mounted here")
    places = [git_dir / "objects", git_dir / "autopilot" / "objects"]
    mounted = [disk]
    try:
        for number, place in enumerate(places):
            place.mkdir(parents=True, exist_ok=True)
            shutil.copytree(place, disk / str(number))
            subprocess.run(["mount", "--bind", str(disk / str(number)), str(place)], check=True)
            mounted.append(place)
        yield
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_stories_that_a_full_disk_stopped_are_resumed(repo: Path, tmp_path: Path) -> None:
    """The work is kept, no session runs again, and those that depend on it follow."""
    ledger, disk = tmp_path / "ledger", tmp_path / "disk"
    for name in "abcd":
        work = f"echo {name} >> {ledger}; head -c 200000 /dev/urandom > {name}.bin"
        write_story(repo, name, command=work, verify=[f"test -s {name}.bin"])
    write_story(repo, "e", command=f"echo e >> {ledger}; test -s d.bin && touch e", depends_on=["d"])
    commit_stories(repo)
    with _small_disk(repo / ".git", disk):
        ran = run(repo, "--json")
        assert ran.code == 2
        stopped = [story for story in ran.data["stories"] if story["status"] == "stopped"]
        assert len(stopped) >= 3
        assert "No space left on device; free disk space, then resume the run" in stopped[0]["reason"]
        assert stopped[0]["next"] == f"autopilot-multi resume {ran.data['run_id']}"
        assert run(repo, "resume", "--json").code == 2, "still full"
        subprocess.run(["mount", "-o", f"remount,size={LARGE}k", str(disk)], check=True)
        resumed = run(repo, "resume", "--json")
        assert resumed.code == 0, resumed.out
        assert {story["status"] for story in resumed.data["stories"]} == {"done"}
        assert sorted(ledger.read_text().split()) == list("abcde")
        git(repo, "fsck", "--full", "--strict")
