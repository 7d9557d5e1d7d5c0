"""The state file tells the truth at every moment, and the branch holds it."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.acceptance.ci import Ci
from tests.acceptance.flow_stories import AUTODEV, AUTOPILOT, story
from tests.acceptance.program import run, started, wait_until, write_story
from tests.conftest import git

pytestmark = pytest.mark.usefixtures("memory")

TODAY = r"\d{4}-\d\d-\d\d"


def on_branch(repo: Path, name: str, file: str = AUTOPILOT) -> str:
    """Return the state file as the story's branch holds it."""
    return git(repo, "show", f"autopilot/{name}:_docs/stories/{name}/{file}")


@pytest.mark.protocol("001.6", "001.8", "001.9")
def test_outcomes_and_the_last_session_are_in_the_file(repo: Path) -> None:
    """A step's outcome is what its session noted; the last session is there at a question and at the end."""
    write = (
        "d=$AUTOPILOT_DOCS; mkdir -p $d/00_problem; echo x | tee $d/00_problem/problem.md > $d/00_problem/"
    )
    write += 'acceptance_criteria.md; echo \'{"status": "done", "notes": "3 drafts, chose B"}\' > '
    write += "$AUTOPILOT_RESULT_FILE"
    script = f"case $AUTOPILOT_STEP in 0*) {write};; *) exit 1;; esac"
    write_story(repo, "a", flow="greenfield", dialect="rich", command=script, max_attempts=1)
    assert run(repo).code == 5
    text = on_branch(repo, "a")
    assert re.search(rf"\| 0 \| Problem \| {TODAY} \| 3 drafts, chose B \|", text)
    last = rf"date: {TODAY}\nended_at: Step 1 Research\nreason: failed\nnotes: needs a decision: Research"
    assert re.search(last, text)
    story(repo, "b", dialect="rich")
    assert run(repo, "b", "--cross-boundaries").code == 0
    assert re.search(
        rf"date: {TODAY}\nended_at: Step 6 Deploy\nreason: completed step\n", on_branch(repo, "b")
    )


@pytest.mark.protocol("001.9", "000.13", "001.14")
def test_a_story_that_the_user_stops_says_so_on_its_branch(repo: Path, memory: Path, tmp_path: Path) -> None:
    """Ctrl-C, then the session ends: user paused; the worktree has no edit of the runner's left."""
    story(repo, "a", f"wait:Plan:{tmp_path / 'go'}", dialect="rich")
    with started(repo, "run", "--json") as program:
        wait_until((memory / "a-2-waits").exists, what="the session waits")
        os.kill(program.pid, signal.SIGINT)
        wait_until(lambda: "Ctrl-C" in program.err, what="the program has heard it")
        (tmp_path / "go").touch()
        ended = program.finish()
    assert ended.code == 130
    text = on_branch(repo, "a")
    assert "reason: user paused\n" in text
    kept = Path(ended.story("a")["workspace"])
    assert git(kept, "status", "--porcelain") == ""


@pytest.mark.protocol("001.17", "card.8", "000.13")
def test_nothing_is_lost_on_the_way_through_a_shard(repo: Path, tmp_path: Path) -> None:
    """Parked at a boundary in one CI job: rows, marks and the last session arrive with the branch."""
    story(repo, "a", dialect="rich")
    story(repo, "b")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "stories")
    ci = Ci(origin=repo, root=tmp_path)
    for name in ("a", "b"):
        assert ci.run(name, *ci.story_job(name)).code == 5
    joined = ci.clone("join")
    ran = run(joined, "aggregate", str(ci.shards), "--branches")
    assert ran.code == 5, ran.err
    text = on_branch(joined, "a")
    assert re.search(rf"\| 3 \| Decompose \| {TODAY} \|", text), "the row of the step before the boundary"
    assert "reason: session boundary\n" in text
    assert "step: 4\nname: Implement\nstatus: not_started\n" in text
    assert "step: 6\nname: Implement\nstatus: not_started\n" in on_branch(joined, "b", AUTODEV)
    for name in ("a", "b"):
        tasks = git(joined, "grep", "-l", "Tracker: pending", f"autopilot/{name}", "--", "_docs/stories")
        assert "02_tasks/" in tasks, "without a tracker, tasks are marked"
