"""One story at a time in the main tree: it needs no claim, and owns what it finds."""

from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git

ALONE = ("--bg-isolation", "none", "--max-stories", "1")


@pytest.mark.protocol("004.52")
def test_one_story_at_a_time_works_in_the_main_tree_without_a_claim(repo: Path) -> None:
    """What the first error suggests works, also for several stories that change the same file."""
    write_story(repo, "a", command="echo a >> README.md; echo a > new-a", priority=2)
    write_story(repo, "b", command="cat new-a; echo b >> README.md; echo b > new-b", priority=1)
    commit_stories(repo)
    refused = run(repo, "--bg-isolation", "none", "--json")
    assert refused.code == 1
    assert "run one story at a time: --max-stories 1." in refused.document["error"]["hint"]
    assert "the whole tree" in run(repo, "plan", *ALONE).err

    ran = run(repo, *ALONE, "--json")
    assert ran.code == 0, ran.out
    assert not (repo.parent / "repo.worktrees" / "a").exists()
    assert (repo / "README.md").read_text() == "hello\na\nb\n"
    assert git(repo, "diff", "--name-only", "main", "autopilot/a").split() == ["README.md", "new-a"]
    assert git(repo, "diff", "--name-only", "autopilot/a", "autopilot/b").split() == ["README.md", "new-b"]
    assert ran.data["next"] == "autopilot-multi land"
    landed = run(repo, "land", "--yes", "--json")
    assert landed.data["landed"] == ["a", "b"], landed.err
    assert git(repo, "status", "--porcelain") == ""
    assert (repo / "README.md").read_text() == "hello\na\nb\n"


@pytest.mark.protocol("004.52")
@pytest.mark.parametrize("level", ["auto", "detect"])
def test_a_single_story_owns_all_of_the_tree(repo: Path, level: str) -> None:
    """At any level; its next command lands what it did, and verify commands see it."""
    command = "mkdir -p deep/er; echo x > deep/er/file; rm README.md"
    write_story(repo, "a", command=command, verify=["test -f deep/er/file -a ! -e README.md"])
    commit_stories(repo)
    ran = run(repo, *ALONE, "--enforce", level, "--json")
    assert ran.code == 0, ran.out
    assert run(repo, *ran.story("a")["next"].split()[1:]).code == 0
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "diff", "main", "autopilot/a") == ""
    assert (repo / "deep" / "er" / "file").read_text() == "x\n"
