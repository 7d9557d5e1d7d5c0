"""The limits of a story's loop: what they count, how they end it, and what the user gets to read."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.acceptance.program import Ran, run, write_story
from tests.conftest import git

PARTIAL = 'echo x >> x; echo \'{"status": "partial"}\' > $AUTOPILOT_RESULT_FILE'
STEPS = 7


def _flow_story(repo: Path, trace: Path) -> None:
    """Add a story with a flow of more steps than a step may have sessions."""
    steps = "".join(
        f'[[steps]]\nnumber = {number}\nname = "Part {number}"\n'
        f'command = "echo {number} | tee -a {trace} > p"\n'
        for number in range(1, STEPS + 1)
    )
    (repo / "flows").mkdir()
    (repo / "flows" / "parts.toml").write_text(f'summary = "many parts"\n{steps}')
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "a flow")
    write_story(repo, "a", command="true", flow="parts")


def _says_the_switch(text: str) -> bool:
    hint = "this is an orderly end; `autopilot-multi resume` gives the story new sessions"
    plain = " ".join(text.replace("\\`", "`").split())
    return "max-sessions-reached: 3 of 3 sessions used" in plain and hint in plain


@pytest.mark.protocol("004.8")
@pytest.mark.protocol("004.9")
def test_max_sessions_counts_the_loop_and_ends_it_in_order(repo: Path, tmp_path: Path) -> None:
    """Three sessions of a flow of seven steps, then it is stopped, nothing failed, and a resume continues."""
    trace = tmp_path / "trace"
    _flow_story(repo, trace)
    ran = run(repo, "--max-sessions=3", "--json")
    assert trace.read_text().split() == ["1", "2", "3"]
    assert (ran.code, ran.story("a")["status"], ran.story("a")["sessions"]) == (5, "stopped", 3)
    assert ran.story("a")["kill_switch"]["name"] == "max-sessions-reached"

    history = run(repo, "history").out
    assert "max-sessions-reached" in history
    assert "backlog-done" not in history
    assert "kill-switches: none" in history
    records = [
        json.loads(line) for line in (repo / ".orchestrator/metrics/autopilot.jsonl").read_text().splitlines()
    ]
    assert [(one["verdict"], one["max_sessions"], one["iterations_completed"]) for one in records] == [
        ("stopped", 3, 3)
    ] * 2
    assert records[-1]["stop_reason"] == "max-sessions-reached"

    again = run(repo, "resume", "--json")
    assert (again.code, trace.read_text().split()) == (5, ["1", "2", "3", "4", "5", "6"])
    last = run(repo, "resume", "--json")
    assert (last.code, last.story("a")["status"]) == (0, "done")


@pytest.mark.protocol("004.8")
def test_without_a_limit_each_step_has_five_sessions(repo: Path, tmp_path: Path) -> None:
    """A flow of seven steps is done; a step that is never done has five sessions, and so has `quick`."""
    _flow_story(repo, tmp_path / "trace")
    write_story(repo, "b", command=PARTIAL)
    ran = run(repo, "--json")
    assert (ran.story("a")["status"], ran.story("a")["sessions"]) == ("done", STEPS)
    assert (ran.story("b")["status"], ran.story("b")["sessions"]) == ("stopped", 5)
    assert ran.code == 5
    write_story(repo, "c", command="true", flow="parts")
    explicit = run(repo, "--only=c", "--max-sessions=5", "--json")
    assert (explicit.story("c")["status"], explicit.story("c")["sessions"]) == ("stopped", 5)


@pytest.mark.protocol("004.18")
@pytest.mark.protocol("004.9")
def test_a_story_that_a_switch_ended_is_shown_with_name_and_hint(repo: Path) -> None:
    """End of the run, narration, status, each report, history: nobody has to look the name up."""
    write_story(repo, "a", command=PARTIAL)
    ran = run(repo, "--max-sessions=3", "--no-color")
    assert ran.code == 5
    assert _says_the_switch(ran.out)
    assert _says_the_switch(ran.err)
    assert _says_the_switch(run(repo, "status").out)
    for form in ("markdown", "github", "gitlab"):
        told = run(repo, "report", "--format", form).out.replace("%3A", ":")
        assert "max-sessions-reached" in told, form
        assert "gives the story new sessions" in told, form
    page = run(repo, "report", "--format", "html").out
    assert "<b>max-sessions-reached</b>" in page
    assert "gives the story new sessions" in page
    (verdict,) = _verdicts(run(repo, "report", "--format", "junit"))
    assert verdict.find("error") is None, "an orderly end is no error"
    skipped = verdict.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "max-sessions-reached: 3 of 3 sessions used"
    assert "gives the story new sessions" in (skipped.text or "")
    assert "hint: max-sessions-reached: this is an orderly end" in run(repo, "history").out


@pytest.mark.protocol("004.18")
@pytest.mark.protocol("004.58")
def test_only_agents_that_did_not_recover_stop_the_loop(repo: Path) -> None:
    """A failed agent that was retried successfully is no failed wave, by the summary or by its wave."""
    said: dict[str, object] = {
        "retried": {"agent_summary": {"complete": 3, "failed": 2, "recovered": 2}},
        "by-wave": {
            "agent_summary": {"complete": 3, "failed": 1},
            "waves": [{"wave": 1, "agent_summary": {"failed": 1, "recovered": 1}}, "unknown", {"wave": 2}],
        },
        "broken": {"agent_summary": {"complete": 3, "failed": 2, "recovered": 1}},
        "broken-wave": {"waves": [{"failed": 1, "recovered": 1}, {"failed": 1}]},
        "silent": {"agent_summary": {"recovered": 1}, "waves": 3},
    }
    for name, fields in said.items():
        result = json.dumps({"status": "done", **(fields if isinstance(fields, dict) else {})})
        write_story(repo, name, command=f"echo x > {name}; echo '{result}' > $AUTOPILOT_RESULT_FILE")
    ran = run(repo, "--no-color")
    assert ran.code == 2
    status = run(repo, "status", "--json")
    assert {story["id"]: story["status"] for story in status.data["stories"]} == {
        "retried": "done",
        "by-wave": "done",
        "broken": "stopped",
        "broken-wave": "stopped",
        "silent": "done",
    }
    assert "failed-wave: 1 agent of the session failed and did not recover" in ran.out
    assert "hint: find out why the agents failed" in ran.out
    errors = [error for case in _verdicts(run(repo, "report", "--format", "junit")) for error in case]
    assert [error.get("type") for error in errors] == ["stopped", "stopped"]
    assert all("find out why the agents failed" in (error.text or "") for error in errors)


@pytest.mark.protocol("004.24")
def test_a_run_has_four_hours_unless_told_otherwise(repo: Path) -> None:
    """The default, its bounds, and what the help says about them."""
    assert run(repo, "config", "max-hours").out == "4\n"
    text = " ".join(run(repo, "run", "--help").out.split())
    assert "how many hours the whole run may take (default: 4; 0.5 to 24)" in text
    assert "auto: 5 for quick, 5 per step for flows (default: auto; 1 to 50)" in text
    write_story(repo, "a", command="true")
    low, high = (run(repo, "plan", f"--max-hours={hours}").err for hours in ("0.1", "48"))
    assert "--max-hours 0.1 is below 0.5 h; using 0.5 h" in low
    assert "--max-hours 48 is above 24 h; using 24 h" in high


def _verdicts(ran: Ran) -> list[ET.Element]:
    document = ET.fromstring(ran.out)  # noqa: S314  our own
    return [case for case in document.iter("testcase") if case.get("name") == "verdict"]
