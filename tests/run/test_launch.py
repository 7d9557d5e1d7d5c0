"""This program started as a process of its own: the same program, its output in a file, old files bounded."""

import os
from pathlib import Path

from isolation.paths import find_repository, launched_dir
from runner.run.control.launch import KEPT_LOGS, launch
from tests.acceptance.program import run, wait_until


def test_a_launched_program_is_the_same_one_and_writes_to_its_log(repo: Path) -> None:
    """It starts in the folder that is named, has a session of its own, and leaves no zombie."""
    launched = launch(repo, ["history", "--json"])
    assert os.getsid(launched.pid) == launched.pid != os.getsid(0)
    wait_until(lambda: not launched.alive, what="it ends")
    assert launched.last_lines() == run(repo, "history", "--json").out.strip()
    assert launched.log.stat().st_mode & 0o777 == 0o600


def test_only_the_newest_logs_are_kept(repo: Path) -> None:
    """The folder of logs does not grow with every launch."""
    folder = launched_dir(find_repository(repo).common_dir)
    folder.mkdir(parents=True)
    for number in range(KEPT_LOGS + 5):
        (folder / f"2020010{number // 10}T00000{number % 10}-1-run.log").touch()
    newest = launch(repo, ["--version"])
    kept = sorted(path.name for path in folder.iterdir())
    assert len(kept) == KEPT_LOGS
    assert kept[-1] == newest.log.name
    wait_until(lambda: not newest.alive, what="it ends")
