"""Kill the coordinator at a random moment, resume, and let a separate checker look at what is left.

The checker reads the journal's rows, git and a trace that the sessions themselves write; it uses
none of the program's own code.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.program import command, processes_with, run, wait_until, write_story
from tests.conftest import git

LONGEST = 2.2
VERDICTS = {"a": "done", "b": "done", "c": "done", "d": "failed", "e": "skipped", "f": "done"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A repository with a backlog whose sessions leave a trace."""

    repo: Path
    trace: Path
    marker: str


def prepare(repo: Path, name: str) -> Scene:
    """Write six stories: a dependency, a retry that passes, a failure, a skip, a daemon."""
    trace, marker = repo.parent / f"trace-{name}", f"chaos-marker-{name}-{os.getpid()}"
    work = (
        f"echo start $AUTOPILOT_STORY_ID $AUTOPILOT_ATTEMPT >> {trace}; "
        f"sh -c 'sleep 0.1 # {marker}'; echo $AUTOPILOT_ATTEMPT > $AUTOPILOT_STORY_ID.txt; "
        f"echo end $AUTOPILOT_STORY_ID $AUTOPILOT_ATTEMPT >> {trace}"
    )
    daemon = f"(setsid sh -c 'trap \"\" TERM; sleep 300 # {marker}' &) ; {work}"
    write_story(repo, "a", command=work, verify=["test -s a.txt"])
    write_story(repo, "b", command=work, verify=["test -s a.txt", "test -s b.txt"], depends_on=["a"])
    write_story(repo, "c", command=work, verify=["grep -qx 2 c.txt"])
    write_story(repo, "d", command=work, verify=["false"])
    write_story(repo, "e", command=work, depends_on=["d"])
    write_story(repo, "f", command=daemon)
    return Scene(repo=repo, trace=trace, marker=marker)


def kill_at(scene: Scene, moment: float, *arguments: str) -> bool:
    """Start the program, SIGKILL it after `moment` seconds; tell whether it was still running."""
    process = subprocess.Popen(
        command(*arguments, "-q"),
        cwd=scene.repo,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(moment)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not processes_with(scene.marker), what="no orphan is left", limit=3)
    return alive


def acknowledged(scene: Scene) -> set[tuple[str, int]]:
    """Name the work sessions whose end the journal holds."""
    ended = set()
    sessions = {}
    for kind, data in _rows(scene.repo):
        if kind == "SessionStarted" and data["kind"] == "work":
            sessions[data["session_id"]] = (data["story_id"], data["attempt"])
        if kind == "SessionEnded" and data["session_id"] in sessions:
            ended.add(sessions[data["session_id"]])
    return ended


def check(scene: Scene) -> None:
    """Nothing lost, nothing repeated, no orphan, a sound repository, records that add up."""
    verdicts = {story["id"]: story["status"] for story in run(scene.repo, "status", "--json").data["stories"]}
    assert verdicts == VERDICTS
    _check_sessions(scene)
    _check_commits(scene.repo)
    _check_records(scene.repo)
    assert not processes_with(scene.marker)
    fsck = subprocess.run(
        ["git", "fsck", "--full", "--strict"], cwd=scene.repo, capture_output=True, text=True, check=False
    )
    assert fsck.returncode == 0, fsck.stderr


def _check_sessions(scene: Scene) -> None:
    """After its end was acknowledged, no work session of a story and attempt starts again."""
    ended: set[tuple[str, int]] = set()
    names = {}
    for kind, data in _rows(scene.repo):
        if kind == "SessionStarted" and data["kind"] == "work":
            key = (data["story_id"], data["attempt"])
            assert key not in ended, f"{key} was repeated after it had been acknowledged"
            names[data["session_id"]] = key
        elif kind == "SessionEnded" and data["session_id"] in names:
            ended.add(names[data["session_id"]])
    traced = Counter(line for line in scene.trace.read_text().splitlines() if line.startswith("end"))
    for story, attempt in ended:
        assert traced[f"end {story} {attempt}"] >= 1, "the journal speaks of a session that never ended"


def _check_commits(repo: Path) -> None:
    """Each attempt that changed something is one commit, no more and no less."""
    for story, base, expected in (
        ("a", "main", ["1"]),
        ("b", "autopilot/a", ["1"]),
        ("c", "main", ["1", "2"]),
        ("d", "main", ["1", "2", "3", "4"]),
        ("f", "main", ["1"]),
    ):
        log = git(
            repo,
            "log",
            "--reverse",
            "--format=%(trailers:key=Autopilot-Attempt,valueonly)",
            f"{base}..autopilot/{story}",
        )
        assert log.split() == expected, story
    assert not git(repo, "branch", "--list", "autopilot/e")


def _check_records(repo: Path) -> None:
    path = repo / ".orchestrator" / "metrics" / "autopilot.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    (whole,) = [record for record in records if record["kind"] == "run"]
    stories = [record for record in records if record["kind"] == "story"]
    counted = Counter(record["verdict"] for record in stories)
    assert len(stories) == whole["story_count"] == len(VERDICTS)
    assert {name: count for name, count in whole["counts"].items() if count} == dict(counted)


def _rows(repo: Path) -> list[tuple[str, dict[str, Any]]]:
    journal = repo / ".git" / "autopilot" / "journal.db"
    if not journal.exists():
        return []
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchall():
            return []  # killed before the first table was there
        rows = connection.execute("SELECT kind, data FROM events ORDER BY seq").fetchall()
    return [(kind, json.loads(data)) for kind, data in rows]


def has_run(repo: Path) -> bool:
    """Return whether a run got as far as its first record."""
    return bool(_rows(repo))


def play(scene: Scene, seed: int, *, kills: int) -> int:
    """Kill `kills` times at moments that `seed` decides, then resume to the end; count true kills."""
    chance = random.Random(seed)  # noqa: S311  moments, not secrets
    hit = 0
    for _ in range(kills):
        verb = "resume" if has_run(scene.repo) else "run"
        hit += kill_at(scene, chance.uniform(0.1, LONGEST), verb)
    verb = "resume" if has_run(scene.repo) else "run"
    ran = run(scene.repo, verb, "--json")
    assert ran.code == 4, ran.err + ran.out
    check(scene)
    return hit
