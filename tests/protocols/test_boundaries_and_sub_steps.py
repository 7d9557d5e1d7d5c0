"""What a boundary shows, what a rich file holds, and how sessions record their sub-steps."""

import json
import sys
from pathlib import Path

import pytest

from tests.acceptance.flow_stories import AUTODEV, AUTOPILOT, sessions, state_text, story
from tests.acceptance.program import run, write_story
from tests.conftest import git

pytestmark = pytest.mark.usefixtures("memory")

NOTE = f"{sys.executable} -m runner state sub-step"
DECOMPOSES = r"""
"$@" || exit
case "$AUTOPILOT_STEP" in
*Decompose|*"New Task")
  cd "$(dirname "$(find "$AUTOPILOT_DOCS/02_tasks" -name x_x.md -not -path '*/tests/*')")"
  rm x_x.md
  printf 'Complexity: 3\n' > 01_store.md
  printf '**Complexity**: 5 points\n' > 02_page.md
  printf 'complexity points: 2\n' > 03_mail.md
  printf '## Batch 1\n- 01_store\n\n## Batch 2\n- 02_page\n- 03_mail\n' > dependencies.md
esac
"""


def begun(repo: Path, *names: str) -> None:
    """Commit the documents of the first two steps, so that stories begin at the third."""
    for name in names:
        for path in ("00_problem/problem.md", "00_problem/acceptance_criteria.md", "01_solution/solution.md"):
            file = repo / "_docs/stories" / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("there\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "docs")


@pytest.mark.protocol("000.28", "001.5", "001.22", "001.23", "002.28")
def test_a_boundary_shows_what_was_produced(repo: Path, memory: Path) -> None:
    """Tasks, batches and points in every dialect; steps by their position, also after a re-entry.

    A rich file has the table of steps and says what is complete and what is ready.
    """
    begun(repo, "auto", "point", "rich")
    story(repo, "auto", script=DECOMPOSES)
    story(repo, "point", script=DECOMPOSES, dialect="pointer")
    story(repo, "rich", script=DECOMPOSES, dialect="rich")
    ran = run(repo, "--json")
    assert ran.code == 5, ran.err
    assert sessions(memory).count("auto-3 attempt 1") == 1
    assert not [line for line in sessions(memory) if line.startswith("auto-1")]
    asked = run(repo, "decide", "--json").data["decisions"]
    shown = {one["story_id"]: one["details"] for one in asked}
    for name, steps in (("auto", 11), ("point", 10), ("rich", 10)):
        assert shown[name][:4] == [
            "Tasks: 3",
            "Estimated batches: 2",
            "Complexity points: 10",
            f"Steps finished: 5 of {steps}",
        ]
    text = state_text(repo, ran, "rich", AUTOPILOT)
    assert "reason: session boundary\n" in text
    assert (
        "notes: Decompose complete, implementation ready: 3 tasks, 2 batches, 10 complexity points\n" in text
    )
    assert "## Step ↔ SubStep Reference\n\n| Step | Name | Artifacts |\n" in text
    assert "| 2a | UI Design | _docs/stories/rich/02_document/ui_design.md |\n" in text
    assert "ended_at: Step 3 Decompose\n" in text


@pytest.mark.protocol("000.28", "002.28")
def test_other_boundaries_show_their_documents(repo: Path) -> None:
    """A cycle of existing-code has its own tasks; a boundary with its own question names the file."""
    (repo / ".gitmodules").write_text("# members\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "members")
    story(repo, "meta", flow="meta-repo")
    story(repo, "exist", script=DECOMPOSES, flow="existing-code")
    ran = run(repo, "--decide-default=recommended", "--events")
    events = [json.loads(line) for line in ran.out.splitlines()]
    asked = [event["question"] for event in events if event["kind"] == "DecisionAsked"]
    details = {question["title"]: question["details"] for question in asked}
    review = "Config Review — is _docs/stories/meta/_repo-config.yaml right?"
    assert details[review][0] == "Produced: _repo-config.yaml"
    assert details["Decompose Tests complete — start implementation?"][0] == "Tasks: 1"
    assert details["New Task complete — start implementation?"][:4] == [
        "Tasks: 3",
        "Estimated batches: 2",
        "Complexity points: 10",
        "Steps finished: 9 of 17",
    ]


@pytest.mark.protocol("000.9", "002.8")
def test_sub_steps_rise_by_one_and_a_retry_may_start_over(repo: Path, memory: Path) -> None:
    """Within a session 3 after 1 and another name for 1 are refused; the retry begins at 1 again.

    In the older dialects a sub-step has its skill's own number, such as 1b.
    """
    told = memory / "told"
    script = (
        f"{NOTE} 1 draft && {NOTE} 1 draft 'page 2' && ! {NOTE} 3 far 2>> {told}"
        f" && ! {NOTE} 1 other 2>> {told}"
        f" && {NOTE} 2 review && test $AUTOPILOT_ATTEMPT = 2"
        ' && echo \'{"status": "needs-decision", "notes": "Which?"}\' > $AUTOPILOT_RESULT_FILE'
    )
    write_story(repo, "auto", flow="greenfield", command=script, max_attempts=2)
    older = f"{NOTE} 1b 'Test Case Generation' && exit 1"
    for dialect in ("pointer", "rich"):
        write_story(repo, dialect, flow="greenfield", dialect=dialect, command=older, max_attempts=1)
    ran = run(repo, "--json")
    assert ran.story("auto")["status"] == "parked", ran.err
    assert "phase: 2\n  name: review\n" in state_text(repo, ran, "auto")
    refused = told.read_text()
    assert refused.count("sub_step phase 3 does not follow 1: the next one is 2") == 2
    assert refused.count("sub_step phase 1 is 'draft' already; the next save point is phase 2") == 2
    for dialect in ("pointer", "rich"):
        assert "sub_step: 1b — Test Case Generation\n" in state_text(repo, ran, dialect, AUTOPILOT)


@pytest.mark.protocol("002.6")
def test_a_sub_step_that_breaks_during_a_run_is_logged(repo: Path) -> None:
    """What a session wrote cannot be read: the log says so, once, and the story goes on by its folders."""
    breaks = 'sed -i "s/phase: .*/phase: 2.5/" "$AUTOPILOT_STATE_FILE"\nexec "$@"'
    story(repo, "a", script=breaks)
    ran = run(repo, "--json")
    assert ran.code == 5, "the boundary is reached"
    assert "sub_step phase '2.5' is not an integer" in ran.err
    assert "phase: 0\n  name: awaiting-invocation\n" in state_text(repo, ran, "a", AUTODEV)


@pytest.mark.protocol("003.35")
def test_the_blocker_names_step_sub_step_and_failure(repo: Path) -> None:
    """It is in the rich file, and for the others in the status."""
    script = f'{NOTE} 1 draft && {NOTE} 2 review && echo "no network" && exit 7'
    for dialect in ("rich", "autodev"):
        write_story(repo, dialect, flow="greenfield", dialect=dialect, command=script, max_attempts=2)
    ran = run(repo, "--json")
    words = "Problem (step {}) failed 2 consecutive times at sub-step 2 — review. Last failure: "
    text = state_text(repo, ran, "rich", AUTOPILOT)
    assert f"- {words.format(0)}" in text
    assert "Automatic retries are used up." in text
    assert words.format(1) in run(repo, "status").out
