"""How often and how long a story is tried: the limits of attempts, stories and verify commands."""

import json
from pathlib import Path
from typing import Any

from tests.acceptance.program import commit_stories, processes_with, run, write_story


def test_a_verify_command_that_takes_too_long_is_ended_with_its_processes(repo: Path, tmp_path: Path) -> None:
    """The attempt fails, the next one reads why, and nothing of the command is left; story and flag count."""
    slow = f"test -f quick || {{ echo begun; sh -c 'sleep 900; : {tmp_path}' & sleep 900; }}"
    work = "echo x >> work; ! grep -q 'exceeded its limit of .* min' $AUTOPILOT_PROMPT_FILE || touch quick"
    write_story(repo, "own", command=work, verify=[slow], verify_minutes=0.005)
    write_story(repo, "general", command=work, verify=[slow])
    commit_stories(repo)
    ran = run(repo, "run", "--json", "--verify-minutes", "0.01", "--grace-seconds", "1")
    assert ran.code == 0, ran.err
    for name, minutes in (("own", "0.005"), ("general", "0.01")):
        story = ran.story(name)
        assert (story["attempt"], story["sessions"]) == (2, 4)
        said = f"attempt 1 of 4 failed: verify command `{slow}` exceeded its limit of {minutes} min"
        assert said in ran.err
        log = run(repo, "logs", name, "--session", "2").out
        assert "begun\n" in log
        assert f"ended: exceeded its limit of {minutes} min" in log
    assert not processes_with(str(tmp_path))


def test_attempts_and_work_time_are_limited_by_story_and_run(repo: Path) -> None:
    """Each story has its own number of attempts, or the run's; a session ends with its story's time."""
    begins = "test -f half && echo x > whole && exit; echo half > half; sleep 900"
    write_story(repo, "own", command="echo x >> own", verify=["false"], max_attempts=2)
    write_story(repo, "general", command="echo x >> general", verify=["false"])
    write_story(repo, "slow", command=begins, verify=["true"], story_minutes=0.02)
    write_story(repo, "slow-proof", command="echo x > x", verify=["sleep 900"])
    commit_stories(repo)
    limits = ("--max-attempts=1", "--story-minutes=0.02", "--grace-seconds=1", "--no-base-check")
    ran = run(repo, "run", "--json", "--max-stories=4", *limits)
    assert ran.code == 3, ran.err
    for name, attempts, words in (("own", 2, "2 attempts"), ("general", 1, "1 attempt")):
        story = ran.story(name)
        assert story["reason"] == f"gave up after {words}: verify `false`: exit code 1"
        assert (story["attempt"], story["max_attempts"], story["sessions"]) == (
            attempts,
            attempts,
            2 * attempts,
        )
    assert "attempt 2 of 2 failed" in ran.err
    for name in ("slow", "slow-proof"):
        switch: dict[str, Any] = ran.story(name)["kill_switch"]
        assert switch["name"] == "story-time-exceeded"
        assert switch["detail"] == "the story has worked for its limit of 0.02 min"
        assert "--story-minutes" in switch["hint"]
        assert ran.story(name)["next"].startswith("autopilot-multi resume ")
    assert (Path(ran.story("slow")["workspace"]) / "half").exists(), "what it left is kept"
    resumed = run(repo, "resume", "--json")
    assert resumed.story("slow")["status"] == "done", "a resume gives it as much time again"
    assert resumed.story("slow-proof")["status"] == "stopped"
    table = run(repo, "status").out
    assert "2 of 2" in table
    assert "1 of 1" in table


AGENT = """\
echo "{\\"tokens\\": 1000000, \\"id\\": \\"talk-of-$1\\"}"
echo "$1 $2 $3" >> %(trace)s
case "$1 $2" in big*) grep -q small-could-not "$AUTOPILOT_PROMPT_FILE" && echo made > made;; esac
echo x >> tried
"""


def test_a_failed_attempt_is_escalated_to_another_model_and_another_agent(repo: Path, tmp_path: Path) -> None:
    """Each attempt has its worker, its price and its conversation; every view names who it was."""
    trace, script = tmp_path / "trace", tmp_path / "agent.sh"
    script.write_text(AGENT % {"trace": trace})
    events = '{session = "id", input-tokens = "tokens"}'
    agents = "".join(
        f"[agents.{name}]\n"
        f'argv = ["sh", "{script}", "{name}", "{{model}}", "new"]\n'
        f'resume = ["sh", "{script}", "{name}", "{{model}}", "{{session}}"]\nevents = {events}\n'
        for name in ("small", "big")
    )
    prices = "".join(
        f"[prices.{name}]\ninput = {cost}\noutput = 1\n" for name, cost in (("m1", 1), ("m2", 5))
    )
    settings = repo / "autopilot-multi.toml"
    settings.write_text(f'agent = "small"\nmodel = "m1"\nescalate = [":m2", "big"]\n{agents}{prices}')
    write_story(repo, "a", verify=["test -f made || { echo small-could-not; false; }"])
    write_story(repo, "b", verify=["false"], escalate=["big:m2"], max_attempts=2)
    commit_stories(repo)

    assert (
        "max-attempts allows 9 attempts at a step, but max-sessions only 5"
        in run(repo, "plan", "--max-attempts=9").err
    )
    planned = run(repo, "plan").out
    assert "escalates: attempt 2 by small:m2, attempt 3 by big and after it" in planned
    assert "escalates: attempt 2 by big:m2\n" in planned
    assert "at most 2 attempts" in planned

    ran = run(repo, "run", "--json", "--max-stories=1")
    assert ran.code == 4, ran.err
    assert trace.read_text().splitlines() == [
        "small m1 new",
        "small m2 talk-of-small",
        "big  new",
        "small m1 new",
        "big m2 new",
    ]
    done, failed = ran.story("a"), ran.story("b")
    assert (done["status"], done["attempt"], done["agent"], done["model"]) == ("done", 3, "big", None)
    assert done["usage"]["cost_usd"] == 6, "1 and 5 dollars; the other agent's model has no price"
    assert (failed["agent"], failed["model"], failed["escalated"]) == ("big", "m2", True)
    assert "(Implement, attempt 2 of 4, escalated to small:m2)" in ran.err
    records = (repo / ".orchestrator/metrics/sessions.jsonl").read_text().splitlines()
    work = [one for one in map(json.loads, records) if one["session_kind"] == "work"]
    assert [(one["agent_identity"], one["model"], one["escalated"]) for one in work] == [
        ("small", "m1", False),
        ("small", "m2", True),
        ("big", None, True),
        ("small", "m1", False),
        ("big", "m2", True),
    ]
    assert "escalated to small:m2, big" in run(repo, "report", "--format", "markdown").out
    assert "small:m2 (escalated)" in run(repo, "report", "--format", "html").out

    for wrong, hint in (("bigg", "did you mean 'big'? Allowed: "), (":", "agent:model")):
        refused = run(repo, "run", "--json", "--again", "--escalate", wrong)
        assert refused.code == 1
        assert "escalate" in refused.document["error"]["message"]
        assert hint in refused.document["error"]["hint"]
