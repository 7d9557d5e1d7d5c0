"""Stories that run again: on top of what they have, or from the new base with the old tip kept."""

from pathlib import Path

from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git


def tip_of(repo: Path, name: str) -> str:
    return git(repo, "rev-parse", name).strip()


def test_a_story_starts_over_from_the_new_base(repo: Path) -> None:
    """Only what is named runs again; its branch begins at the new base, and the old tips stay as refs."""
    write_story(repo, "api", command="echo api > api.txt")
    write_story(repo, "page", command="date +%N >> page.txt; test -e fixed.txt", depends_on=["api"])
    write_story(repo, "other", command="date +%N >> other.txt")
    commit_stories(repo)
    failed = run(repo, "--json")
    assert failed.code == 4
    api, first = tip_of(repo, "autopilot/api"), tip_of(repo, "autopilot/other")
    (repo / "fixed.txt").write_text("fixed\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Fixed")
    assert "--again" in run(repo, "--fresh").err
    assert run(repo, "other", "--again", "--fresh", "--bg-isolation=none").code == 1
    planned = run(repo, "other", "--again", "--fresh", "--dry-run")
    assert planned.code == 0
    assert tip_of(repo, "autopilot/other") == first

    again = run(repo, "--again", "other", "--fresh", "--json")
    assert again.code == 0, again.err
    assert again.story("other")["base"] == tip_of(repo, "main")
    assert git(repo, "rev-list", "--count", "main..autopilot/other").strip() == "1"
    assert tip_of(repo, "refs/autopilot/old/other/1") == first
    assert "its old tip is refs/autopilot/old/other/1" in again.err
    second = tip_of(repo, "autopilot/other")
    assert run(repo, "--again", "--fresh", "--only", "other").code == 0
    assert tip_of(repo, "refs/autopilot/old/other/2") == second
    assert run(repo, "--again", "other").code == 0
    assert git(repo, "rev-list", "--count", "main..autopilot/other").strip() == "2", "on top of what it has"

    tree = Path(failed.story("page")["workspace"])
    (tree / "mine.txt").write_text("mine\n")
    page = tip_of(repo, "autopilot/page")
    assert run(repo, "land", "api", "--yes", "--style", "squash").code == 0
    place = Path(git(tree, "rev-parse", "--git-dir").strip())
    (place / "MERGE_HEAD").write_text(page)
    refused = run(repo, "--again", "page", "--fresh")
    assert refused.code == 1
    assert "in the middle of a merge" in refused.err
    assert (tip_of(repo, "autopilot/page"), (tree / "mine.txt").exists()) == (page, True)
    (place / "MERGE_HEAD").unlink()
    assert run(repo, "--again", "page").code == 4, "its branch does not have the fix"
    over = run(repo, "--retry-failed", "--fresh", "--json")
    assert over.code == 0, over.err
    assert over.story("page")["base"] == tip_of(repo, "main"), "which has what it depends on"
    old = "refs/autopilot/old/page/1"
    git(repo, "merge-base", "--is-ancestor", page, old)
    assert git(repo, "show", f"{old}:mine.txt") == "mine\n", "what was not committed is there, too"
    assert tip_of(repo, "autopilot/api") == api, "what is not named stays done"
