"""`agent = ["claude", "codex"]`: the next one continues when one cannot work, and no limit fails a story."""

import signal
import time

from tests.acceptance.program import run, started, wait_until
from tests.acceptance.test_agents import WELL, Actors, actors, claude, trouble
from tests.real_agents.stories import events

__all__ = ["actors"]
BOTH = "--agent=claude,codex"
CALM = "--no-base-check"


def codex(text: str = "All done.") -> list[dict[str, object]]:
    """Return a stream as codex prints it."""
    return [
        {"type": "thread.started", "thread_id": "t-1"},
        {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": text}},
        {"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 2}},
    ]


GOOD = {"files": {"made.txt": "made"}, "lines": codex()}
DAYS = trouble(f"You have hit your limit|{int(time.time()) + 5 * 86400}", 429)


def both(actors: Actors) -> None:
    """Install the two."""
    actors.install("claude")
    actors.install("codex")
    (actors.repo / "autopilot-multi.toml").write_text("peer-abort = 1000\n")


def test_a_limit_hands_the_story_to_the_next_agent(actors: Actors) -> None:
    """Neither waits for days nor fails; what was done is in the prompt, and the others begin there."""
    both(actors)
    actors.story("a", {**DAYS, "files": {"half.txt": "x"}}, GOOD, priority=9)
    actors.story("b", {**GOOD, "files": {"b.txt": "x"}}, depends_on=["a"])
    actors.story("c", {**GOOD, "files": {"c.txt": "x"}}, agent=["claude", "codex"], depends_on=["a"])
    planned = run(actors.repo, "plan", BOTH, env={"PATH": f"{actors._folder}/bin:/usr/bin:/bin"})
    assert "claude, codex" in planned.out
    ran = actors.run(BOTH, CALM)
    assert {story["status"] for story in ran.data["stories"]} == {"done"}, ran.err
    who = [(one["autopilot_run_id"].rpartition("/")[2], one["agent_identity"]) for one in actors.records()]
    assert sorted(who) == [("a", "claude"), ("a", "codex"), ("b", "codex"), ("c", "codex")]
    assert ran.story("a")["attempt"] == 1
    first, *_ = events(actors.repo, "AgentReplaced")
    assert (first["agent"], first["by"]) == ("claude", "codex")
    assert first["until"] > time.time() + 4 * 86400
    assert "codex continues in place of claude: claude cannot work before" in ran.err
    assert "This is a new conversation." in actors.prompt("a")
    assert "half.txt" in actors.prompt("a")


def test_two_failures_and_a_refusal_hand_the_story_on(actors: Actors) -> None:
    """An agent that has failed twice, or cannot work at all, is followed by the next; the last one fails."""
    both(actors)
    wrong = {"lines": claude(), "files": {"wrong.txt": "x"}}
    right = {"lines": codex(), "files": {"right.txt": "x"}}
    actors.story("a", wrong, {**wrong, "files": {"wrong.txt": "y"}}, right)
    signed_out = trouble("Not logged in · Please run /login", None)
    actors.story("b", signed_out, right, agent=["claude", "codex"])
    refused = {"lines": [{"type": "turn.failed", "error": {"message": "401 Unauthorized"}}], "code": 1}
    actors.story("c", signed_out, refused)
    ran = actors.run(BOTH, CALM, "--verify=test -f right.txt || { cat wrong.txt; exit 1; }")
    assert [ran.story(name)["status"] for name in "abc"] == ["done", "done", "failed"], ran.err
    assert [ran.story(name)["attempt"] for name in "abc"] == [3, 1, 1]
    assert "codex continues in place of claude: 2 attempts of claude have failed" in ran.err
    assert "codex continues in place of claude: Not logged in" in ran.err
    assert "codex: 401 Unauthorized" in ran.story("c")["reason"]
    # A user who has signed in again gets the preferred agent.
    actors.story("c", WELL)
    again = actors.run("resume", "--retry-failed")
    assert again.story("c")["status"] in {"done", "failed"}
    assert actors.records()[-1]["agent_identity"] == "claude"


def test_a_limit_of_days_is_waited_out_if_the_user_wants(actors: Actors) -> None:
    """`on-limit = "wait"`: the story waits, a stop is no failure, and a resume knows until when."""
    both(actors)
    actors.story("a", DAYS)
    path = f"{actors._folder}/bin:/usr/bin:/bin"
    with started(actors.repo, BOTH, CALM, "--on-limit=wait", "--json", env={"PATH": path}) as running:
        wait_until(lambda: "wait until" in running.err, what="the story waits")
        running.send(signal.SIGTERM)
        ran = running.finish()
    assert ran.story("a")["status"] == "stopped"
    (pause,) = events(actors.repo, "AgentPaused")
    assert pause["everyone"] is True
    assert pause["until"] > time.time() + 4 * 86400
    assert events(actors.repo, "AgentReplaced") == []
