"""Landings that are killed at random moments: the target is at a tested tree, and the next one continues."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from isolation.paths import journal_path, worktree_root
from isolation.worktree.removal import has_trash
from tests.acceptance.landing_processes import marked, marked_processes
from tests.acceptance.program import commit_stories, run, started, wait_until, write_story, writes
from tests.conftest import git

KILLS = 20
MANY_KILLS = int(os.environ.get("CHAOS_LANDINGS", "500"))
RED = "z-red"


def verified_trees(repo: Path) -> set[str]:
    """Return the trees that the journal says were verified."""
    with closing(sqlite3.connect(journal_path(repo / ".git"))) as journal:
        query = "SELECT json_extract(data, '$.tree') FROM events WHERE kind = 'LandingVerified'"
        return {row[0] for row in journal.execute(query)}


def backlog(repo: Path, count: int) -> list[str]:
    """Run stories that each make two files, and one that is red with any other; the user changes a file."""
    names = [f"s{number:03}" for number in range(count)]
    # Other sessions on the machine would stop stories.
    settings = ["max-stories = 8", "peer-abort = 1000", 'window = "fixed"', 'verify = ["test -e README.md"]']
    (repo / "autopilot-multi.toml").write_text("\n".join(settings))
    (repo / "mine.txt").write_text("committed\n")
    for name in (*names, RED):
        write_story(repo, name, command=f"{writes(name + '.txt')}; {writes(name + '.md', 'more')}")
    commit_stories(repo)
    assert run(repo, "--json", limit=600).code == 0
    settings += [f'land-verify = ["sleep 0.1; test ! -e {RED}.txt || test ! -e {names[0]}.txt"]']
    (repo / "autopilot-multi.toml").write_text("\n".join(settings))
    git(repo, "commit", "-q", "-a", "-m", "verify landings")
    (repo / "mine.txt").write_bytes(b"dirty\r\n\xff")
    return names


def check(repo: Path, first_tree: str) -> None:
    """Check what holds at every moment: the target was tested, the user's file is untouched, git is sound."""
    tree = git(repo, "rev-parse", "main^{tree}").strip()
    assert tree in {first_tree, *verified_trees(repo)}
    assert (repo / "mine.txt").read_bytes() == b"dirty\r\n\xff"
    sound = subprocess.run(
        ["git", "fsck", "--strict", "--no-dangling", "--no-progress"],
        cwd=repo,
        check=False,
        capture_output=True,
        text=True,
    )
    # A killed `git worktree add` leaves files of its worktree empty, or zeros; the next landing removes it.
    excused = (
        r"error: worktrees/_land(-\d+)?/HEAD: detached HEAD points at nothing"
        r"|error: invalid worktrees/_land(-\d+)?/HEAD"
        r"|fatal: failed to read \S*worktrees/_land(-\d+)?/commondir: .*"
    )
    left = [line for line in sound.stderr.splitlines() if not re.fullmatch(excused, line)]
    assert not left, left


def wait_for_the_end(repo: Path) -> None:
    """Wait until the processes of a killed landing have ended, as they do by themselves."""
    wait_until(lambda: not marked_processes(repo), what="no process is left")


def next_group(repo: Path, names: list[str]) -> list[str]:
    """Return two stories that have not landed, and the one that never can."""
    there = set(git(repo, "ls-tree", "--name-only", "main").split())
    return [*[name for name in names if f"{name}.txt" not in there][:2], RED]


def kill_landings(repo: Path, names: list[str], kills: int, seed: int) -> None:
    """Kill landings that verify several trees at once, half of them with the git command that they run."""
    rng = random.Random(seed)  # noqa: S311  a sample, not a secret
    first_tree = git(repo, "rev-parse", "main^{tree}").strip()
    began = time.monotonic()
    first = run(repo, "land", names[0], RED, "--json")
    assert first.data["landed"] == [names[0]], first.err
    assert first.data["unused_runs"] + first.data["canceled_runs"] > 0, "nothing was verified ahead"
    usual, ended = time.monotonic() - began, 0
    for number in range(kills):
        with started(repo, "land", *next_group(repo, names), env=marked(repo)) as landing:
            time.sleep(rng.uniform(0.1, 1.4) * usual)  # a moment that nothing announces
            with suppress(ProcessLookupError):
                if number % 2:
                    os.killpg(landing.pid, signal.SIGKILL)
                else:
                    os.kill(landing.pid, signal.SIGKILL)
            ended += landing.finish().code >= 0
        wait_for_the_end(repo)
        check(repo, first_tree)
    print(f"{kills} kills, {ended} landings had ended before")  # noqa: T201  a figure to read
    began = time.monotonic()
    last = run(repo, "land", "--json", limit=300)
    print(f"the last landing took {time.monotonic() - began:.1f} s")  # noqa: T201  a figure to read
    assert last.code in {3, 4}, last.out + last.err
    assert [left["id"] for left in last.data["not_landed"]] == [RED]
    check(repo, first_tree)
    git(repo, "fsck", "--strict", "--no-dangling")
    there = git(repo, "ls-tree", "--name-only", "main").split()
    assert {f"{name}.txt" for name in names} <= set(there)
    assert git(repo, "status", "--porcelain").split() == ["M", "mine.txt"]
    assert not (repo / ".git" / "index.lock").exists()
    assert len(git(repo, "worktree", "list").splitlines()) == 1, "a worktree is left"
    assert not has_trash(worktree_root(repo / ".git")), "deleted worktrees have piled up"
    assert run(repo, "status").code == 0


def test_killed_landings_leave_a_tested_target(repo: Path) -> None:
    """Ten kills at random moments, then one landing that ends with everything there."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201  to repeat a failure
    kill_landings(repo, backlog(repo, 12), KILLS, seed)


HOOK = """#!/bin/sh
# Kills the program when git is about to move main, or has just moved it; perhaps with git.
at="$(cat .git/kill-at 2>/dev/null)"
test "$1" = "${at%+git}" || exit 0
grep -q " refs/heads/main$" || exit 0
kill -9 "$(ps -o ppid= -p "$PPID" | tr -d ' ')"
case "$at" in *+git) kill -9 "$PPID" ;; esac
test "$1" = committed
"""


@pytest.mark.parametrize(
    "moment",
    ["prepared", "committed", pytest.param("prepared+git", marks=pytest.mark.slow), "committed+git"],
)
def test_a_kill_just_before_and_just_after_the_move(repo: Path, moment: str) -> None:
    """Before it nothing was landed or undone; after it the next command completes what was begun."""
    names = backlog(repo, 2)
    before = git(repo, "rev-parse", "main").strip()
    hook, flag = repo / ".git" / "hooks" / "reference-transaction", repo / ".git" / "kill-at"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)
    flag.write_text(moment)
    assert run(repo, "land", *names).code == -signal.SIGKILL
    moved = moment.startswith("committed")
    assert (git(repo, "rev-parse", "main").strip() != before) == moved
    check(repo, git(repo, "rev-parse", f"{before}^{{tree}}").strip())
    flag.unlink()
    again = run(repo, "land", *names, "--json")
    assert again.code == 0, again.err
    assert ("it is complete now" if moved else "nothing was landed") in again.err
    assert again.data["landed"] == ([] if moved else names)
    assert git(repo, "status", "--porcelain").split() == ["M", "mine.txt"]
    assert run(repo, "status", "--json").story(names[0])["merged"] == "main"

    flag.write_text(moment)
    assert run(repo, "undo", "--yes").code == -signal.SIGKILL
    flag.unlink()
    again = run(repo, "undo", "--yes")
    assert again.code == (1 if moved else 0), again.err
    assert git(repo, "rev-parse", "main").strip() == before
    assert git(repo, "status", "--porcelain").split() == ["M", "mine.txt"]
    assert not (repo / "s000.txt").exists()
    assert not (repo / ".git" / "index.lock").exists()


@pytest.mark.chaos
def test_five_hundred_killed_landings(repo: Path) -> None:
    """The same, 500 times."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201  to repeat a failure
    kill_landings(repo, backlog(repo, 12 + MANY_KILLS // 2), MANY_KILLS, seed)
