"""Agents that speak the Agent Client Protocol, with a small one of the tests' own and the real program."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.agents.acp import driver
from runner.agents.acp.agent import AcpAgent
from runner.agents.listener import OutputListener
from runner.core.agent_settings import AgentSettings
from runner.core.limits.agent_output import Fault, Final, Tally
from tests.acceptance.program import processes_with, run, started, wait_until, write_story
from tests.conftest import git

AGENT = Path(__file__).with_name("acp_agent.py")


def configure(repo: Path, *plans: str) -> None:
    """Describe an agent for each plan, under its name."""
    lines = ['verify = ["test -f a.txt"]', 'base-check = "off"', "max-attempts = 2", "peer-abort = 1000"]
    for plan in plans:
        lines += [f"[agents.{plan}]", f"acp = {json.dumps([sys.executable, str(AGENT), plan])}"]
        write_story(repo, plan, agent=plan)
    for tier in ("green", "warn", "degraded"):
        lines += [f"[tiers.{tier}]", "memory-gb = 0.1"]
    (repo / "autopilot-multi.toml").write_text("\n".join(lines))
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "stories")


def records(repo: Path, story: str) -> list[dict[str, Any]]:
    """Return the records of a story's work sessions."""
    path = repo / ".orchestrator" / "metrics" / "sessions.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [one for one in found if one["session_kind"] == "work" and one["agent_identity"] == story]


def test_a_story_is_done_over_the_protocol(repo: Path, tmp_path: Path) -> None:
    """Start, permissions, resume, usage and a missing sign-in, as what becomes of the stories."""
    configure(repo, "works", "second", "signed-out")
    ran = run(repo, "--json", "--model=m", "--agent=works", env={"ACP_HOME": str(tmp_path)})
    status = {story["id"]: story["status"] for story in ran.data["stories"]}
    assert status == {"works": "done", "second": "done", "signed-out": "failed"}, ran.err
    (one,) = records(repo, "works")
    assert (one["input_tokens"], one["output_tokens"], one["cost_usd"]) == (120, 7, 0.25)
    assert one["tool_uses"] == 3
    assert "its agent was denied rm -rf /x;" in ran.err, "what is not allowed is rejected, and named"
    first, second = records(repo, "second")
    assert first["conversation"] == second["conversation"]
    assert (first["cost_usd"], second["cost_usd"]) == (0.25, 0.25), "the cost of the conversation, once"
    (refused,) = records(repo, "signed-out")
    assert refused["conversation"] is None
    assert "Authentication required (sign in first, with one of: Log in)" in ran.story("signed-out")["reason"]
    seen = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    told = {each["method"]: each["params"] for each in seen}
    nothing = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    assert told["initialize"]["clientCapabilities"] == nothing
    assert told["session/new"]["mcpServers"] == []
    assert told["session/set_model"]["modelId"] == "m"


def test_a_stop_leaves_nothing(repo: Path, tmp_path: Path) -> None:
    """The driver, the agent and all that it has started are gone."""
    configure(repo, "sleeps")
    nap = f"600.{os.getpid()}"
    env = {"ACP_HOME": str(tmp_path), "NAP": nap}
    with started(repo, "--json", env=env) as running:
        wait_until(lambda: processes_with(nap), what="the tool runs")
        running.send(signal.SIGTERM)
        ran = running.finish()
    assert (ran.code, ran.story("sleeps")["status"]) == (143, "stopped")
    assert processes_with(nap) == []


def test_a_stopped_driver_cancels_the_turn(tmp_path: Path) -> None:
    """An agent that outlives the signal learns that its turn is over."""
    argv = (sys.executable, "-I", driver.__file__, "{}", sys.executable, str(AGENT), "sleeps")
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, env={"ACP_HOME": str(tmp_path)}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        while b'"type": "tool"' not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    assert (tmp_path / "cancelled").exists()


def drive(plan: str, tmp_path: Path, **orders: object) -> tuple[int, Tally]:
    """Run the driver alone; return its exit code and all that it said."""
    argv = (sys.executable, "-I", driver.__file__, json.dumps(orders), sys.executable, str(AGENT), plan)
    ran = subprocess.run(
        argv,
        input=b"Do it.",
        stdout=subprocess.PIPE,
        check=False,
        cwd=tmp_path,
        env={"ACP_HOME": str(tmp_path)},
    )
    listener = OutputListener(AcpAgent("mine", AgentSettings(acp=("x",))))
    listener.feed(ran.stdout, 0.0)
    return ran.returncode, listener.tally


@pytest.mark.parametrize(
    ("plan", "orders", "fault", "words"),
    [
        ("refuses", {}, Fault.LOST, "it refused to continue"),
        ("full", {}, None, "its limit of tokens"),
        ("limited", {}, Fault.LIMIT, "429: rate limit"),
        ("dies", {}, Fault.PERMANENT, "exited with code 1: invalid api key: abc"),
        ("works", {"resume": "unknown"}, Fault.LOST, "session not found"),
        ("forgets", {"resume": "s1"}, Fault.LOST, "session not found"),
    ],
)
def test_every_end_of_a_turn_has_its_meaning(
    tmp_path: Path, plan: str, orders: dict[str, object], fault: Fault | None, words: str
) -> None:
    """Stop reasons, errors and a dead process tell the work from the service."""
    code, tally = drive(plan, tmp_path, **orders)
    assert tally.final is not None
    assert (code, tally.final.ok, tally.final.fault) == (1, False, fault)
    assert words in tally.final.message


def test_permissions_follow_the_settings(tmp_path: Path) -> None:
    """`bypass` allows everything; without it, edits, verify commands and plain git."""
    assert drive("works", tmp_path, bypass=True)[1].final == Final(ok=True)
    code, tally = drive("forgets", tmp_path, commands=["test -f a.txt"])
    assert (code, tally.said, tally.conversation) == (0, "All done.", ""), "it could not be resumed"
    assert tally.final is not None
    assert tally.final.denied == ("rm -rf /x",)
    orders = driver.Orders(json.dumps({"prefixes": ["autopilot-multi state show"]}))
    allowed = ("git commit -m x", "git add -A && git commit -qm x", "autopilot-multi state show a")
    denied = (
        "git push",
        "git log; rm x",
        "git log $(rm x)",
        "rm x && git log",
        "autopilot-multi state show & x",
    )
    assert all(orders.allows("execute", command) for command in allowed)
    assert not any(orders.allows("execute", command) for command in denied)
    assert not orders.allows("fetch", "")


def test_an_error_of_the_service_is_told_from_one_of_the_work() -> None:
    """The words of an error decide, then its number."""
    agent = AcpAgent("mine", AgentSettings(acp=("x",)))

    def fault(**fields: object) -> Fault | None:
        seen = agent.parse(json.dumps({"type": "result", "ok": False, **fields}).encode())
        assert seen is not None
        assert seen.final is not None
        return seen.final.fault

    assert fault(message="Internal error: 429: rate limit", code=-32603) is Fault.LIMIT
    assert fault(message="Internal error: Cannot connect to API", code=-32603) is Fault.TRANSIENT
    assert fault(message="Please log in", code=-32000) is Fault.PERMANENT
    assert fault(message="Resource not found", code=-32002) is Fault.LOST
    assert fault(stop="refusal") is Fault.LOST
    assert fault(stop="max_turn_requests") is None
    assert agent.parse(b"plain") is None
    assert agent.parse(b'{"type": 7}') is None
