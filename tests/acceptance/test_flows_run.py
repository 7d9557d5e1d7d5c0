"""Whole flows by the real program: state files, retries, boundaries, decisions, re-entry."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.acceptance.flow_stories import AUTODEV, AUTOPILOT, sessions, state_text, story
from tests.acceptance.program import run, started, wait_until, write_story
from tests.conftest import git


@pytest.fixture(autouse=True)
def _remembering(memory: Path) -> None:
    """Let the stand-in agent remember what it did."""


@pytest.mark.parametrize(
    ("dialect", "file", "first"),
    [("rich", AUTOPILOT, "step: 0"), ("pointer", AUTOPILOT, "step: 1"), ("autodev", AUTODEV, "step: 1")],
)
def test_a_new_story_gets_its_state_file_at_the_first_step(
    repo: Path, memory: Path, dialect: str, file: str, first: str
) -> None:
    """Acceptance 49: created at step 0 (rich) or 1; here the first step never succeeds."""
    story(repo, "a", "fail:Problem:99", dialect=dialect)
    ran = run(repo, "--json")
    assert first in state_text(repo, ran, "a", file)
    assert sessions(memory)


def test_a_step_that_fails_is_retried_three_times_then_failed(repo: Path, memory: Path) -> None:
    """Acceptance 51: 1 run + 3 retries, `failed` with retry_count 3; rich has the blocker and the log.

    Fewer attempts leave the same file, whose protocol knows no other number.
    """
    story(repo, "a", "fail:Problem:99", dialect="rich")
    story(repo, "b", "fail:Problem:99")
    story(repo, "short", "fail:Problem:99", dialect="rich", max_attempts=2)
    ran = run(repo, "--json")
    assert ran.code == 5, "what is used up is asked about at once"
    rich, autodev = state_text(repo, ran, "a", AUTOPILOT), state_text(repo, ran, "b")
    short = state_text(repo, ran, "short", AUTOPILOT)
    assert "failed 2 consecutive times" in short
    assert len([line for line in sessions(memory) if line.startswith("short-")]) == 2
    for text in (rich, autodev, short):
        assert "status: failed" in text
        assert "retry_count: 3" in text
    assert "failed 4 consecutive times" in rich
    assert rich.count("exit code 1") >= 4
    assert len([line for line in sessions(memory) if line.startswith("a-")]) == 4
    shown = run(repo, "status", "--json")
    assert shown.story("b")["retry_count"] == 3
    table = run(repo, "status").out
    assert table.index("blocker: b: ") < table.index("STORY"), "what needs a person comes first"
    assert table.count("retry: b: ") == 4


def test_a_failed_step_is_presented_on_re_entry_and_never_retried_silently(repo: Path, memory: Path) -> None:
    """Acceptance 52: nothing runs until a choice; retry gives 0 and goes on, skip skips."""
    for name in ("a", "b"):
        story(repo, name, "fail:Problem:4")
    assert run(repo, "--json").code == 5
    before = len(sessions(memory))
    parked = run(repo, "--json")
    assert parked.code == 5
    assert len(sessions(memory)) == before, "nothing ran"
    assert ">   1 Problem           failed, retried 3 times" in parked.err
    assert "decision: a: Problem — 3 consecutive failures" in run(repo, "status").out
    assert {parked.story(name)["status"] for name in ("a", "b")} == {"parked"}
    assert "Last failure reason: session: exit code 1 — this attempt fails" in run(repo, "decide", "a").out
    assert run(repo, "decide", "a", "A").code == 0
    assert run(repo, "decide", "b", "B").code == 0
    ran = run(repo, "resume", "--json")
    assert ran.story("a")["status"] in {"done", "parked"}
    assert "a-1 attempt 1" in sessions(memory)[before:]
    assert not any(line.startswith("b-1 ") for line in sessions(memory)[before:]), "b skipped its first step"
    again = run(repo, "--json")
    assert not any(line.startswith("b-1 ") for line in sessions(memory)[before:]), "also in the next run"
    assert "consecutive failures" not in again.story("b")["reason"]


def test_success_resets_the_retries(repo: Path, memory: Path) -> None:
    """Acceptance 53: after two retries and a success retry_count is 0 and the rich log is empty."""
    story(repo, "a", "fail:Problem:2", dialect="rich")
    ran = run(repo, "--json", "--cross-boundaries")
    assert ran.code == 0, ran.err
    text = state_text(repo, ran, "a", AUTOPILOT)
    assert "retry_count: 0" in text
    assert "exit code 1" not in text
    assert "| 0 | Problem |" in text
    assert sessions(memory)[:3] == ["a-0 attempt 1", "a-0 attempt 2", "a-0 attempt 3"]


def test_three_failures_across_runs_open_the_circuit(repo: Path, memory: Path) -> None:
    """Acceptance 54: the same step fails in three runs; even --retry-failed asks a person first."""
    story(repo, "a", "fail:Problem:99")
    for _ in range(3):
        assert run(repo, "--retry-failed" if sessions(memory) else "run", "--json").code == 5
    before = len(sessions(memory))
    ran = run(repo, "--retry-failed", "--json")
    assert ran.code == 5
    assert "across runs" in ran.story("a")["reason"]
    assert len(sessions(memory)) == before


def test_a_boundary_ends_the_chain_and_an_answer_goes_on(repo: Path, memory: Path) -> None:
    """Acceptance 55, 57, 62: after Decompose the next step is not started; steps before chain unasked."""
    story(repo, "a")
    ran = run(repo, "--json")
    assert ran.code == 5
    assert sessions(memory) == [f"a-{number} attempt 1" for number in (1, 2, 3, 4, 5)]
    text = state_text(repo, ran, "a")
    assert "step: 6" in text
    assert "status: not_started" in text
    assert "phase: 0" in text
    assert "name: awaiting-invocation" in text
    assert "retry_count: 0" in text
    asked = run(repo, "decide")
    assert "DECISION REQUIRED: Decompose complete — start implementation?" in asked.out
    assert run(repo, "decide", "a", "A").code == 0
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0, resumed.err
    assert sessions(memory)[5] == "a-6 attempt 1"
    assert "step: done" in state_text(repo, resumed, "a")
    assert git(repo, "worktree", "list").count("\n") == 1, "the finished story's worktree is gone"


def test_cross_boundaries_goes_on_unasked(repo: Path) -> None:
    """`--cross-boundaries` takes the boundary in a fresh session."""
    story(repo, "a")
    ran = run(repo, "--cross-boundaries", "--json")
    assert ran.code == 0, ran.err
    assert "step: done" in state_text(repo, ran, "a")


def test_folders_win_over_the_state_file(repo: Path, memory: Path) -> None:
    """Acceptance 50: the file says step 1, the folders show 1 and 2 done: corrected, logged, gone on."""
    story(repo, "a", "fail:Plan:99")
    docs = repo / "_docs/stories/a"
    for path in ("00_problem/problem.md", "00_problem/acceptance_criteria.md", "01_solution/solution.md"):
        (docs / path).parent.mkdir(parents=True, exist_ok=True)
        (docs / path).write_text("there\n")
    (docs / AUTODEV).write_text(
        "# Autodev State\n\n## Current Step\nflow: greenfield\nstep: 1\nname: Problem\nstatus: in_progress\n"
        'sub_step:\n  phase: 0\n  name: awaiting-invocation\n  detail: ""\nretry_count: 0\ncycle: 1\n'
        "\n## Notes of ours\nkeep me\n"
    )
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "docs")
    ran = run(repo, "--json")
    assert sessions(memory)[0] == "a-3 attempt 1"
    text = state_text(repo, ran, "a")
    assert "step: 3" in text
    assert "keep me" in text
    events = run(repo, "status")
    assert "the folders say" in ran.err
    assert events.code == 0


def test_a_step_without_its_artifacts_is_not_done(repo: Path) -> None:
    """A session that claims success and leaves nothing has failed; its artifacts are named."""
    write_story(repo, "a", flow="greenfield", command="echo nothing; true")
    ran = run(repo, "--json")
    assert ran.story("a")["status"] == "parked"
    assert "_docs/stories/a/00_problem/problem.md" in run(repo, "decide", "a").out


def test_an_agents_question_parks_the_story_and_siblings_go_on(repo: Path, memory: Path) -> None:
    """Acceptance 63, 64: parked with exit 5, recorded once, answered later, told to the next session."""
    story(repo, "a", "ask:Research", dialect="rich")
    write_story(repo, "b", command="echo b > b.txt")
    ran = run(repo, "--json", "--cross-boundaries")
    assert ran.code == 5
    assert ran.story("b")["status"] == "done"
    assert run(repo, "decide", "a", "A", "--json").code == 0
    assert run(repo, "decide", "a", "B").code == 1, "an answer counts once"
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0, resumed.err
    text = state_text(repo, resumed, "a", AUTOPILOT)
    assert text.count("Which database?") == 1
    assert "Postgres" in text
    assert sessions(memory).count("a-1 attempt 1") == 2


def test_the_unattended_get_the_recommended_answer(repo: Path) -> None:
    """`--decide-default recommended` answers by itself, and says so."""
    story(repo, "a", "ask:Research")
    ran = run(repo, "--json", "--decide-default=recommended")
    assert ran.code == 0, ran.err
    assert "decided by recommended: B" in ran.err


def test_a_session_that_goes_round_in_circles_is_recovered_twice_and_then_asked_about(
    repo: Path, memory: Path
) -> None:
    """The same artifact rewritten without change: ended, looked at again, tried again, and it passes.

    After two recoveries that did not help, a person is asked in the recovery form.
    """
    story(repo, "a", "circle:Problem:2", "fail:Research:99")
    story(repo, "b", "circle:Problem:99")
    ran = run(repo, "--json", "--grace-seconds=1")
    assert ran.code == 5
    assert "without a meaningful change" in ran.err
    recovered, stuck = ([one for one in sessions(memory) if one.startswith(name)] for name in "ab")
    assert recovered[:4] == ["a-1 attempt 1"] * 3 + ["a-2 attempt 1"]
    assert "stuck" in ran.story("b")["reason"]
    assert len(stuck) == 3
    assert "RECOVERY: Problem stuck at step 1" in run(repo, "decide").out


def test_the_same_question_after_its_answer_is_not_asked_for_ever(repo: Path, memory: Path) -> None:
    """An agent that asks what it was told is stuck, and a person hears of that instead."""
    story(repo, "a", "nag:Problem")
    assert run(repo, "--json").code == 5
    assert run(repo, "decide", "a", "A").code == 0
    ran = run(repo, "resume", "--json")
    assert ran.code == 5
    assert "stuck" in ran.story("a")["reason"]
    assert len(sessions(memory)) == 4


def test_a_tracker_that_does_not_let_us_in_is_asked_about_and_the_local_one_recorded(
    repo: Path, memory: Path
) -> None:
    """A configured tracker without access asks before Plan; without it, tasks are marked as pending."""
    (repo / ".mcp.json").write_text('{"mcpServers": {"user-Jira-MCP-Server": {}}}')
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "servers")
    story(repo, "a")
    ran = run(repo, "--json", "--cross-boundaries")
    assert ran.code == 5
    assert "Tracker authentication failed" in ran.story("a")["reason"]
    assert sessions(memory) == ["a-1 attempt 1", "a-2 attempt 1"], "the step that needs it has not begun"
    assert run(repo, "decide", "a", "B").code == 0
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0, resumed.err
    assert "tracker: local" in state_text(repo, resumed, "a")
    assert "Tracker: pending" in git(repo, "show", "autopilot/a:_docs/stories/a/02_tasks/x_x.md")
    assert "Tracker" not in git(repo, "show", "autopilot/a:_docs/stories/a/02_document/architecture.md")


def test_a_tracker_that_lets_us_in_is_recorded(repo: Path) -> None:
    """`tracker-auth` ends well: the gate is passed unasked, and the tracker recorded."""
    (repo / "autopilot-multi.toml").write_text('tracker = "jira"\ntracker-auth = "true"\n')
    story(repo, "a")
    ran = run(repo, "--json", "--cross-boundaries")
    assert ran.code == 0, ran.err
    assert "tracker: jira" in state_text(repo, ran, "a")


def test_three_stories_in_three_dialects_end_to_end(repo: Path, memory: Path, tmp_path: Path) -> None:
    """Acceptance 60, 68: boundary, retry, decision, failure; killed in the middle, resumed; one state."""
    go = tmp_path / "go"
    story(repo, "auto", f"wait:Plan:{go}", "fail:Problem:1")
    story(repo, "point", "ask:Research", dialect="pointer")
    story(repo, "rich", "fail:Plan:99", dialect="rich")
    with started(repo, "run", "--json") as program:
        wait_until((memory / "auto-3-waits").exists, what="the first story is in the middle of its flow")
        wait_until(lambda: "point  needs a decision" in program.err, what="the second story asks")
        wait_until(lambda: "rich   parked" in program.err, what="the third story asks what to do")
        os.kill(program.pid, signal.SIGKILL)
        program.finish()
    go.touch()
    assert run(repo, "decide", "point", "B").code == 0
    ran = run(repo, "resume", "--json")
    assert {story["id"]: story["status"] for story in ran.data["stories"]} == {
        "auto": "parked",
        "point": "parked",
        "rich": "parked",
    }
    for name in ("auto", "point"):
        assert "Decompose complete" in ran.story(name)["reason"]
        assert run(repo, "decide", name, "A").code == 0
    ended = run(repo, "resume", "--json")
    assert ended.code == 5
    assert ended.story("auto")["status"] == ended.story("point")["status"] == "done"
    trace = sessions(memory)
    assert trace.count("auto-1 attempt 1") == 1, "what was acknowledged is not repeated"
    assert trace.count("rich-2 attempt 4") == 1
    shown = run(repo, "status", "--json")
    assert {story["id"] for story in shown.data["stories"]} == {"auto", "point", "rich"}
    aggregated = (repo / ".orchestrator" / "state.md").read_text()
    for name in ("auto", "point", "rich"):
        assert name in aggregated
    assert aggregated.index("failed 4 consecutive times") < aggregated.index("| auto")


def test_a_session_notes_its_sub_step_and_a_falling_one_is_refused(repo: Path, memory: Path) -> None:
    """Acceptance 56: what breaks a rule never reaches the file, and the rest of it stays the runner's."""
    note = f"{sys.executable} -m runner state sub-step"
    script = (
        f"mkdir deep && cd deep && {note} 1 draft && {note} 2 review 'batch 1' "
        f"&& ! {note} 1 draft > {memory}/told 2>&1 "
        '&& echo \'{"status": "needs-decision", "notes": "Which?"}\' > $AUTOPILOT_RESULT_FILE'
    )
    write_story(repo, "a", flow="greenfield", command=script)
    ran = run(repo, "--json")
    assert ran.code == 5, ran.err
    assert "sub_step phase 1 does not follow 2: the next one is 3" in (memory / "told").read_text()
    text = state_text(repo, ran, "a")
    assert 'sub_step:\n  phase: 2\n  name: review\n  detail: "batch 1"\n' in text
    assert "step: 1\nname: Problem\nstatus: in_progress\n" in text


@pytest.mark.parametrize(
    ("phase", "name", "words"),
    [("2.5", "half", "phase '2.5' is not an integer"), ("3", "Not_Kebab", "'Not_Kebab' is not kebab-case")],
)
def test_a_sub_step_that_cannot_be_read_is_told_from_the_folders(
    repo: Path, memory: Path, phase: str, name: str, words: str
) -> None:
    """Acceptance 56: the parse error is logged, and no phase is guessed: the folders tell the place."""
    docs = repo / "_docs/stories/a"
    docs.mkdir(parents=True)
    (docs / AUTODEV).write_text(
        "# Autodev State\n\n## Current Step\nflow: greenfield\nstep: 1\nname: Problem\nstatus: in_progress\n"
        f"sub_step:\n  phase: {phase}\n  name: {name}\n  detail: x\nretry_count: 0\ncycle: 1\n"
    )
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "state")
    story(repo, "a", "fail:Problem:99")
    ran = run(repo, "--json")
    assert words in ran.err
    assert sessions(memory)[0] == "a-1 attempt 1"
