"""Real claude and codex in trouble: failures of their service, and conversations that go on."""

import json
import os
import signal
import time
from datetime import datetime
from pathlib import Path

import pytest

from runner.story.session.contract import ASK_EXAMPLE, DONE_EXAMPLE
from tests.acceptance.program import processes_with, run, started, wait_until, write_story
from tests.real_agents.conftest import Stage
from tests.real_agents.stories import PATIENCE, SUBSCRIBED, carry_one, events, limit, work_sessions

pytestmark = pytest.mark.agents
BOTH = pytest.mark.parametrize("agent", ["claude", "codex"])


@BOTH
def test_a_storm_of_overload_costs_no_attempt(stage: Stage, agent: str) -> None:
    """Errors 529 until the program gives up: the session is repeated later, in the same attempt."""
    storm = {"at": 0, "status": 529, "times": 4}
    if agent == "codex":
        stage.configure(codex=("request_max_retries=1", "stream_max_retries=1"))
    body = stage.play("a", {"write": ["a.txt", "made"]}, faults=(storm,))
    ran = carry_one(stage, body, env={"CLAUDE_CODE_MAX_RETRIES": "1"})
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert ran.story("a")["attempt"] == 1
    paused = events(stage.repo, "AgentPaused")
    assert paused
    assert not any(pause["everyone"] for pause in paused)
    assert len(stage.scene.requests_of("a")) > 4


@BOTH
def test_a_rate_limit_holds_all_its_stories_back_until_the_time_it_names(stage: Stage, agent: str) -> None:
    """A limit that outlasts the program's own patience pauses the agent, and the run says until when."""
    if agent == "codex":
        stage.configure(codex=("request_max_retries=0", "stream_max_retries=0"))
    limit = {"at": 0, "status": 429, "times": 1, **({"after": 90} if agent == "claude" else {})}
    ran = carry_one(stage, stage.play("a", {"write": ["a.txt", "made"]}, faults=(limit,)))
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    (paused,) = events(stage.repo, "AgentPaused")
    assert paused["everyone"] is True
    assert f"all sessions of {agent} wait until" in ran.err


@pytest.mark.parametrize("agent", ["claude"])
def test_a_subscription_at_its_limit_is_waited_for(stage: Stage) -> None:
    """The event that names the end of the limit is believed: nobody asks before, and then it is done."""
    fault = limit(seconds=20)
    body = stage.play("a", {"write": ["a.txt", "made"]}, faults=(fault,))
    ran = carry_one(stage, body, env=SUBSCRIBED)
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    (paused,) = events(stage.repo, "AgentPaused")
    assert paused["everyone"] is True
    assert paused["until"] >= float(fault["headers"]["anthropic-ratelimit-unified-reset"])
    refused, served, *_ = (record["started_at"] for record in work_sessions(stage.repo))
    assert datetime.fromisoformat(served).timestamp() >= paused["until"] - 1
    assert refused < served


@pytest.mark.parametrize("agent", ["codex"])
def test_the_time_in_the_words_of_codex_is_waited_for(stage: Stage) -> None:
    """A plan at its limit names the minute of its end: nobody asks before, and then it is done."""
    ends = int(time.time()) + 40
    body = {"error": {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": ends}}
    fault = {"at": 0, "status": 429, "body": body}
    ran = carry_one(stage, stage.play("a", {"write": ["a.txt", "made"]}, faults=(fault,)))
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    (paused,) = events(stage.repo, "AgentPaused")
    assert paused["everyone"] is True
    assert ends <= paused["until"] < ends + 90
    _, served, *_ = (record["started_at"] for record in work_sessions(stage.repo))
    assert datetime.fromisoformat(served).timestamp() >= ends


@BOTH
def test_a_killed_coordinator_resumes_the_conversation(stage: Stage, agent: str, tmp_path: Path) -> None:
    """Acceptance 68: SIGKILL leaves nothing of the session, and `resume` goes on in its conversation."""
    stage.configure(bypass=agent == "claude")
    nap = f"300.{os.getpid()}"
    wait = {"sh": f"test -f {tmp_path}/go || sleep {nap}"}
    write_story(stage.repo, "a", body=stage.play("a", {"write": ["a.txt", "made"]}, wait), agent=agent)
    with started(stage.repo, stage.model, env=stage.env) as running:
        wait_until(lambda: processes_with(f"sleep {nap}"), what="the tool runs", limit=60)
        running.send(signal.SIGKILL)
        wait_until(lambda: not processes_with(nap), what="the tool is gone")
    (tmp_path / "go").touch()
    ran = run(stage.repo, "resume", "--json", env=stage.env)
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    first, second = [record["conversation"] for record in work_sessions(stage.repo)]
    assert first == second
    assert stage.scene.requests_of("a")[-1]["scripts"] == 2


@BOTH
def test_a_spiral_begins_a_new_conversation(stage: Stage) -> None:
    """A retry goes on in its conversation; when the same failure comes again, a fresh one begins."""
    body = stage.play("a", {"write": ["wrong.txt", "made"]})
    ran = carry_one(
        stage,
        body,
        "--verify=test -f right.txt || { echo wrong; exit 1; }",
        "--max-sessions=4",
        "--no-base-check",
    )
    assert ran.story("a")["status"] in {"stopped", "failed"}
    assert events(stage.repo, "SpiralSeen")
    talks = [record["conversation"] for record in work_sessions(stage.repo)]
    assert talks[0] == talks[1]
    assert talks[-1] != talks[0]
    asked = stage.scene.requests_of("a")[-1]["prompt"]
    assert "- Attempt 1 by " in asked, "what was done so far"
    for example in (DONE_EXAMPLE, ASK_EXAMPLE):  # the results that it may write
        assert json.dumps(example) in asked
        asked = asked.replace(json.dumps(example), "")
    assert '{"' not in asked, "in words, not as events"


@pytest.mark.parametrize("agent", ["codex"])
def test_two_bad_stories_hold_six_good_ones_back_only_as_long_as_the_user_wants(stage: Stage) -> None:
    """Both fail in one way again and again; with a higher limit each ends alone, and the rest is done."""
    stage.configure(bypass=True, max_stories="2", window='"fixed"')
    bad, good = ("bad-1", "bad-2"), tuple(f"good-{number}" for number in range(6))
    for name in (*bad, *good):
        word = "wrong" if name in bad else "right"
        body = stage.play(name, {"write": ["a.txt", word]})
        keys = {"agent": stage.agent, "verify": ["grep -qx right a.txt"], "max_attempts": 9}
        write_story(stage.repo, name, body=body, priority=9 if name in bad else 1, **keys)
    arguments = ("--json", stage.model, "--no-base-check", "--max-sessions=9")
    ran = run(stage.repo, *arguments, env=stage.env, limit=PATIENCE)
    assert (ran.code, ran.data["kill_switch"]["name"]) == (2, "spiral"), ran.err
    held = [ran.story(name)["status"] for name in good]
    assert "stopped" in held, "the default is careful"
    assert "run with --spiral-limit 10" in ran.err
    free = run(stage.repo, *arguments, "--again", "--spiral-limit=10", env=stage.env, limit=PATIENCE)
    assert [free.story(name)["status"] for name in good] == ["done"] * len(good), free.err
    assert [free.story(name)["kill_switch"]["name"] for name in bad] == ["spiral"] * 2
    assert free.data["kill_switch"] is None


ASKERS = pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "gemini", "qwen"])


@ASKERS
def test_a_question_in_plain_words_becomes_a_decision(stage: Stage) -> None:
    """An agent that asks and changes nothing is not lost: its words are asked, and it gets the answer."""
    question = "I found two schemas. Should I keep the old table?"
    answered = ("keep the old table", [{"write": ["a.txt", "made"]}])
    ran = carry_one(stage, stage.play("a", {"say": question}, told=answered))
    story = ran.story("a")
    assert (story["status"], ran.code) == ("parked", 5), ran.err
    assert "Should I keep the old table?" in story["reason"]
    assert run(stage.repo, "decide", "a", "A", "--json", env=stage.env).code == 0
    again = run(stage.repo, "resume", "--json", env=stage.env, limit=PATIENCE)
    assert again.story("a")["status"] == "done", again.err
    assert len({record["conversation"] for record in work_sessions(stage.repo)}) == 1


_QUOTA = {
    "message": "You exceeded your current quota, please check your plan and billing details.",
    "type": "insufficient_quota",
    "param": None,
    "code": "insufficient_quota",
}
HOPELESS = {
    "unknown-model": {"status": 404, "words": "The model `m-9` does not exist"},
    "bad-request": {"status": 400, "words": "tools.0.name: bad field"},
    # Codex says nothing of the words of a 429: without this kind it is a limit like any other.
    "no-quota": {"status": 429, "body": {"error": _QUOTA}},
    "not-in-the-plan": {"status": 429, "body": {"error": {"type": "usage_not_included"}}},
}


@pytest.mark.parametrize(
    ("agent", "trouble"),
    [
        ("claude", "unknown-model"),
        ("claude", "bad-request"),
        *(("codex", name) for name in HOPELESS),
        ("opencode", "no-quota"),
        ("qwen", "no-quota"),
    ],
)
def test_what_no_retry_can_change_is_one_session(stage: Stage, trouble: str) -> None:
    """An unknown model, a bad request and a quota that is used up cost one session, and no wait."""
    fault = {"at": "*", "times": 999, **HOPELESS[trouble]}
    stage.configure(codex=("request_max_retries=1", "stream_max_retries=1"))
    ran = carry_one(stage, stage.play("a", {"write": ["a.txt", "made"]}, faults=(fault,)))
    story = ran.story("a")
    assert (story["status"], story["sessions"], events(stage.repo, "AgentPaused")) == ("failed", 1, []), (
        ran.err
    )
    assert '{"' not in story["reason"]


@pytest.mark.parametrize("agent", ["claude"])
def test_a_command_that_was_denied_is_named_with_the_setting_that_allows_it(stage: Stage) -> None:
    """So that its user need not read the log to learn what was missing."""
    ran = carry_one(stage, stage.play("a", {"sh": "wget -q http://127.0.0.1:9/"}))
    assert ran.story("a")["status"] == "no_work", ran.err
    assert "was denied Bash: wget -q http://127.0.0.1:9/; to allow a command" in ran.err


@pytest.mark.parametrize("agent", ["claude"])
def test_a_refusal_is_not_resumed(stage: Stage) -> None:
    """The conversation is dead: the next attempt starts a new one, and its prompt says so."""
    again = ("This is a new conversation.", [{"write": ["a.txt", "made"]}])
    ran = carry_one(stage, stage.play("a", {"refuse": "No."}, told=again))
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 2), ran.err
    first, second = (record["conversation"] for record in work_sessions(stage.repo))
    assert first != second
