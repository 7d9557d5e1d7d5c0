"""What real agents report as their spending, and how their programs end, against the books of the service."""

import pytest

from tests.real_agents.conftest import Stage
from tests.real_agents.stories import alive, carry_one, work_sessions

pytestmark = pytest.mark.agents
CHARGES = pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "qwen", "opencode"])


@CHARGES
def test_totals_are_what_the_service_charged(stage: Stage, agent: str) -> None:
    """Over a resumed conversation and with tokens from a cache, each token counts once."""
    stage.configure(bypass=True)
    script = stage.play("a", {"sh": "true"}, {"write": ["wrong.txt", "made"]})
    body = script.replace('"id": "a"', '"id": "a", "cached": 800')
    carry_one(stage, body, "--verify=test -f right.txt", "--max-sessions=3", "--no-base-check")
    records = work_sessions(stage.repo)
    assert len({record["conversation"] for record in records[:2]}) == 1
    charged = dict(stage.scene.charged)
    assert sum(record["input_tokens"] for record in records) == charged["input"]
    assert sum(record["output_tokens"] for record in records) == charged["output"]
    if agent == "claude":
        replies = charged["input"] / 1000
        cost = replies * (200 * 3 + 800 * 0.3 + 10 * 15) / 1_000_000
        assert sum(record["cost_usd"] for record in records) == pytest.approx(cost)


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
    assert (record["input_tokens"], record["output_tokens"]) == (
        stage.scene.charged["input"],
        stage.scene.charged["output"],
    )
