"""Each story has a place of its own: its state file, its documents, and a position that nobody inherits."""

import re
import sys
from pathlib import Path

import pytest

from tests.acceptance import literal_agent
from tests.acceptance.flow_stories import AUTODEV, sessions, state_text, story
from tests.acceptance.program import run, write_story
from tests.conftest import git

pytestmark = pytest.mark.usefixtures("memory")


def merge(repo: Path, *stories: str) -> None:
    """Merge the branches of stories into the main branch; a conflict fails the test."""
    for name in stories:
        git(repo, "merge", "-q", "--no-edit", f"autopilot/{name}")


@pytest.mark.protocol("card.9")
def test_stories_side_by_side_keep_their_documents_apart_and_merge(repo: Path, memory: Path) -> None:
    """Two stories of one flow, a dependant of one of them, and a later one: each goes its own way."""
    story(repo, "a")
    story(repo, "b")
    story(repo, "child", depends_on=["a"], verify=["test -d _docs/stories/child/03_implementation"])
    ran = run(repo, "--cross-boundaries", "--json")
    assert {one["id"]: one["status"] for one in ran.data["stories"]} == dict.fromkeys(
        ("a", "b", "child"), "done"
    ), ran.err
    ran_steps = [line.split()[0] for line in sessions(memory)]
    assert ran_steps.count("child-1") == 1, "the dependant takes every step itself"
    merge(repo, "child", "b")
    for name in ("a", "b", "child"):
        text = (repo / "_docs/stories" / name / AUTODEV).read_text()
        assert "step: done" in text
        assert f"story: {name}" in text
    story(repo, "late", "fail:Research:99", max_attempts=1)
    ran = run(repo, "late", "--json")
    assert ran.story("late")["step"]["name"] == "Research", "what was merged is nobody else's progress"


@pytest.mark.protocol("card.2")
@pytest.mark.parametrize("flow", ["greenfield", "existing-code", "meta-repo"])
def test_two_stories_of_a_flow_share_one_tree(repo: Path, flow: str) -> None:
    """In one tree each story owns its folder of documents besides its claim; the branches merge."""
    if flow == "meta-repo":
        (repo / ".gitmodules").write_text("# members\n")
    for name in "ab":
        story(repo, name, flow=flow)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "stories")
    shared = ("--bg-isolation", "none", "--deconflict-paths", "pkg/{id}/**", "--max-stories", "2")
    planned = run(repo, "plan", *shared, "--json")
    assert planned.code == 0, planned.err
    for one in planned.data["stories"]:
        assert one["claim"] == [f"pkg/{one['id']}/**", f"_docs/stories/{one['id']}/**"]
    assert planned.data["disjoint"] is True, "that they do not meet is proven beforehand"
    ran = run(repo, *shared, "--cross-boundaries", "--json")
    assert [one["status"] for one in ran.data["stories"]] == ["done", "done"], ran.err
    git(repo, "stash", "-q", "-u")
    merge(repo, "a", "b")


@pytest.mark.protocol("card.9")
def test_plain_docs_suit_one_story_at_a_time(repo: Path, memory: Path) -> None:
    """With `docs-folder = "_docs"` independent stories are refused; a later one finds the work done.

    Found done means no work, and only if its verify commands pass: nobody else's success is its own.
    """
    (repo / "autopilot-multi.toml").write_text('docs-folder = "_docs"\n')
    story(repo, "a")
    story(repo, "b", verify=["test -e b.txt"])
    refused = run(repo, "plan")
    assert refused.code == 1
    assert "stories a and b would both keep their state file in _docs/" in refused.err
    (repo / "stories/b.md").rename(repo / "b.md")
    assert run(repo, "--cross-boundaries").code == 0
    merge(repo, "a")
    assert "story: a" in (repo / "_docs" / AUTODEV).read_text()
    (repo / "b.md").rename(repo / "stories/b.md")
    (repo / "stories/a.md").unlink()
    before = len(sessions(memory))
    failed = run(repo, "--json").story("b")
    assert failed["status"] == "failed"
    assert "its flow was already done, but verify `test -e b.txt`" in failed["reason"]
    story(repo, "b", verify=["true"])
    ran = run(repo, "--json")
    assert ran.story("b")["status"] == "no_work"
    assert ran.story("b")["reason"] == "its flow was already done, verified"
    assert ran.code == 3, "a story without work is no success"
    assert len(sessions(memory)) == before, "no session was needed to find that out"


@pytest.mark.protocol("002.17", "002.18")
def test_a_finished_project_continues_as_existing_code_at_cycle_one(repo: Path, memory: Path) -> None:
    """After greenfield `auto` means existing-code, on the baseline of the first story, in cycle 1.

    No session is handed a placeholder, and the reports carry the number of the cycle.
    """
    story(repo, "first")
    assert run(repo, "--cross-boundaries").code == 0
    merge(repo, "first")
    prompts = memory / "prompts"
    prompts.mkdir()
    command = [sys.executable, "-I", "-S", literal_agent.__file__]
    write_story(repo, "second", flow="auto", command=command, max_attempts=1)
    ran = run(repo, "second", "--cross-boundaries", "--json", env={"LITERAL_AGENT_KEEPS": str(prompts)})
    text = state_text(repo, ran, "second")
    assert "flow: existing-code" in text
    assert "cycle: 1" in text
    given = {path.name.removeprefix("second "): path.read_text() for path in prompts.iterdir()}
    assert "1 Document" not in given, "the documents of the first story are the baseline"
    placeholders = re.compile(r"\{(docs|id|cycle|baseline)")
    assert not [name for name, prompt in given.items() if placeholders.search(prompt)]
    assert "`_docs/stories/first/02_document/architecture.md`" in given["2 Architecture Baseline"]
    done = git(repo, "ls-tree", "-r", "--name-only", "autopilot/second")
    assert ran.story("second")["status"] == "done", ran.err
    assert "_docs/stories/second/02_tasks/cycle1/" in done
    assert "_cycle1.md" in done


@pytest.mark.protocol("000.5", "002.5", "002.21")
def test_a_file_of_another_flow_is_corrected(repo: Path, memory: Path) -> None:
    """Flow and cycle are the runner's: another flow, or a cycle that this one does not have, is corrected."""
    story(repo, "a", "fail:Research:99", max_attempts=1)
    docs = repo / "_docs/stories/a"
    (docs / "00_problem").mkdir(parents=True)
    for name in ("problem.md", "acceptance_criteria.md"):
        (docs / "00_problem" / name).write_text("there\n")
    (docs / AUTODEV).write_text(
        "# Autodev State\n\n## Current Step\nflow: existing-code\nstep: 6\nname: Implement\n"
        'status: in_progress\nsub_step:\n  phase: 2\n  name: half\n  detail: ""\nretry_count: 0\ncycle: 3\n'
    )
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "state")
    ran = run(repo, "--json")
    assert sessions(memory) == ["a-2 attempt 1"]
    text = state_text(repo, ran, "a")
    assert "flow: greenfield\nstep: 2\nname: Research\n" in text
    assert "cycle: 1" in text
    assert "existing-code" in ran.err, "the correction is said"
