"""What real agents report as their spending, and how their programs end, against the books of the service."""

from typing import Any

import pytest

from tests.real_agents.conftest import Stage
from tests.real_agents.programs import NEWEST
from tests.real_agents.stories import alive, carry_one, work_sessions

pytestmark = pytest.mark.agents
CHARGES = pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "qwen", "opencode"])
HELPED = pytest.mark.parametrize("agent", ["claude", "codex", "qwen", "opencode"])


def assert_exact(stage: Stage, records: list[dict[str, Any]]) -> None:
    """Compare what was recorded with the books of the service."""
    charged = stage.scene.charged
    assert sum(record["input_tokens"] for record in records) == charged["input"]
    assert sum(record["output_tokens"] for record in records) == charged["output"]


@CHARGES
def test_totals_are_what_the_service_charged(stage: Stage, agent: str) -> None:
    """Over a resumed conversation and with tokens from a cache, each token counts once."""
    stage.configure(bypass=True)
    script = stage.play("a", {"sh": "true"}, {"write": ["wrong.txt", "made"]})
    body = script.replace('"id": "a"', '"id": "a", "cached": 800')
    carry_one(stage, body, "--verify=test -f right.txt", "--max-sessions=3", "--no-base-check")
    records = work_sessions(stage.repo)
    assert len({record["conversation"] for record in records[:2]}) == 1
    assert_exact(stage, records)
    if agent == "claude":
        replies = stage.scene.charged["input"] / 1000
        cost = replies * (200 * 3 + 800 * 0.3 + 10 * 15) / 1_000_000
        assert sum(record["cost_usd"] for record in records) == pytest.approx(cost)


@HELPED
def test_what_helpers_of_an_agent_use_counts(stage: Stage, agent: str) -> None:
    """A helper has a conversation of its own, also in the second session; each of its tokens counts once."""
    stage.configure(bypass=True)
    script = stage.play("a", {"helper": [{"sh": "true"}]}, {"sh": "sleep 9"})
    carry_one(stage, script, "--verify=test -f right.txt", "--max-sessions=2", "--no-base-check")
    records = work_sessions(stage.repo)
    assert len({record["conversation"] for record in records}) == 1
    # Newer qwen also asks in each session what to remember; that counts as well.
    more = 2 if NEWEST and agent == "qwen" else 0
    assert stage.scene.charged["replies"] == 10 + more, "three in each session, and two by its helper"
    assert_exact(stage, records)


@pytest.mark.parametrize("agent", ["aider"])
def test_totals_of_aider_are_exact(stage: Stage) -> None:
    """It prints rounded numbers, and would ask a model for the message of its commit without a word."""
    script = stage.play("a", {"write": ["a.txt", "made"]}).replace(
        '"id": "a"', '"id": "a", "uses": [1234, 5678]'
    )
    ran = carry_one(stage, script)
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert stage.scene.charged["replies"] == 1
    (record,) = work_sessions(stage.repo)
    assert_exact(stage, [record])
    assert record["cost_usd"] == pytest.approx((1234 * 2 + 5678 * 8) / 1_000_000), (
        "as the price of gpt-4.1 is"
    )


@pytest.mark.parametrize("agent", ["claude"])
def test_a_server_in_the_background_does_not_keep_a_finished_session(stage: Stage) -> None:
    """Claude stays while its server runs; its work is done, and nothing of it is left."""
    stage.configure(bypass=True)
    server = {"sh": "python3 -c 'import time; time.sleep(900)'", "background": True}
    body = stage.play("a", {"write": ["a.txt", "made"]}, server)
    ran = carry_one(stage, body)
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    assert alive(ran.data["run_id"]) == []
    (record,) = work_sessions(stage.repo)
    assert record["duration_seconds"] < 90


@pytest.mark.parametrize("agent", ["claude"])
def test_several_results_of_one_process_count_together(stage: Stage) -> None:
    """A command in the background that ends leads to another result; the first one is not forgotten."""
    stage.configure(bypass=True)
    body = stage.play("a", {"write": ["a.txt", "made"]}, {"sh": "sleep 3", "background": True})
    ran = carry_one(stage, body, "--cost-budget=40")
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    (record,) = work_sessions(stage.repo)
    assert_exact(stage, [record])


@pytest.mark.parametrize("agent", ["claude"])
def test_the_limit_of_a_session_is_what_is_left_of_the_budget(stage: Stage) -> None:
    """A story may spend all the money there is; once it is spent, the story is stopped, and not failed."""
    stage.configure(bypass=True)
    script = stage.play("a", {"sh": "true"}, {"write": ["a.txt", "made"]})
    dear = script.replace('"id": "a"', '"id": "a", "uses": [600000, 20000]')
    ran = carry_one(stage, dear, "--cost-budget=40")
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    (record,) = work_sessions(stage.repo)
    assert record["cost_usd"] == pytest.approx(3 * (600_000 * 3 + 20_000 * 15) / 1e6)
    poor = carry_one(stage, dear.replace('"a"', '"b"'), "--again", "--cost-budget=3")
    story = poor.story("a")
    assert (story["status"], story["kill_switch"]["name"]) == ("stopped", "cost-budget-exceeded"), poor.err
