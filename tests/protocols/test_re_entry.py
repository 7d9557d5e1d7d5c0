"""A story that continues: what it reads first, what it shows, what it asks, and what it never repeats."""

import re
from pathlib import Path

import pytest

from tests.acceptance.flow_stories import AUTODEV, AUTOPILOT, sessions, state_text, story
from tests.acceptance.program import Ran, run, write_story
from tests.conftest import git

pytestmark = pytest.mark.usefixtures("memory")


def worktree(ran: Ran, name: str) -> Path:
    """Return where a story works."""
    return Path(ran.story(name)["workspace"])


def commit(repo: Path, files: dict[str, str]) -> None:
    """Commit files to the main branch."""
    for name, text in files.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "files")


def autodev(**values: str) -> str:
    """Return an autodev state file."""
    fields = {"flow": "greenfield", "step": "1", "name": "Problem", "status": "in_progress", **values}
    own = {"retry_count", "cycle"}
    block = "".join(f"{key}: {value}\n" for key, value in fields.items() if key not in own)
    return (
        f"# Autodev State\n\n## Current Step\n{block}"
        'sub_step:\n  phase: 0\n  name: awaiting-invocation\n  detail: ""\n'
        f"retry_count: {values.get('retry_count', '0')}\ncycle: {values.get('cycle', '1')}\n"
    )


@pytest.mark.protocol("000.14", "000.15", "001.15", "000.13", "003.63")
def test_resume_reads_the_file_and_the_folders_first(repo: Path, memory: Path) -> None:
    """What a person did by hand while the story waited is not done again: the folders win on resume, too.

    While it waits, its worktree is clean: what the runner wrote last is on the branch.
    """
    story(repo, "a", "ask:Plan")
    parked = run(repo, "--json")
    assert parked.code == 5
    tree = worktree(parked, "a")
    assert git(tree, "status", "--porcelain") == ""
    committed = git(repo, "show", f"autopilot/a:_docs/stories/a/{AUTODEV}")
    assert "step: 3\nname: Plan\nstatus: in_progress\n" in committed
    done = tree / "_docs/stories/a/02_document/architecture.md"
    done.parent.mkdir()
    done.write_text("drawn by hand\n")
    text = (tree / "_docs/stories/a" / AUTODEV).read_text()
    here, there = "step: 3\nname: Plan\nstatus: in_progress", "step: 4\nname: UI Design\nstatus: not_started"
    moved = text.replace(here, there)
    (tree / "_docs/stories/a" / AUTODEV).write_text(moved)
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "the plan, by hand")
    before = len(sessions(memory))
    assert run(repo, "decide", "a", "B").code == 0
    ran = run(repo, "resume", "--json")
    assert sessions(memory)[before] == "a-4 attempt 1", ran.err
    assert done.read_text() == "drawn by hand\n"


@pytest.mark.protocol("000.23", "002.24", "001.20", "003.65", "003.66")
@pytest.mark.parametrize("dialect", ["rich", "autodev"])
def test_a_story_that_continues_shows_its_status_first(repo: Path, dialect: str) -> None:
    """All steps with what became of them, decisions, the last session and blockers, before anything runs."""
    story(repo, "a", "ask:Research", "fail:Plan:99", dialect=dialect)
    assert run(repo).code == 5
    assert run(repo, "decide", "a", "B").code == 0
    assert run(repo, "resume").code == 5
    shown = run(repo, "--json").err
    assert re.search(r"  +\d Problem +done\n", shown)
    assert re.search(r"  > +\d Plan +failed, retried 3 times\n", shown)
    assert re.search(r"  +\d+ Deploy +not started\n", shown)
    assert "decided: Which database?: B) SQLite" in shown
    ended = r"last session: \d{4}-\d\d-\d\d, Step \d Plan, failed: needs a decision: Plan"
    assert re.search(ended, shown)
    assert re.search(r"blocker: .*Plan", shown)
    assert shown.index("Deploy") < shown.index("needs a decision")


@pytest.mark.protocol("000.21", "003.25")
@pytest.mark.parametrize("junk", ["not a state file\n", "status: perhaps", "retry_count: 7"])
def test_an_unreadable_file_leaves_the_position_to_the_folders(repo: Path, memory: Path, junk: str) -> None:
    """The story continues where the folders say, the file is written again, and its bytes are kept."""
    docs = "_docs/stories/a"
    text = autodev(step="9", name="Research")
    key = junk.partition(":")[0]
    broken = junk if key not in text else re.sub(rf"{key}: \w+", junk, text)
    commit(
        repo,
        {
            f"{docs}/00_problem/problem.md": "x\n",
            f"{docs}/00_problem/acceptance_criteria.md": "x\n",
            f"{docs}/{AUTODEV}": broken,
        },
    )
    story(repo, "a", "fail:Research:99", max_attempts=1)
    ran = run(repo, "--json")
    assert sessions(memory) == ["a-2 attempt 1"], ran.err
    assert "the folders decide where the story is" in ran.err
    assert "name: Research" in state_text(repo, ran, "a")
    assert (worktree(ran, "a") / docs / f"{AUTODEV}.unreadable-1").read_text() == broken


@pytest.mark.protocol("000.21", "003.39")
def test_a_file_that_a_session_destroys_costs_no_position(repo: Path) -> None:
    """In the middle of a step, the journal knows the place; the step starts at its first sub-step again."""
    script = 'echo gone > "$AUTOPILOT_STATE_FILE"; test -e again || { touch again; exit 1; }; exit 1'
    write_story(repo, "a", flow="greenfield", command=script, max_attempts=2)
    ran = run(repo, "--json")
    text = state_text(repo, ran, "a")
    assert "step: 1\nname: Problem\nstatus: failed\n" in text
    assert "phase: 0" in text
    assert "cannot be read" in ran.err
    assert "starts at its first sub-step again" in ran.err


@pytest.mark.protocol("000.10", "003.32")
def test_retries_of_the_file_count_on_re_entry(repo: Path, memory: Path) -> None:
    """A file with two retries leaves two attempts, not four; the next one is the third retry's."""
    commit(repo, {f"_docs/stories/a/{AUTODEV}": autodev(retry_count="2")})
    story(repo, "a", "fail:Problem:99")
    ran = run(repo, "--json")
    assert sessions(memory) == ["a-1 attempt 3", "a-1 attempt 4"]
    assert "retry_count: 3" in state_text(repo, ran, "a")


@pytest.mark.protocol("003.2", "003.28")
def test_an_ambiguous_place_offers_the_real_candidates(repo: Path, memory: Path) -> None:
    """The plan exists, the problem does not: both places are offered, and the answer is taken."""
    commit(repo, {"_docs/stories/a/02_document/architecture.md": "boxes\n"})
    story(repo, "a", "fail:UI Design:99", max_attempts=1)
    assert run(repo, "--decide-default", "recommended").code == 5, "only the user can know"
    asked = run(repo, "decide", "a").out
    assert "A) Continue at step 1 (Problem)" in asked
    assert "B) Continue at step 4 (UI Design)" in asked
    assert run(repo, "decide", "a", "B").code == 0
    run(repo, "resume")
    assert set(sessions(memory)) == {"a-4 attempt 1"}


@pytest.mark.protocol("003.61")
def test_artifacts_that_are_there_are_not_overwritten_unasked(repo: Path, memory: Path) -> None:
    """A step that has not begun, and half of its artifacts exist: resume, overwrite or skip."""
    commit(repo, {"_docs/stories/a/00_problem/problem.md": "by hand\n"})
    story(repo, "a", "fail:Research:99", max_attempts=1)
    assert run(repo).code == 5
    assert sessions(memory) == []
    asked = run(repo, "decide", "a").out
    assert "There is: _docs/stories/a/00_problem/problem.md" in asked
    assert re.findall(r"^[ABC]\) (\w+)", asked, re.MULTILINE) == ["Resume", "Overwrite", "Skip"]
    assert run(repo, "decide", "a", "B").code == 1, "to overwrite must be confirmed"
    assert run(repo, "decide", "a", "A").code == 0
    ran = run(repo, "resume", "--json")
    assert sessions(memory)[0] == "a-1 attempt 1"
    prompt = next((worktree(ran, "a") / ".orchestrator").glob("01-*.prompt.md")).read_text()
    assert "Resume — the session completes what is there" in prompt


@pytest.mark.protocol("000.19")
@pytest.mark.parametrize(
    ("dialect", "words"), [("autodev", "phase: 4\n  name: verification"), ("pointer", "4 — Verification")]
)
def test_a_skills_own_state_counts(repo: Path, dialect: str, words: str) -> None:
    """The recorded sub-step follows the file that the document skill keeps for itself."""
    (repo / "main.py").write_text("print()\n")
    commit(repo, {"_docs/stories/a/02_document/state.json": '{"current_step": 4, "name": "Verification"}'})
    story(repo, "a", "fail:Document:99", flow="existing-code", dialect=dialect, max_attempts=1)
    ran = run(repo, "--json")
    assert words in state_text(repo, ran, "a", AUTODEV if dialect == "autodev" else AUTOPILOT)
    assert "the skill's own state counts" in ran.err
