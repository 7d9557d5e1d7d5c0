"""`rollback` asks, names what is in its way, and loses nothing that is not committed."""

from pathlib import Path

import pytest

from tests.acceptance.branches import Branch, after_plan
from tests.acceptance.program import answered, run
from tests.acceptance.written_runs import coordinator
from tests.conftest import git
from tests.records.sample_runs import RUN


@pytest.fixture
def branch(repo: Path) -> Branch:
    """Return a story of `greenfield` that has been through three steps of documents."""
    return after_plan(repo)


def test_uncommitted_work_is_named_and_nothing_happens(branch: Branch) -> None:
    """Changed, staged and new files each stand against it."""
    tip = branch.tip
    branch.write({"README.md": "edited\n", "new.txt": "new\n", "_docs/00_problem/problem.md": "staged\n"})
    git(branch.path, "add", "_docs")
    ran = run(branch.repo, "rollback", "a", "Plan", "--yes")
    assert ran.code == 1
    assert "3 uncommitted files: README.md, _docs/00_problem/problem.md, new.txt" in ran.err
    assert "hint: commit or stash them there" in ran.err
    assert branch.tip == tip
    assert (branch.path / "README.md").read_text() == "edited\n"
    assert (branch.path / "new.txt").read_text() == "new\n"
    assert branch.snapshot().status.value == "failed"


def test_a_worktree_in_the_middle_of_something_is_left_alone(branch: Branch) -> None:
    """A person who is looking for a bug there has nothing uncommitted, and is not to be moved on."""
    tip = branch.tip
    git(branch.path, "bisect", "start")
    ran = run(branch.repo, "rollback", "a", "Plan", "--yes")
    assert ran.code == 1
    assert "is in the middle of a bisection" in ran.err
    assert branch.tip == tip


def test_it_is_refused_while_a_run_is_going_on(branch: Branch) -> None:
    """The coordinator's stories are its own."""
    tip = branch.tip
    with coordinator(branch.repo):
        ran = run(branch.repo, "rollback", "a", "Plan", "--yes")
    assert ran.code == 1
    assert f"run {RUN}" in ran.err
    assert "has been active here since" in ran.err
    assert branch.tip == tip
    assert run(branch.repo, "rollback", "a", "Plan", "--yes").code == 0


def test_nothing_is_overwritten_without_a_word(branch: Branch) -> None:
    """Off a terminal, and with --json, --yes is needed; the message says what is at stake."""
    tip = branch.tip
    ran = run(branch.repo, "rollback", "a", "Plan")
    assert ran.code == 1
    assert "undoing Plan must be confirmed" in ran.err
    assert "This will overwrite files in _docs/02_document/" in ran.err
    assert "--yes" in ran.err
    ran = run(branch.repo, "rollback", "a", "Plan", "--json")
    assert ran.code == 1
    assert ran.document["success"] is False
    assert "--yes" in ran.document["error"]["hint"]
    assert branch.tip == tip


@pytest.mark.parametrize(
    ("typed", "agreed"),
    [
        ("A\ny\n", True),
        ("a)\nyes\n", True),
        ("A\nn\n", False),
        ("B\n", False),
        ("\n", False),
        ("x\nB\n", False),
    ],
)
def test_a_person_is_asked_on_a_terminal(branch: Branch, typed: str, agreed: bool) -> None:  # noqa: FBT001  a parameter
    """The Choose form, and because it destroys a second question; only A and y do it."""
    tip = branch.tip
    code, text = answered(branch.repo, "rollback", "a", "Plan", typed=typed)
    assert code == 0
    assert "ROLLBACK: Re-run Plan?" in text
    assert "Warning: This will overwrite files in _docs/02_document/" in text
    assert ("Are you sure? [y/N]" in text) == typed.lower().startswith("a")
    assert ("nothing was undone" in text) != agreed
    assert (branch.tip != tip) == agreed


def test_unknown_names_are_answered_with_the_known_ones(branch: Branch) -> None:
    """Step, story and run: each with what there is."""
    ran = run(branch.repo, "rollback", "a", "Resaerch", "--yes")
    assert ran.code == 1
    assert "the flow greenfield has no step 'Resaerch'" in ran.err
    assert "did you mean 'Research'?" in ran.err
    assert "3 (Plan)" in ran.err
    ran = run(branch.repo, "rollback", "b", "Plan", "--yes")
    assert ran.code == 1
    assert "has no story 'b'" in ran.err
    ran = run(branch.repo, "rollback", "a", "Deploy", "--yes")
    assert ran.code == 1
    assert "story a has no checkpoint of step 10 (Deploy)" in ran.err
    assert run(branch.repo, "rollback", "a", "Plan", "--run", "nope", "--yes").code == 1
