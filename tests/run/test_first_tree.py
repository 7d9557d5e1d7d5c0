"""The tree that a run begins while the program loads: when there is one, and that nothing is left of it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from isolation.paths import worktree_root
from isolation.worktree.pool.early import early_tree
from runner.plan.plan import Plan, RunRequest, make_plan
from runner.run.pool.ahead import worktrees_begun
from tests.acceptance.program import commit_stories, write_story


def planned(repo: Path, flags: Mapping[str, str]) -> Plan:
    """Return the plan of two stories, the second one after the first."""
    write_story(repo, "one", command="true")
    write_story(repo, "two", command="true", depends_on=["one"])
    commit_stories(repo)
    return make_plan(RunRequest(directory=repo, flags=flags))


def test_a_run_that_ends_before_its_first_story_leaves_no_tree(repo: Path) -> None:
    """Whatever has ended it, the tree is removed, with its entry and its folder."""
    plan = planned(repo, {"pool": "1"})
    common = plan.repository.common_dir

    def refused() -> None:
        with worktrees_begun(plan):
            tree = early_tree(common)
            assert tree is not None
            assert tree.commit == plan.base
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        refused()
    assert early_tree(common) is None
    assert not (common / "worktrees").exists()
    assert not worktree_root(common).exists()


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"pool": "0"},
        {"pool": "1", "workspace": "overlay"},
        {"pool": "1", "guard": "false"},
        {"pool": "1", "sparse-paths": "stories"},
    ],
    ids=["small", "without-a-pool", "layers", "unguarded", "sparse"],
)
def test_no_tree_is_begun_that_no_story_could_use(repo: Path, flags: dict[str, str]) -> None:
    """Trees are small, or those of stories are made in another way."""
    plan = planned(repo, flags)
    with worktrees_begun(plan):
        assert early_tree(plan.repository.common_dir) is None


def test_no_tree_is_begun_for_stories_that_have_one_or_wait(repo: Path) -> None:
    """The first story continues in its worktree, and the second one starts at another commit."""
    plan = planned(repo, {"pool": "1"})
    (worktree_root(plan.repository.common_dir) / "one").mkdir(parents=True)
    with worktrees_begun(plan):
        assert early_tree(plan.repository.common_dir) is None
