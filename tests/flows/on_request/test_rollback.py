"""Between the plan of a rollback and its act a person thinks; what happened meanwhile is not run over."""

from pathlib import Path

import pytest

from isolation.git.repository import Repository
from isolation.paths import find_repository, journal_path
from runner.core.events.fold import fold
from runner.flows.on_request.checkouts import OwnWorktree
from runner.flows.on_request.rollback import Rollback, RollbackError, carry_out, make_plan
from runner.records.journal import Journal
from tests.acceptance.branches import PLAN, Branch
from tests.conftest import git
from tests.records.sample_runs import RUN

DOCUMENT = "_docs/02_document/architecture.md"


@pytest.fixture
def branch(repo: Path) -> Branch:
    """Return a story that has been through one step of documents, of a user who lets git stash by itself."""
    made = Branch(repo)
    made.commit(PLAN, {DOCUMENT: "boxes\n"})
    git(repo, "config", "merge.autoStash", "true")
    return made


def _plan(branch: Branch) -> Rollback:
    repository = Repository.open(branch.repo)
    with Journal.open_readonly(journal_path(find_repository(branch.repo).common_dir)) as journal:
        run = fold(RUN, journal.events(RUN))
    place = OwnWorktree(repository=repository, path=branch.path, branch=branch.name)
    return make_plan(repository, place, run, branch.snapshot(), "Plan")


def test_what_was_edited_meanwhile_is_not_overwritten(branch: Branch) -> None:
    """Nothing is taken back, and the edit is where it was: not stashed, not merged."""
    plan = _plan(branch)
    (branch.path / DOCUMENT).write_text("boxes, and an idea\n")
    with pytest.raises(RollbackError, match="changed meanwhile, so nothing was rolled back"):
        carry_out(plan, at=5.0)
    assert branch.tip == plan.on.tip
    assert (branch.path / DOCUMENT).read_text() == "boxes, and an idea\n"
    assert git(branch.repo, "stash", "list") == ""


def test_a_commit_that_came_meanwhile_is_not_merged_with(branch: Branch) -> None:
    """The branch moves on from where it was looked at, or not at all."""
    plan = _plan(branch)
    theirs = branch.commit(None, {"mine.md": "by hand\n"})
    with pytest.raises(RollbackError, match="changed meanwhile"):
        carry_out(plan, at=5.0)
    assert branch.tip == theirs
    assert git(branch.path, "status", "--porcelain") == ""
