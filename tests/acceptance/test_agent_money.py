"""What sessions cost, with agents that report it in their own ways: totals are what the service charged."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_agents import Actors, actors, claude

__all__ = ["actors"]


def by_model(fresh: int, cached: int, output: int, cost: float) -> dict[str, Any]:
    """Return claude's totals for one model."""
    counts = {"inputTokens": fresh, "cacheReadInputTokens": cached, "outputTokens": output}
    return {"opus": {**counts, "cacheCreationInputTokens": 0, "costUSD": cost}}


def numbered(index: int, cost: float, models: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Return a stream of a claude whose totals include earlier sessions of its conversation."""
    return claude(result_index=index, total_cost_usd=cost, modelUsage=models, **more)


def test_totals_of_claude_count_once_over_results_and_resumed_sessions(actors: Actors) -> None:
    """Newer versions report totals of the conversation, older ones of the process, each result again."""
    actors.install("claude")
    first = numbered(0, 0.25, by_model(1000, 200, 50, 0.25))
    again = numbered(1, 0.4, by_model(1500, 300, 60, 0.4))[-1:]
    retried = numbered(0, 1.0, by_model(2500, 800, 100, 1.0))
    actors.story("new", {"lines": [*first, *again], "code": 1}, {"lines": retried, "files": {"a": "x"}})
    old = claude(modelUsage=by_model(1000, 200, 50, 0.25))
    more = claude(modelUsage=by_model(1300, 200, 70, 0.5), total_cost_usd=0.5)[-1:]
    actors.story("old", {"lines": [*old, *more], "code": 1}, {"lines": old, "files": {"b": "x"}})
    ran = actors.run("--cost-budget=40", "--max-stories=1")
    assert ran.code == 0, ran.err
    records = {
        name: [one for one in actors.records() if f"/{name}/" in one["session_id"]] for name in ("new", "old")
    }
    counted = {
        name: [(one["input_tokens"], one["output_tokens"], one["cost_usd"]) for one in found]
        for name, found in records.items()
    }
    assert counted["new"] == [(1800, 60, 0.4), (1500, 40, 0.6)]
    assert counted["old"] == [(1500, 70, 0.5), (1200, 50, 0.25)]
    caps = [float(call[call.index("--max-budget-usd") + 1]) for call in actors.calls("new")]
    assert caps[0] == 40, "what is left of the budget, not what a session is expected to cost"
    assert caps[1] == pytest.approx(39.6)


def test_a_session_that_reaches_its_limit_continues_while_the_run_has_money(actors: Actors) -> None:
    """It costs no attempt; once the money is really spent, the story is stopped and not failed."""
    actors.install("claude")
    reached = {"subtype": "error_max_budget_usd", "is_error": True, "result": "", "errors": ["Reached it"]}
    capped = {"lines": claude(total_cost_usd=1.0, **reached), "code": 1}
    actors.story("a", capped, {"lines": claude(total_cost_usd=0.5), "files": {"a": "x"}})
    ran = actors.run("--cost-budget=5")
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    first, second = actors.calls("a")
    assert second[second.index("--resume") + 1] == first[first.index("--session-id") + 1]
    actors.story("b", capped)
    spent = actors.run("--cost-budget=2.5", "--story-cost-budget=2")
    story = spent.story("b")
    assert (story["status"], story["kill_switch"]["name"]) == ("stopped", "cost-budget-exceeded"), spent.err
    caps = [float(call[call.index("--max-budget-usd") + 1]) for call in actors.calls("b")]
    assert caps == [2.0, 1.0], "a story may not spend more than its own budget"


def test_tokens_from_a_cache_count_once(actors: Actors) -> None:
    """Qwen counts them as input, opencode beside it; what the model thought is output."""
    for name in ("qwen", "opencode", "gemini"):
        actors.install(name)
    usage = {"input_tokens": 1000, "cache_read_input_tokens": 800, "output_tokens": 10}
    actors.story("a", {"lines": claude(usage=usage), "files": {"a": "x"}}, agent="qwen")
    tokens = {"total": 1016, "input": 150, "output": 10, "reasoning": 6, "cache": {"read": 800, "write": 50}}
    step = {
        "type": "step_finish",
        "sessionID": "s",
        "part": {"reason": "stop", "tokens": tokens, "cost": 0.5},
    }
    actors.story("b", {"lines": [step], "files": {"b": "x"}}, agent="opencode")
    stats = {"total_tokens": 1016, "input_tokens": 1000, "output_tokens": 10, "cached": 800}
    lines = [{"type": "result", "status": "success", "stats": stats}]
    actors.story("c", {"lines": lines, "files": {"c": "x"}}, agent="gemini")
    ran = actors.run()
    assert ran.code == 0, ran.err
    counted = {
        one["session_id"].split("/")[-2]: (one["input_tokens"], one["output_tokens"])
        for one in actors.records()
    }
    assert counted == {"a": (1000, 10), "b": (1000, 16), "c": (1000, 16)}


def test_an_error_of_qwen_is_read_where_it_names_it(actors: Actors) -> None:
    """Newer versions put it into a key of its own; a refused key is one session, and not four."""
    actors.install("qwen")
    more = {"subtype": "error_during_execution", "is_error": True, "result": ""}
    more |= {"error": {"message": "[API Error: 401 no such key]"}}
    actors.story("a", {"lines": claude(**more), "code": 1}, agent="qwen")
    ran = actors.run()
    story = ran.story("a")
    assert (story["status"], story["sessions"]) == ("failed", 1), ran.err
    assert re.search("401 no such key", story["reason"])


def test_a_budget_that_cannot_hold_and_a_model_for_several_agents_are_refused(actors: Actors) -> None:
    """Both are said before anything starts, with what to do; each agent can have its own model."""
    for name in ("claude", "codex"):
        actors.install(name)
    ended = {"type": "turn.completed", "usage": {"input_tokens": 1000, "output_tokens": 10}}
    actors.story("a", {"lines": claude(), "files": {"a": "x"}}, agent="claude")
    actors.story("b", {"lines": [ended], "files": {"b": "x"}}, agent="codex")
    refused = actors.run("--cost-budget=5")
    assert refused.code == 1
    assert "cannot limit codex with a model that is not named" in refused.document["error"]["message"]
    assert "--allow-unpriced" in refused.document["error"]["hint"]
    mixed = actors.run("--model=opus")
    assert "model 'opus' would go to several agents: claude, codex" in mixed.document["error"]["message"]
    (actors.repo / "autopilot-multi.toml").write_text('[agents.codex]\nmodel = "gpt-5"\n')
    ran = actors.run("--model=opus", "--cost-budget=5")
    assert ran.code == 0, ran.err
    ((first, *_), (second, *_)) = actors.calls("a"), actors.calls("b")
    assert first[first.index("--model") + 1] == "opus"
    assert second[second.index("-m") + 1] == "gpt-5"
    (actors.repo / "autopilot-multi.toml").unlink()
    again = actors.run("--again", "--agent=claude", "--model=opus", "--cost-budget=5", "--allow-unpriced")
    assert again.code == 0, again.err
    assert "-m" not in actors.calls("b")[-1], "the model is the run's agent's"
    assert "the cost budget cannot limit codex" in again.err
    unlimited = actors.run("--again")
    assert unlimited.code == 0, unlimited.err
    said = "the price of codex with a model that is not named is unknown: tokens will be counted, no cost"
    assert unlimited.err.index(said) < unlimited.err.index("session 1 started")
    assert "the price of" not in ran.err, "it has one"


def test_doctor_knows_versions_and_sign_ins(actors: Actors, tmp_path: Path) -> None:
    """A version that was never tried is named; a key that codex does not read signs nobody in."""
    package = tmp_path / "node_modules" / "codex"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@openai/codex", "version": "9.9.9"}')
    actors.install("codex").rename(package / "bin" / "codex")
    (tmp_path / "actors" / "bin" / "codex").symlink_to(package / "bin" / "codex")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    actors.install("aider").rename(tmp_path / "venv" / "bin" / "aider")
    (tmp_path / "actors" / "bin" / "aider").symlink_to(tmp_path / "venv" / "bin" / "aider")
    (tmp_path / "venv/lib/python3.11/site-packages/aider_chat-9.8.7.dist-info").mkdir(parents=True)
    shown = actors.run("doctor", OPENAI_API_KEY="sk-x").out
    assert "codex 9.9.9" in shown
    assert "aider 9.8.7" in shown
    assert "no sign-in found; this version was never tried, tried: 0.166.0" in shown
