"""What the user asks of a story's flow: to skip a step, and to return to one."""

from pathlib import Path

import pytest

from tests.acceptance.flow_stories import AUTODEV, AUTOPILOT, sessions, story
from tests.acceptance.program import answered, commit_stories, run, write_story
from tests.acceptance.written_runs import coordinator
from tests.conftest import git

pytestmark = pytest.mark.usefixtures("memory")

FILES = {"autodev": AUTODEV, "pointer": AUTOPILOT, "rich": AUTOPILOT}
PLAN = {"autodev": "3", "pointer": "3", "rich": "2"}


def on_branch(repo: Path, name: str, dialect: str) -> str:
    """Read a story's state file from its branch."""
    return git(repo, "show", f"autopilot/{name}:_docs/stories/{name}/{FILES[dialect]}")


@pytest.mark.protocol("003.27", "003.45")
def test_a_skip_on_request_holds_in_every_clone_and_dialect(repo: Path, memory: Path, tmp_path: Path) -> None:
    """Plan fails and is skipped: marked on the branch, with a warning; another clone continues after it.

    It is made two steps later, when the file no longer is at the skipped step.
    """
    for dialect in FILES:
        story(repo, dialect, "fail:Plan:99", "ask:Decompose", dialect=dialect, max_attempts=1)
    commit_stories(repo)
    failed = run(repo, "--cross-boundaries", "--json")
    assert {one["step"]["name"] for one in failed.data["stories"]} == {"Plan"}, failed.err
    asked = run(repo, "skip", "autodev")
    assert asked.code == 1
    assert "skipping Plan must be confirmed. Decompose (5) will run without " in asked.err
    assert "_docs/stories/autodev/02_document/architecture.md" in asked.err
    for dialect, number in PLAN.items():
        ran = run(repo, "skip", dialect, "--yes", "--json")
        assert ran.code == 0, ran.err
        assert ran.data["step"] == {"number": number, "name": "Plan"}
        text = on_branch(repo, dialect, dialect)
        assert f"step: {number}\nname: Plan\nstatus: skipped\n" in text
        mark = f"| {number} | Plan | " if dialect == "rich" else f"\n## Skipped Steps\n- {number} — Plan ("
        assert mark in text
        worktree = failed.story(dialect)["workspace"]
        assert git(Path(worktree), "status", "--porcelain") == "", "the skip is committed"
    assert "step 3 (Plan) was skipped" in run(repo, "status").out
    resumed = run(repo, "resume", "--json")
    assert [one["status"] for one in resumed.data["stories"]] == ["parked"] * 3, resumed.err
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    for dialect in FILES:
        git(clone, "branch", "-q", f"autopilot/{dialect}", f"origin/autopilot/{dialect}")
    elsewhere = run(clone, "--cross-boundaries", "--json")
    assert [one["status"] for one in elsewhere.data["stories"]] == ["done"] * 3, elsewhere.err
    for dialect in FILES:
        assert run(repo, "decide", dialect, "A").code == 0
    ended = run(repo, "resume", "--json")
    assert [one["status"] for one in ended.data["stories"]] == ["done"] * 3, ended.err
    for dialect, number in PLAN.items():
        tries = [line for line in sessions(memory) if line.startswith(f"{dialect}-{number} ")]
        assert tries == [f"{dialect}-{number} attempt 1"], "neither clone returns to the step"


@pytest.mark.protocol("003.27")
def test_a_step_ahead_is_left_out_and_refusals_say_why(repo: Path, memory: Path) -> None:
    """A later step is skipped when the flow comes to it; what is over, unknown or running is refused."""
    story(repo, "a", "ask:Research")
    assert run(repo, "--cross-boundaries", "--json").code == 5
    tip = git(repo, "rev-parse", "autopilot/a")
    with coordinator(repo):
        assert "has been active here since" in run(repo, "skip", "a", "--yes").err
    for step, words in (
        ("Problem", "story a is past step 1 (Problem)"),
        ("Paln", "did you mean 'Plan'?"),
    ):
        refused = run(repo, "skip", "a", step, "--yes")
        assert refused.code == 1
        assert words in refused.err
    assert git(repo, "rev-parse", "autopilot/a") == tip
    ran = run(repo, "skip", "a", "ui design", "--yes")
    assert "a skips step 4 (UI Design)" in ran.out
    assert "the story stays where it is" in ran.out
    assert "already skips step 4" in run(repo, "skip", "a", "4", "--yes").err
    assert "Which database?" in run(repo, "decide").out, "the open question stays"
    assert run(repo, "decide", "a", "A").code == 0
    ended = run(repo, "resume", "--json")
    assert ended.code == 0, ended.err
    assert "a-4 attempt 1" not in sessions(memory)
    text = on_branch(repo, "a", "autodev")
    assert "step: done" in text
    assert "- 4 — UI Design (" in text
    assert "has finished its flow" in run(repo, "skip", "a", "--yes").err
    assert "no work" not in run(repo, "rollback", "a", "UI Design", "--yes").out
    assert "Skipped Steps\n- none" in on_branch(repo, "a", "autodev"), "a rollback takes the skip back"
    again = run(repo, "resume", "--json")
    assert again.code == 0, again.err
    assert sessions(memory).count("a-4 attempt 1") == 1


@pytest.mark.protocol("003.27")
def test_the_question_offers_to_run_the_step(repo: Path) -> None:
    """On a terminal: the Choose form, B by default; A is not asked about again, since it can be undone."""
    story(repo, "a", "fail:Research:99", max_attempts=1)
    assert run(repo, "--cross-boundaries", "--json").code != 0
    for typed, skipped in (("B\n", False), ("\n", False), ("a\n", True)):
        code, text = answered(repo, "skip", "a", typed=typed)
        assert code == 0
        assert "DECISION REQUIRED: Skip step 2 (Research)?\n" in text
        assert "A) Skip the step, and continue with the next one\nB) Run the step\n" in text
        assert "Warning: Plan (3) will run without _docs/stories/a/01_solution/solution.md\n" in text
        assert "Recommendation: B — later steps use what it leaves\n" in text
        assert ("status: skipped" in on_branch(repo, "a", "autodev")) == skipped
        assert ("nothing was skipped" in text) != skipped


@pytest.mark.protocol("003.29")
@pytest.mark.parametrize(("trick", "where"), [("ask:Plan", "parked"), ("fail:Plan:1", "failed")])
def test_a_story_that_is_not_done_returns_to_a_step(repo: Path, memory: Path, trick: str, where: str) -> None:
    """Parked and failed stories roll back, though the state file has changes that nobody committed."""
    story(repo, "a", trick, max_attempts=1)
    ran = run(repo, "--cross-boundaries", "--json")
    assert ran.story("a")["status"] in {where, "parked"}, ran.err
    worktree = Path(ran.story("a")["workspace"])
    state = worktree / "_docs/stories/a" / AUTODEV
    state.write_text(state.read_text() + "\n## Notes\nwritten meanwhile\n")
    assert git(worktree, "status", "--porcelain").strip().endswith(AUTODEV)
    rolled = run(repo, "rollback", "a", "Research", "--yes")
    assert rolled.code == 0, rolled.err
    assert "overwrites files in _docs/stories/a/01_solution/" in rolled.err
    assert "kept:" not in rolled.err, "what the runner wrote is not taken for the user's"
    text = on_branch(repo, "a", "autodev")
    assert "step: 2\nname: Research\nstatus: in_progress\n" in text
    assert "written meanwhile" in text
    assert git(worktree, "status", "--porcelain") == ""
    again = run(repo, "rollback", "a", "Research", "--yes", "--json")
    assert again.data["undone"] == [], "nothing is left to undo"
    (worktree / "mine.txt").write_text("x\n")
    assert "1 uncommitted file: mine.txt" in run(repo, "rollback", "a", "Problem", "--yes").err
    (worktree / "mine.txt").unlink()
    ended = run(repo, "resume", "--json")
    assert ended.story("a")["status"] == "done", ended.err
    assert sessions(memory).count("a-2 attempt 1") == 2


SHORT = """
summary = "plan, then build"
[[steps]]
number = 1
name = "Plan"
prompt = "Plan it."
artifacts = ["{docs}/plan.md"]
[[steps]]
number = 2
name = "Build"
prompt = "Build it."
"""


@pytest.mark.protocol("003.27")
def test_a_story_whose_last_step_is_skipped_is_still_verified(repo: Path) -> None:
    """The verify commands judge the end of a flow; a skip does not spare a story from them."""
    (repo / "flows").mkdir()
    (repo / "flows/short.toml").write_text(SHORT)
    script = (
        'mkdir -p "$AUTOPILOT_DOCS"; echo x > "$AUTOPILOT_DOCS/plan.md"; test "$AUTOPILOT_STEP" = "1 Plan"'
    )
    for name, verify in (("good", "test -e flows"), ("bad", "test -e built.txt")):
        write_story(repo, name, flow="short", command=script, verify=[verify], max_attempts=1)
    commit_stories(repo)
    assert run(repo, "--no-base-check").code == 5
    for name in ("good", "bad"):
        assert run(repo, "skip", name, "build", "--yes").code == 0
    ended = run(repo, "resume", "--json")
    assert ended.story("good")["status"] == "done", ended.err
    assert ended.story("bad")["status"] == "failed"
    assert "its last step was skipped, but verify `test -e built.txt`" in ended.story("bad")["reason"]
