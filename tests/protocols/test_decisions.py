"""Questions and answers: asked at once, asked once, written when they are given, and kept for later runs."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.flow_stories import AUTODEV, AUTOPILOT, sessions, state_text, story
from tests.acceptance.program import command, run, write_story
from tests.conftest import git

SAVE = f"{sys.executable} -m runner state sub-step"

pytestmark = pytest.mark.usefixtures("memory")


@pytest.mark.protocol("003.26", "003.36", "003.43", "000.18", "003.37")
def test_what_is_used_up_is_asked_about_at_once(repo: Path) -> None:
    """Retry, skip or abort, with step, sub-step and the last telling line; nothing runs until then."""
    script = f'{SAVE} 1 draft-options "half"; echo "error: no database"; exit 7'
    write_story(repo, "a", flow="greenfield", command=script, max_attempts=2)
    ran = run(repo, "--json")
    assert ran.code == 5
    asked = run(repo, "decide", "a").out
    assert "SKILL FAILED: Problem — 3 consecutive failures" in asked
    assert "Step: 1 — Problem" in asked
    assert "SubStep: 1 — draft-options (half)" in asked
    assert "Last failure reason: session: exit code 7 — error: no database" in asked
    assert "C) Abort" in asked
    again = run(repo, "--json")
    assert again.code == 5
    assert again.story("a")["sessions"] == 0, "and not again in the next run, until it is decided"
    assert run(repo, "decide", "a", "C").code == 0
    assert run(repo, "resume", "--json").story("a")["status"] == "failed"


@pytest.mark.protocol("003.42", "003.36")
def test_an_escalation_rings_and_notifies(repo: Path, memory: Path) -> None:
    """On a terminal the bell rings, the notifier runs, and the form is asked there."""
    (repo / "autopilot-multi.toml").write_text(f'notify = "cat >> {memory}/notified"\n')
    write_story(repo, "a", flow="greenfield", command="exit 1", max_attempts=1)
    main, side = pty.openpty()
    program = subprocess.Popen(
        command("run"), cwd=repo, stdin=side, stdout=side, stderr=side, env={**os.environ, "TERM": "xterm"}
    )
    os.close(side)
    shown, deadline = b"", time.monotonic() + 60
    while program.poll() is None:
        assert time.monotonic() < deadline, shown[-2000:]
        if select.select([main], [], [], 0.1)[0]:
            try:
                shown += os.read(main, 65536)
            except OSError:
                break
        # A question that has just appeared takes no letter yet, so that nothing is answered by accident.
        if b"Esc: later" in shown:
            os.write(main, b"C")
    assert program.wait(30) == 3
    os.close(main)
    assert b"\a" in shown
    assert b"SKILL FAILED: Problem" in shown
    assert "SKILL FAILED: Problem" in (memory / "notified").read_text()


@pytest.mark.protocol("000.18", "003.37")
def test_a_failed_quick_story_is_not_run_again_silently(repo: Path, memory: Path) -> None:
    """The next run asks first; --retry-failed, an answer or a changed story runs it."""
    trace = memory / "quick"
    write_story(repo, "a", command=f"echo x >> {trace}; false", max_attempts=1)
    assert run(repo).code == 3
    assert run(repo).code == 5
    assert trace.read_text() == "x\n"
    assert "failed in the last run" in run(repo, "decide", "a").out
    assert run(repo, "--retry-failed").code == 3
    assert trace.read_text() == "x\n" * 2
    assert run(repo).code == 5
    assert run(repo, "decide", "a", "A").code == 0
    assert run(repo, "resume").code == 3
    assert trace.read_text() == "x\n" * 3
    write_story(repo, "a", command=f"echo y >> {trace}", max_attempts=1)
    run(repo)
    assert trace.read_text().endswith("y\n"), "a changed story is another story"


@pytest.mark.protocol("003.6", "003.12", "001.7", "001.14")
@pytest.mark.parametrize("dialect", ["rich", "autodev"])
def test_an_answer_outlives_the_run_and_is_asked_once(repo: Path, memory: Path, dialect: str) -> None:
    """Answered with `decide`, it is in the file at once; a new run instead of a resume uses it, for good."""
    story(repo, "a", "ask:Research", "fail:Plan:99", dialect=dialect, max_attempts=1)
    parked = run(repo, "--json")
    assert "Which database?" in parked.story("a")["reason"]
    assert run(repo, "decide", "a", "B").code == 0
    if dialect == "rich":
        text = state_text(repo, parked, "a", AUTOPILOT)
        assert "- Which database?: B) SQLite" in text, "written when it is given"
    ran = run(repo, "--json")
    assert "Plan — 3 consecutive failures" in ran.story("a")["reason"], ran.err
    prompts = Path(ran.story("a")["workspace"]) / ".orchestrator"
    for step in ("research", "plan"):
        found = prompts.glob(f"*-{step}-1.prompt.md")
        prompt = max(found, key=lambda path: path.stat().st_mtime_ns).read_text()
        assert "Which database?: B) SQLite" in prompt
    (memory / "a-2-asked").unlink(missing_ok=True)
    assert run(repo, "--retry-failed", "--json").story("a")["reason"].count("Which database?") == 0


@pytest.mark.protocol("003.25")
def test_the_unattended_default_is_not_called_the_users_answer(repo: Path) -> None:
    """A session learns whether the user decided something, or the default did."""
    story(repo, "a", "ask:Research", "fail:Plan:99", max_attempts=1)
    ran = run(repo, "--decide-default", "recommended", "--json")
    prompts = Path(ran.story("a")["workspace"]) / ".orchestrator"
    prompt = next(prompts.glob("*-plan-1.prompt.md")).read_text()
    assert "Which database?: B) SQLite (the recommended answer; the user was not asked)" in prompt


@pytest.mark.protocol("002.31")
def test_a_pause_lasts_until_what_was_asked_for_is_there(repo: Path, memory: Path) -> None:
    """Config Review: answer A keeps the story parked, also unattended, until the flag is in the file."""
    (repo / ".gitmodules").write_text("# members\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "members")
    script = f'mkdir -p "$AUTOPILOT_DOCS/status"; cd "$AUTOPILOT_DOCS"; echo x >> {memory}/trace; '
    script += "case $AUTOPILOT_STEP in 1*|2*) echo 'confirmed_by_user: false' > _repo-config.yaml;; "
    script += "3*) echo x > status/status.md;; 4*) echo x > status/document_sync.md;; "
    script += "5*) echo x > status/integration_test_sync.md;; 6*) echo x > status/pipeline_sync.md;; esac"
    write_story(repo, "a", flow="meta-repo", command=script)
    ran = run(repo, "--decide-default", "recommended", "--json")
    assert ran.code == 5
    assert "paused until there is: _docs/stories/a/_repo-config.yaml :: confirmed_by_user: true" in ran.err
    before = (memory / "trace").read_text()
    assert run(repo, "resume").code == 5
    assert (memory / "trace").read_text() == before, "nothing ran"
    config = Path(ran.story("a")["workspace"]) / "_docs/stories/a/_repo-config.yaml"
    config.write_text("confirmed_by_user: true\n")
    ran = run(repo, "resume", "--json")
    assert ran.story("a")["status"] == "done", ran.err
    assert git(repo, "show", "autopilot/a:_docs/stories/a/_repo-config.yaml") == "confirmed_by_user: true\n"


@pytest.mark.protocol("003.6", "000.14")
def test_a_question_that_a_newer_run_has_overtaken_is_closed(repo: Path, memory: Path) -> None:
    """`decide` no longer lists it, and resuming the old run does not repeat what the newer one finished."""
    story(repo, "a", "ask:Research")
    old = run(repo, "--json").data["run_id"]
    story(repo, "a", "ask:Research", verify=["true"])  # the same story, changed a little
    newer = run(repo, "--cross-boundaries", "--decide-default", "recommended", "--json")
    assert newer.story("a")["status"] == "done", newer.err
    assert "no open decisions" in run(repo, "decide").out
    before = len(sessions(memory))
    resumed = run(repo, "resume", old, "--json")
    assert len(sessions(memory)) == before
    assert newer.data["run_id"] in resumed.err
    tip = git(repo, "rev-parse", "autopilot/a")
    assert newer.story("a")["commit"] == tip.strip()


@pytest.mark.protocol("003.51")
def test_a_stuck_session_is_asked_about_by_its_sub_step(repo: Path) -> None:
    """The form names the sub-step; skipping it continues the step and tells the session."""
    again = 'while :; do echo same > "$AUTOPILOT_DOCS/00_problem/problem.md"; echo busy; sleep 0.3; done'
    stuck = f'{SAVE} 1 draft-options; mkdir -p "$AUTOPILOT_DOCS/00_problem"; {again}'
    script = f"grep -q 'Skip this sub-step' \"$AUTOPILOT_PROMPT_FILE\" && exit 1; {stuck}"
    write_story(repo, "a", flow="greenfield", command=script, max_attempts=1)
    assert run(repo).code == 5
    asked = run(repo, "decide", "a").out
    assert "RECOVERY: Problem stuck at 1 — draft-options" in asked
    assert "B) Skip this sub-step with warning" in asked
    assert run(repo, "decide", "a", "B").code == 0
    ran = run(repo, "resume", "--json")
    assert "Problem — 3 consecutive failures" in ran.story("a")["reason"], "the session ran, and knew"


@pytest.mark.protocol("003.53")
def test_a_pattern_of_failures_stands_in_the_blockers(repo: Path) -> None:
    """After three runs the rich file says so, and the question does, too."""
    story(repo, "a", "fail:Problem:99", dialect="rich", max_attempts=1)
    for flag in ("-v", "--retry-failed", "--retry-failed"):
        assert run(repo, flag).code == 5
    ran = run(repo, "--retry-failed", "--json")
    text = state_text(repo, ran, "a", AUTOPILOT)
    assert "- Problem failed in 3 consecutive runs, last by: session: exit code 1" in text
    assert AUTODEV not in text
