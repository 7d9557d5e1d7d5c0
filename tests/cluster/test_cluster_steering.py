"""Pauses, budgets, limits of agents, decisions and floods, with stories on two real workers."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story, writes
from tests.acceptance.test_agents import Actors, claude, trouble
from tests.acceptance.test_decide import asking_story
from tests.cluster.machines import Machines, events, machines, moments
from tests.conftest import git

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose `bin` is on the PATH of the workers."""
    made = tmp_path_factory.mktemp("shared")
    (made / "bin").mkdir()
    return made


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Machines]:
    """Run two workers of one slot each, for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
        with machines(folder / "cluster", "one", "two", options=("--slots=1",)) as found:
            yield found


@pytest.fixture
def actors(folder: Path, tmp_path: Path, repo: Path) -> Actors:
    """Return stand-ins for agents that the workers find."""
    found = Actors(tmp_path / "actors", repo)
    made = found.install("claude")
    (folder / "bin/claude").unlink(missing_ok=True)
    (folder / "bin/claude").symlink_to(made)
    return found


def _of(repo: Path, kind: str) -> list[str]:
    return [each["data"]["story_id"] for each in events(repo) if each["kind"] == kind]


def test_a_pause_holds_on_all_workers(cluster: Machines, repo: Path, tmp_path: Path) -> None:
    """What runs ends, nothing starts on either worker although both are free, until `unpause`."""
    go = tmp_path / "go"
    for name in ("a", "b"):
        write_story(repo, name, command=f"until test -f {go}; do sleep 0.05; done; {writes(name)}")
    for name in ("c", "d"):
        write_story(repo, name, command=writes(name))
    commit_stories(repo)
    with started(repo, "run", "--cluster", str(cluster.file)) as running:
        wait_until(lambda: len(_of(repo, "SessionStarted")) == 2, what="two sessions run", limit=60)
        assert run(repo, "pause").code == 0
        go.touch()
        wait_until(lambda: len(_of(repo, "StoryFinished")) == 2, what="they end", limit=60)
        assert run(repo, "status", "--json").data["paused"] is True
        assert set(_of(repo, "StoryPlaced")) == {"a", "b"}, "nothing was placed after the pause"
        assert run(repo, "unpause").code == 0
        assert running.finish().code == 0
    assert sorted(_of(repo, "StoryFinished")) == ["a", "b", "c", "d"]
    paused, unpaused = moments(repo, "AdmissionPaused")[0], moments(repo, "AdmissionContinued")[0]
    assert all(not paused < at < unpaused for at in moments(repo, "StoryPlaced"))


def test_a_budget_is_one_for_all_workers(cluster: Machines, actors: Actors, repo: Path) -> None:
    """Sessions on two machines share one budget: what is left is never promised twice."""
    for name in "abcdef":
        actors.story(name, {"lines": claude(total_cost_usd=1.0), "files": {name: "x"}}, agent="claude")
    commit_stories(repo)
    ran = run(repo, "--cluster", str(cluster.file), "--cost-budget=3", "--json", limit=120)
    assert ran.code != 0, "not all of it can be paid"
    stories = [ran.story(name) for name in "abcdef"]
    assert [story["status"] for story in stories].count("done") == 3, ran.err
    stopped = [story for story in stories if story["status"] != "done"]
    assert {story["kill_switch"]["name"] for story in stopped} == {"cost-budget-exceeded"}
    spent = [each["data"]["cost_usd"] for each in events(repo) if each["kind"] == "SessionEnded"]
    assert sum(cost or 0 for cost in spent) <= 3


def test_a_limit_of_an_agent_holds_on_all_workers(cluster: Machines, actors: Actors, repo: Path) -> None:
    """What one worker's session learns, that the agent is at its limit, the other worker obeys."""
    limited = trouble("rate limit: try again in 8 s", 429)
    actors.story("a", limited, {"lines": claude(), "files": {"a": "x"}}, agent="claude")
    actors.story("b", {"lines": claude(), "files": {"b": "x"}}, agent="claude", depends_on=["first"])
    write_story(repo, "first", command=f"sleep 1; {writes('first')}")
    commit_stories(repo)
    ran = run(repo, "--cluster", str(cluster.file), "--json", limit=120)
    assert ran.code == 0, ran.err
    (pause,) = [each["data"] for each in events(repo) if each["kind"] == "AgentPaused"]
    assert pause["everyone"]
    begun = moments(repo, "SessionStarted", agent="claude")
    assert begun[0] < pause["until"]
    assert all(at >= pause["until"] for at in begun[1:]), "nobody asked before the time that it named"


def test_a_decision_of_a_story_on_a_worker_is_answered(cluster: Machines, repo: Path, tmp_path: Path) -> None:
    """A question that a session on a worker asks is answered here, and the story continues on a worker."""
    go = tmp_path / "go"
    asking_story(repo, "a", tmp_path)
    write_story(repo, "b", command=f"until test -f {go}; do sleep 0.05; done; {writes('b.txt')}")
    commit_stories(repo)
    with started(repo, "run", "--cluster", str(cluster.file), "--json") as running:
        wait_until(lambda: "story a asks" in run(repo, "decide").out, what="story a asks", limit=60)
        assert run(repo, "decide", "a", "B").code == 0
        wait_until(lambda: "a" in _of(repo, "StoryRequeued"), what="it continues", limit=60)
        done = lambda: run(repo, "status", "--json").data["counts"]["done"] == 1  # noqa: E731
        wait_until(done, what="it is done", limit=60)
        go.touch()
        ran = running.finish()
    assert ran.code == 0, ran.err
    assert _of(repo, "StoryPlaced").count("a") == 2


def test_a_flood_of_one_story_harms_no_other(cluster: Machines, repo: Path) -> None:
    """One story prints 300 MB while others come and go: they are as quick, and its log is bounded."""
    write_story(repo, "flood", command=f"yes {'x' * 99} | head -c 300000000; {writes('flood')}", priority=9)
    for number in range(4):
        write_story(repo, f"s{number}", command=f"echo here {number}; {writes(f's{number}')}")
    commit_stories(repo)
    ran = run(repo, "--cluster", str(cluster.file), "--json", limit=180)
    assert ran.code == 0, ran.err
    logs = {path: path.stat().st_size for path in (repo / ".git/autopilot/runs").rglob("*.log")}
    flooded = max(logs, key=lambda path: logs[path])
    assert b"bytes are left out here" in flooded.read_bytes(), "and it says so"
    assert sum(logs.values()) < 80 << 20
    assert "here 3" in run(repo, "logs", "s3").out
    assert git(repo, "show", "autopilot/flood:flood") == "made\n"
