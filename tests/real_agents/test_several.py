"""Real claude and codex in one run: in order of preference, as candidates, and as worker and reviewer."""

import time
from dataclasses import replace
from typing import Any

import pytest

from tests.acceptance.program import Ran, run, write_story
from tests.conftest import git
from tests.real_agents.conftest import Stage
from tests.real_agents.programs import MODELS, arguments, environment, installed
from tests.real_agents.stories import PATIENCE, SUBSCRIBED, events, limit, work_sessions

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("agent", ["claude"])]
IS_CLAUDE = 'test -n "$CLAUDECODE"'


@pytest.fixture
def pair(stage: Stage) -> Stage:
    """Return a stage with both agents, each with a model of its own."""
    installed("codex")
    lines = [f"[agents.codex]\nargs = {arguments('codex', stage.url)}", 'permissions = "bypass"']
    settings = stage.settings(bypass=True, base_check='"off"')
    settings = settings.replace("[agents.claude]", f'[agents.claude]\nmodel = "{MODELS["claude"]}"')
    lines.append(f'model = "{MODELS["codex"]}"\n')
    (stage.repo / "autopilot-multi.toml").write_text(settings + "\n".join(lines))
    git(stage.repo, "commit", "-q", "-am", "settings")
    env = {**stage.env, **environment("codex", stage.url, stage.repo.parent / "home")}
    return replace(stage, env=env)


def carry(pair: Stage, body: str, *arguments: str, env: dict[str, str] | None = None, **keys: object) -> Ran:
    """Carry one story out."""
    write_story(pair.repo, "a", body=body, **keys)
    return run(pair.repo, "--json", *arguments, env={**pair.env, **(env or {})}, limit=PATIENCE)


def workers(pair: Stage) -> list[str]:
    """Return who has worked, session by session."""
    return [record["agent_identity"] for record in work_sessions(pair.repo)]


def test_a_limit_of_days_hands_the_story_to_the_next_agent(pair: Stage) -> None:
    """Nobody waits and nothing fails: the next one is told what was done, and continues there."""
    fault = {**limit(seconds=5 * 86400), "at": 1}
    rest = ("This is a new conversation.", [{"write": ["rest.txt", "made"]}])
    body = pair.play("a", {"write": ["half.txt", "made"]}, faults=(fault,), told=rest)
    ran = carry(pair, body, "--agent=claude,codex", env=SUBSCRIBED)
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    assert workers(pair) == ["claude", "codex"]
    (replaced,) = events(pair.repo, "AgentReplaced")
    assert (replaced["agent"], replaced["by"]) == ("claude", "codex")
    assert "half.txt" in pair.scene.requests_of("a")[-1]["prompt"]
    files = git(pair.repo, "ls-tree", "--name-only", "autopilot/a").split()
    assert {"half.txt", "rest.txt"} <= set(files)


def test_a_plan_at_its_limit_hands_the_story_to_the_next_agent(pair: Stage) -> None:
    """Codex names the day in words, which is as good as a header: claude works at once."""
    error = {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": int(time.time()) + 5 * 86400}
    fault = {"at": 0, "status": 429, "body": {"error": error}}
    body = pair.play("a", {"write": ["a.txt", "made"]}, faults=(fault,))
    ran = carry(pair, body, "--agent=codex,claude")
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    assert workers(pair) == ["codex", "claude"]


def test_two_failures_hand_the_story_to_the_next_agent(pair: Stage) -> None:
    """The second attempt is in the conversation of the first; the third is by the other agent, and right."""
    right = ("This is a new conversation.", [{"write": ["right.txt", "made"]}])
    body = pair.play("a", {"sh": "date +%N > wrong.txt"}, told=right)
    verify = "--verify=test -f right.txt || { cat wrong.txt; exit 1; }"
    ran = carry(pair, body, "--agent=claude,codex", verify)
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 3), ran.err
    assert workers(pair) == ["claude", "claude", "codex"]


def test_the_best_of_two_agents_wins(pair: Stage) -> None:
    """The first candidate fails; the second is by the other agent, begins at the base and is the result."""
    act = {"sh": f"{IS_CLAUDE} && echo wrong > proof.txt || echo right > proof.txt"}
    keys: dict[str, Any] = {"agent": "claude", "best_of": 2, "escalate": ["codex"], "max_attempts": 1}
    ran = carry(pair, pair.play("a", act), "--verify=grep -qx right proof.txt", **keys)
    story = ran.story("a")
    assert (ran.code, story["status"]) == (0, "done"), ran.err
    shown = [(one["agent"], one["verdict"], one["chosen"]) for one in story["candidates"]]
    claude, codex = (f"{name}:{MODELS[name]}" for name in ("claude", "codex"))
    assert shown == [(claude, "failed", False), (codex, "done", True)]
    proofs = [git(pair.repo, "show", f"{one['branch']}:proof.txt").strip() for one in story["candidates"]]
    assert proofs == ["wrong", "right"]
    assert git(pair.repo, "rev-list", "--count", "main..autopilot/a").strip() == "1"


def test_a_reviewer_asks_for_another_attempt(pair: Stage) -> None:
    """Codex reads what claude did; its reason reaches claude, and on the last attempt the gates decide."""
    answer = '{"review": "again", "because": "a test is missing"}'
    reads = ("Somebody else has worked on the story below", [{"say": answer}])
    body = pair.play("a", {"sh": "date +%N >> a.txt"}, told=reads)
    keys: dict[str, Any] = {"agent": "claude", "review": "codex", "max_attempts": 2}
    ran = carry(pair, body, "--verify=test -s a.txt", **keys)
    story = ran.story("a")
    assert (ran.code, story["status"], story["attempt"]) == (0, "done", 2), ran.err
    by = f"codex:{MODELS['codex']}"
    assert story["review"] == {"by": by, "verdict": "again", "because": "a test is missing"}
    prompts = [asked["prompt"] for asked in pair.scene.requests_of("a") if "claude" in asked["model"]]
    assert "a test is missing" in prompts[-1]
    assert workers(pair) == ["claude", "claude"]
