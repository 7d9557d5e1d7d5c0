"""A run among other sessions of its repository: it sees their locks, they see its own, and each is spared."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isolation.paths import find_repository, sessions_dir
from runner.core.text.instants import from_iso, iso
from tests.acceptance.program import run, started, wait_until, write_story, writes
from tests.conftest import git

LOCK = ".orchestrator/session.lock"
CALM = """
memory-gb = {memory}
swap-gb = 1000
peers = 1000
disk-gb = 0
inodes = 0
memory-stall-percent = 100
cpu-stall-percent = 100
io-stall-percent = 100
load-per-cpu = 100000
"""


def lock(checkout: Path, mode: str, *, beat: float | None = None, **fields: object) -> Path:
    """Write the lock of another session manager into a checkout, by the form that it has there."""
    now = time.time()
    values: dict[str, Any] = {
        "session_id": "main-2026-03-01-deep-1",
        "started_at": iso(now - 7 * 3600),
        "last_heartbeat": iso(now if beat is None else beat),
        "mode": mode,
        "pid": 999_999,
        "host": "elsewhere",
        "ttl_hours": 4,
        **fields,
    }
    path = checkout / LOCK
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
    return path


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


@pytest.mark.protocol("004.2")
def test_a_fresh_lock_is_a_session_and_a_stale_one_is_none(repo: Path, tmp_path: Path) -> None:
    """In the checkout or in a linked worktree; stale, odd and parallel ones hold nothing up in worktrees."""
    write_story(repo, "a", command=writes("a.txt"))
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", "--detach", str(linked))
    theirs = lock(linked, "housekeeping")
    before = theirs.read_bytes()
    ran = run(repo, "--json")
    assert (ran.code, ran.story("a")["status"], ran.story("a")["sessions"]) == (5, "parked", 0), ran.err
    asked = run(repo, "decide", "a").out
    assert "BLOCKED: another session has this repository to itself" in asked
    assert f"housekeeping session main-2026-03-01-deep-1 (pid 999999 on elsewhere, lock {theirs})" in asked
    checks = run(repo, "doctor", "--json").data["checks"]
    assert [one["level"] for one in checks if one["name"] == "session"] == ["warn"]
    assert theirs.read_bytes() == before

    lock(linked, "housekeeping", beat=time.time() - 5 * 3600)
    # Without a heartbeat its start counts, which is seven hours ago.
    lock(repo, "bootstrap", last_heartbeat=None)
    assert run(repo, "decide", "a", "B").code == 0
    resumed = run(repo, "resume", "--json")
    assert (resumed.code, resumed.story("a")["status"]) == (0, "done"), resumed.err
    assert load(repo / LOCK)["mode"] == "bootstrap", "a stale one is still another's"

    (repo / LOCK).write_text("{not a lock")
    lock(linked, "deep")
    assert run(repo, "--again").code == 0
    assert (repo / LOCK).read_text() == "{not a lock"


@pytest.mark.protocol("004.1")
@pytest.mark.protocol("004.34")
def test_the_session_config_speaks_for_everybody(repo: Path, tmp_path: Path) -> None:
    """`persistence: false` looks for no session and is seen by none; `agents-per-wave` is the green cap."""
    here, go = tmp_path / "here", tmp_path / "go"
    wait = f"touch {here}; until test -f {go}; do sleep 0.02; done"
    write_story(repo, "a", command=f"{wait}; echo $AUTOPILOT_AGENTS_PER_WAVE > a.txt", mode="housekeeping")
    config = "## Session Config\n\n```yaml\nagents-per-wave: 3 (deep: 18)\npersistence: false\n```\n"
    (repo / "CLAUDE.md").write_text(f"# Project\n\n{config}\n## Other\n\nagents-per-wave: 9\n")
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", "--detach", str(linked))
    lock(linked, "housekeeping")
    (repo / "autopilot-multi.toml").write_text(_tiers("green"))
    with started(repo, "run", "--json") as program:
        wait_until(here.exists, what="the story works")
        assert not (repo / LOCK).exists()
        assert not sessions_dir(find_repository(repo).common_dir).exists()
        go.touch()
        ran = program.finish()
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert git(repo, "show", "autopilot/a:a.txt") == "3\n"
    changed = [line.split() for line in run(repo, "config", "--changed").out.splitlines()]
    assert ["persistence", "false", "CLAUDE.md"] in changed
    assert ["agents-per-wave", "3", "CLAUDE.md"] in changed

    caps = []
    (repo / "CLAUDE.md").write_text(
        "## Session Config\n- **agents-per-wave:** 12\n- **persistence:** maybe\n"
    )
    (linked / LOCK).unlink()
    for tier in ("green", "warn", "degraded", "critical"):
        (repo / "autopilot-multi.toml").write_text(_tiers(tier))
        ran = run(repo, "--again", "--json")
        assert ran.code == 0, ran.err
        assert "'persistence: maybe' of the Session Config is unclear" in ran.err
        caps.append(git(repo, "show", "autopilot/a:a.txt").strip())
    assert caps == ["12", "4", "2", "0"]


def _tiers(wanted: str) -> str:
    """Return settings by which this machine is at one tier, whatever else it does."""
    names = ("green", "warn", "degraded")
    never = names[: (*names, "critical").index(wanted)]
    parts = (f"[tiers.{name}]\n{CALM.format(memory=1e6 if name in never else 0)}" for name in names)
    return "\n".join(parts)


@pytest.mark.protocol("004.57")
def test_others_see_that_a_run_is_active(repo: Path, tmp_path: Path) -> None:
    """By a lock of their form, fresh for as long as the run works; a killed run's is replaced by the next."""
    here, go = tmp_path / "here", tmp_path / "go"
    wait = f"until test -f {go}; do sleep 0.02; done"
    write_story(repo, "a", command=f"touch {here}; {wait}; {writes('a.txt')}")
    ours = repo / LOCK
    with started(repo, "run", "--json") as program:
        wait_until(here.exists, what="the story works")
        values = load(ours)
        assert (values["mode"], values["pid"], values["host"]) == (
            "feature",
            program.pid,
            os.uname().nodename,
        )
        assert values["autopilot_active"] is True
        assert values["session_id"] == values["autopilot_run_id"]
        beat, begun = from_iso(values["last_heartbeat"]), from_iso(values["started_at"])
        assert beat is not None
        assert begun is not None
        assert begun <= beat <= time.time() < beat + values["ttl_hours"] * 3600
        assert git(repo, "status", "--porcelain", "--", ".orchestrator") == ""
        program.send(signal.SIGKILL)
        program.finish()
    assert load(ours) == values, "nothing could remove it"
    go.touch()
    with started(repo, "resume", "--json") as program:
        ran = program.finish()
    assert ran.code == 0, ran.err
    assert not ours.exists()

    theirs = lock(repo, "deep")
    before = theirs.read_bytes()
    assert run(repo, "--again").code == 0
    assert theirs.read_bytes() == before


SHARED = (
    "run",
    "--json",
    "--bg-isolation",
    "none",
    "--deconflict-paths",
    "packages/{id}/**",
    "--enforce",
    "detect",
)
STATE = (
    "---\nschema-version: 1\n---\r\n\n## Current Wave\n\nnone\n\n## Deviations\n\n(none yet)\n\n## Tail\nend"
)


@pytest.fixture
def packages(make_repository: Callable[..., Path]) -> Path:
    """Return a repository of packages in which somebody else has a session open."""
    root = make_repository(files={f"packages/{name}/x": "old\n" for name in "abc"})
    lock(root, "deep")
    return root


@pytest.mark.protocol("004.6")
@pytest.mark.protocol("004.7")
def test_a_promotion_moves_the_story_into_a_worktree(packages: Path, tmp_path: Path) -> None:
    """It continues there by itself, also after a kill; who stays is noted, too, and nothing else changes."""
    repo, here, go = packages, tmp_path / "here", tmp_path / "go"
    (repo / "flows").mkdir()
    (repo / "flows" / "one.toml").write_text('[[steps]]\nnumber = "1"\nname = "Tag"\nprompt = "tag"\n')
    wait = f"touch {here}; until test -f {go}; do sleep 0.02; done"
    write_story(repo, "a", command=f"echo new > packages/a/x; {wait}")
    write_story(repo, "b", command="echo new > packages/b/x")
    write_story(repo, "c", command="echo new > packages/c/x", flow="one")
    state = repo / ".claude" / "STATE.md"
    state.parent.mkdir()
    state.write_bytes(STATE.encode())
    ran = run(repo, *SHARED)
    assert ran.code == 5, ran.err
    assert {story["status"] for story in ran.data["stories"]} == {"parked"}
    assert "D) Move this story into a worktree of its own" in run(repo, "decide", "a").out
    assert state.read_bytes() == STATE.encode()

    for name, letter in (("a", "D"), ("b", "B"), ("c", "D")):
        assert run(repo, "decide", name, letter).code == 0
    with started(repo, "resume", "--json") as program:
        wait_until(here.exists, what="the story works in its worktree")
        done: Callable[[], int] = lambda: run(repo, "status", "--json").data["counts"]["done"]  # noqa: E731
        wait_until(lambda: done() == 2, what="the others are done")
        assert (repo.parent / "repo.worktrees" / "a" / "packages" / "a" / "x").read_text() == "new\n"
        program.send(signal.SIGKILL)
        program.finish()
    go.touch()
    ran = run(repo, "resume", "--json")
    assert ran.code == 0, ran.err
    tree = {name: (repo / "packages" / name / "x").read_text() for name in "abc"}
    assert tree == {"a": "old\n", "b": "new\n", "c": "old\n"}, "only the story that stayed worked here"
    for name in "abc":
        assert git(repo, "show", f"autopilot/{name}:packages/{name}/x") == "new\n"
    assert not (repo.parent / "repo.worktrees" / "a").exists(), "a finished story leaves no worktree"

    before, after = STATE.split("(none yet)\n")
    content = state.read_bytes().decode()
    assert content.startswith(before)
    assert content.endswith(after)
    added = content[len(before) : len(content) - len(after)].splitlines()
    assert len(added) == 3, "one line for each answer, also after a kill"
    assert sorted(line.partition("Z] ")[2].split(": ", 1)[1].split(" beside ")[0] for line in added) == [
        "story a continues in a worktree of its own",
        "story b continues in the same tree",
        "story c continues in a worktree of its own",
    ]
    assert all("deep session main-2026-03-01-deep-1" in line for line in added)


@pytest.mark.protocol("004.6")
def test_unattended_a_story_moves_by_itself(packages: Path) -> None:
    """The recommended answer is the worktree, in which a failure is kept; no STATE.md is made."""
    write_story(packages, "a", command="echo new > packages/a/x")
    write_story(packages, "b", command="echo new > packages/b/x; exit 1", max_attempts=1)
    ran = run(packages, *SHARED, "--decide-default", "recommended")
    assert (ran.code, ran.story("a")["status"], ran.story("b")["status"]) == (4, "done", "failed"), ran.err
    assert ran.story("b")["workspace"] == str(packages.parent / "repo.worktrees" / "b")
    assert f"kept: {ran.story('b')['workspace']} (b)" in run(packages, "status").out
    assert {(packages / "packages" / name / "x").read_text() for name in "ab"} == {"old\n"}
    assert not (packages / ".claude").exists()
