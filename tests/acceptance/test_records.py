"""The records of real runs: every field that can be known, and sums that hold whatever ended the run."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import LIMIT, Ran, run, started, wait_until, write_story, writes
from tests.conftest import git

Record = dict[str, Any]
SPENT = {"status": "done", "usage": {"input_tokens": 100, "output_tokens": 7, "cost_usd": 0.25}}
SUMMED = ("iterations_completed", "stall_recovery_count", "spiral_recovery_count")


def spending(what: str) -> str:
    """Return a command that also tells what it has spent."""
    return f"echo '{json.dumps(SPENT)}' > $AUTOPILOT_RESULT_FILE; {what}"


def records(repo: Path, name: str) -> list[Record]:
    path = repo / ".orchestrator" / "metrics" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def check(repo: Path, **counts: int) -> Record:
    """Check that there is one run, that it is the sum of its stories, and they of their sessions."""
    loops = records(repo, "autopilot")
    (whole,) = [record for record in loops if record["kind"] == "run"]
    stories = [record for record in loops if record["kind"] == "story"]
    assert [record["autopilot_run_id"] for record in stories] == whole["child_run_ids"]
    assert len({record["autopilot_run_id"] for record in loops}) == len(loops) == whole["story_count"] + 1
    assert {record["parent_run_id"] for record in stories} == {whole["autopilot_run_id"]}
    told = {name: number for name, number in whole["counts"].items() if number}
    assert told == Counter(record["verdict"] for record in stories) == counts
    for name in SUMMED:
        assert whole[name] == sum(record[name] for record in stories), name
    assert whole["sessions"] == [session for record in stories for session in record["sessions"]]
    _check_spent(whole, stories)
    sessions = records(repo, "sessions")
    assert sorted(session["session_id"] for session in sessions) == sorted(whole["sessions"])
    for story in stories:
        own = [item for item in sessions if item["autopilot_run_id"] == story["autopilot_run_id"]]
        assert [session["session_id"] for session in own] == story["sessions"]
        assert {session["parent_run_id"] for session in own} <= {whole["autopilot_run_id"]}
        assert _total(own, "total_tokens") == story["total_tokens_used"]
        assert _total(own, "cost_usd") == pytest.approx(story["total_cost_usd"])
    return whole


def _check_spent(whole: Record, stories: list[Record]) -> None:
    assert whole["total_tokens_used"] == _total(stories, "total_tokens_used")
    assert whole["total_cost_usd"] == pytest.approx(_total(stories, "total_cost_usd"))
    assert whole["fallback_to_manual"] == any(record["fallback_to_manual"] for record in stories)


def _total(lines: list[Record], name: str) -> float | None:
    """Add up what is known; where nothing is, the sum is unknown too."""
    known = [line[name] for line in lines if line[name] is not None]
    return sum(known) if known else None


@pytest.fixture
def go(repo: Path) -> Path:
    """Write one story that is done, one that fails, one that is skipped, and one that waits for a file."""
    go = repo.parent / "go"
    wait = f"until test -f {go}; do sleep 0.05; done"
    write_story(repo, "a", command=spending(writes("a.txt")), verify=["test -s a.txt"])
    write_story(repo, "b", command=spending("exit 1"), depends_on=["a"])
    write_story(repo, "c", command="true", depends_on=["b"])
    write_story(repo, "d", command=f"touch {go}-ready; {wait}; {spending(writes('d.txt'))}")
    return go


def wait_for_b(repo: Path) -> None:
    """Await that three stories have their verdict while the fourth still runs."""
    counts: Callable[[], Record] = lambda: run(repo, "status", "--json").data["counts"]  # noqa: E731  asked often
    wait_until(lambda: run(repo, "status", "--json").code == 0, what="the run is there")
    wait_until(lambda: counts()["skipped"] == 1, what="c is skipped")


def faulty(repo: Path, fault: str, *arguments: str) -> Ran:
    """Run the program with a fault in it."""
    script = (
        f"import sys\nfrom runner.cli.main import run_program\n{fault}\nsys.exit(run_program(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments, "--json"],
        cwd=repo,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def test_a_run_that_ends_by_itself(repo: Path, go: Path) -> None:
    """Acceptance 67: done, failed and skipped stories add up; what was spent is all there."""
    go.touch()
    assert run(repo).code == 4
    whole = check(repo, done=2, failed=1, skipped=1)
    assert whole["stop_reason"] == "backlog-done"
    assert whole["total_tokens_used"] == 6 * 107, "two that were done, four attempts of one that failed"
    assert whole["total_cost_usd"] == pytest.approx(1.5)
    assert whole["iterations_completed"] == 6


def test_ten_stories_of_one_second_have_ids_of_their_own(repo: Path) -> None:
    """Acceptance 66: ten stories started at once; run, story and session records join both ways."""
    for number in range(10):
        write_story(repo, f"s{number}", command=writes(f"{number}.txt"))
    assert run(repo, "--max-stories=10").code == 0
    check(repo, done=10)


def test_a_run_that_waits_for_a_person_and_goes_on(repo: Path) -> None:
    """Acceptance 67: parked, then answered and resumed: one run record each time."""
    ask = {"status": "needs-decision", "decision": {"question": "Which?", "options": ["Red", "Blue"]}}
    asking = f"echo '{json.dumps(ask)}' > $AUTOPILOT_RESULT_FILE"
    answered = "grep -q 'Decided so far' $AUTOPILOT_PROMPT_FILE"
    write_story(repo, "a", command=f"{answered} && {writes('a.txt')} || {asking}")
    assert run(repo).code == 5
    assert check(repo, parked=1)["fallback_to_manual"] is True
    assert run(repo, "decide", "a", "A").code == 0
    assert run(repo, "resume").code == 0
    whole = check(repo, done=1)
    assert (len(whole["sessions"]), whole["iterations_completed"]) == (2, 2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_by_a_signal(repo: Path, go: Path, number: signal.Signals, code: int) -> None:
    """Acceptance 67: Ctrl-C and SIGTERM leave one run record that adds up; so does the resume."""
    with started(repo, "run", "--json", "--grace-seconds=2") as program:
        wait_for_b(repo)
        program.send_and_await(number, "stopping:")
        go.touch()
        assert program.finish().code == code
    whole = check(
        repo, **({"done": 2} if number is signal.SIGINT else {"done": 1, "stopped": 1}), failed=1, skipped=1
    )
    assert whole["stop_reason"] == whole["kill_switch"] == "user-abort"
    run(repo, "resume")
    check(repo, done=2, failed=1, skipped=1)


def test_a_run_that_a_kill_switch_ends(repo: Path, go: Path) -> None:
    """Acceptance 67: the budget is gone after the first sessions; what did not run is stopped, or skipped."""
    go.touch()
    assert run(repo, "--token-budget=100", "--max-stories=1").code == 2
    whole = check(repo, done=1, stopped=2, skipped=1)
    assert whole["total_tokens_used"] == 107


def test_a_story_that_crashes(repo: Path, go: Path) -> None:
    """Acceptance 67: a bug in one story is that story's failure, and counted as such."""
    go.touch()
    fault = """
from runner.story.pipeline import Pipeline
work = Pipeline._work
async def crash(self, *arguments):
    if self._story.id == "d":
        raise RuntimeError("a bug of ours")
    return await work(self, *arguments)
Pipeline._work = crash
"""
    assert faulty(repo, fault, "run").code == 4
    check(repo, done=1, failed=2, skipped=1)


COORDINATOR = """
from runner.run.orchestrator import Orchestrator
async def crash(self):
    while self._context.log.snapshot.stories["c"].status != "skipped":
        await self._changed.wait()
    raise RuntimeError("a bug of ours")
Orchestrator._watch_deadline = crash
"""
JOURNAL = """
from runner.core.errors import JournalError
from runner.core.events.events import StoryFinished
from runner.records.journal import Journal
append = Journal.append
def fail(self, events):
    if any(isinstance(event.body, StoryFinished) and event.body.story_id == "c" for event in events):
        raise JournalError("the disk is full", hint="free some")
    append(self, events)
Journal.append = fail
"""


@pytest.mark.parametrize(
    ("fault", "code", "counts"),
    [
        (COORDINATOR, "bug", {"done": 1, "failed": 1, "skipped": 1, "running": 1}),
        (JOURNAL, "journal", {"done": 1, "failed": 1, "waiting": 1, "running": 1}),
    ],
    ids=["coordinator", "journal"],
)
def test_a_coordinator_that_fails_still_writes_what_it_knows(
    repo: Path, go: Path, fault: str, code: str, counts: dict[str, int]
) -> None:
    """Acceptance 67: records as far as known, the error itself is shown, and a resume makes them whole."""
    ran = faulty(repo, fault, "run")
    assert ran.code == 2
    assert ran.document["error"]["code"] == code
    assert ran.document["error"]["message"].endswith(
        {"bug": "a bug of ours", "journal": "the disk is full"}[code]
    )
    whole = check(repo, **counts)
    assert (whole["stop_reason"], whole["completed_at"], whole["verdict"]) == ("interrupted", None, None)
    go.touch()
    assert run(repo, "resume").code == 4
    assert check(repo, done=2, failed=1, skipped=1)["stop_reason"] == "backlog-done"


def test_an_end_that_the_journal_does_not_take(repo: Path, go: Path) -> None:
    """Acceptance 67: every story has its verdict, only the run's own end is missing until the resume."""
    go.touch()
    fault = JOURNAL.replace("StoryFinished", "RunEnded").replace(' and event.body.story_id == "c"', "")
    ran = faulty(repo, fault, "run")
    assert (ran.code, ran.document["error"]["code"]) == (2, "journal")
    assert check(repo, done=2, failed=1, skipped=1)["stop_reason"] == "interrupted"
    run(repo, "resume")
    assert check(repo, done=2, failed=1, skipped=1)["stop_reason"] == "backlog-done"


def test_records_that_cannot_be_written_do_not_hide_the_error(repo: Path, go: Path) -> None:
    """Acceptance 67: with the place of the records taken, the first error is still the one that is shown."""
    (repo / ".orchestrator").mkdir()
    (repo / ".orchestrator" / "metrics").write_text("in the way")
    ran = faulty(repo, COORDINATOR, "run")
    assert ran.document["error"]["message"].endswith("a bug of ours")
    assert not go.exists()


def test_a_run_that_is_killed_and_resumed(repo: Path, go: Path) -> None:
    """Acceptance 67: kill -9, then resume: one run record, and nothing is counted twice."""
    with started(repo, "run") as program:
        wait_for_b(repo)
        os.kill(program.pid, signal.SIGKILL)
        program.finish()
    go.touch()
    assert run(repo, "resume").code == 4
    whole = check(repo, done=2, failed=1, skipped=1)
    assert whole["total_tokens_used"] == 6 * 107


def test_a_run_that_is_killed_before_its_records(repo: Path, go: Path) -> None:
    """Acceptance 67: killed between its last event and its records; a resume has nothing to do but these."""
    go.touch()
    fault = """
import os, signal
from runner.records import telemetry
telemetry.write_run = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
"""
    assert faulty(repo, fault, "run").code == -signal.SIGKILL
    assert not (repo / ".orchestrator" / "metrics").exists()
    assert "nothing left" in run(repo, "resume").err
    check(repo, done=2, failed=1, skipped=1)


def test_a_session_record_says_all_that_can_be_known(repo: Path) -> None:
    """Waves from the result, files from the commit; what nobody told is named as assumed."""
    waves = [{"wave": 1, "role": "Build", "agents": 3}, {"wave": 2, "role": "Check", "agents": 1}]
    told = {"status": "done", "waves": waves, "effectiveness": {"planned_issues": 4, "carryover": 1}}
    report = f"echo '{json.dumps(told)}' > $AUTOPILOT_RESULT_FILE"
    write_story(repo, "a", command=f"echo 1 > 1; echo 2 > 2; rm README.md; {report}", verify=["true"])
    commits = "echo 1 > 1; git add -A; git commit -qm own; echo 2 > 1; echo 2 > 2"
    write_story(
        repo, "b", command=f'{commits}; echo \'{{"total_waves": 5, "waves": "?"}}\' > $AUTOPILOT_RESULT_FILE'
    )
    write_story(repo, "c", command="exit 1")
    assert run(repo).code == 4
    lines = {line["session_id"].split("/", 1)[1]: line for line in records(repo, "sessions")}
    work, verify = lines["a/01-implement-1"], lines["a/02-verify-1"]
    assert (work["total_waves"], work["waves"], work["total_files_changed"]) == (2, waves, 3)
    assert work["effectiveness"] == {"planned_issues": 4, "carryover": 1, "completion_rate": 0.75}
    assert (verify["total_waves"], verify["waves"], verify["total_files_changed"]) == (0, [], 0)
    assert verify["assumed"] == []
    own = lines["b/01-implement-1"]
    assert (own["total_waves"], own["waves"], own["total_files_changed"]) == (5, [], 2)
    failed = lines["c/01-implement-1"]
    assert failed["total_files_changed"] == 0
    assert "total_files_changed" in failed["assumed"], "it was never committed"


def test_a_run_from_a_linked_worktree_is_recorded_in_the_main_checkout(repo: Path, tmp_path: Path) -> None:
    """One repository has one history, wherever its runs are started."""
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", str(linked))
    write_story(linked, "a", command=writes("a.txt"))
    assert run(linked).code == 0
    check(repo, done=1)
    assert not (linked / ".orchestrator" / "metrics").exists()


def test_impossible_amounts_are_ignored_and_named(repo: Path) -> None:
    """A session cannot make room in a budget by negative or endless amounts; the rest still counts."""
    amounts = '"input_tokens": -5, "output_tokens": Infinity, "cost_usd": NaN'
    result = f'{{"status": "done", "usage": {{{amounts}}}, "agent_summary": {{"complete": 2, "failed": -9}}}}'
    write_story(repo, "a", command=f"echo '{result}' > $AUTOPILOT_RESULT_FILE; {writes('a')}")
    ran = run(repo, "--cost-budget", "10", "--json")
    assert ran.story("a")["status"] == "done", ran.err
    (session,) = [record for record in records(repo, "sessions") if record["session_kind"] == "work"]
    assert (session["input_tokens"], session["output_tokens"], session["cost_usd"]) == (None, None, None)
    assert session["agent_summary"] == {"complete": 2, "partial": 0, "failed": 0, "spiral": 0}
    for name in ("usage.input_tokens", "usage.output_tokens", "usage.cost_usd", "agent_summary.failed"):
        assert name in ran.err
