"""The commit is what counts: stories whose worktree looks well, and whose branch does not hold it."""

from pathlib import Path

from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git

COMMIT = "echo x > x && git add x && git commit -qm mine"


def test_a_branch_with_the_files_of_its_base_is_no_work(repo: Path) -> None:
    """Empty, reverted and undone commits are none, whatever the session reports; nor are they a success.

    What depends on such a story is skipped, unless the story says that no change is fine.
    """
    claimed = """ && echo '{"status": "done"}' > $AUTOPILOT_RESULT_FILE"""
    write_story(repo, "fine", command="true", allow_no_change=True, verify=["true"])
    write_story(repo, "after-fine", command="echo y > y", depends_on=["fine"])
    write_story(repo, "empty", command="git commit -q --allow-empty -m nothing" + claimed)
    write_story(repo, "reverted", command=f"{COMMIT} && git revert --no-edit HEAD" + claimed)
    write_story(repo, "undone", command=f"{COMMIT} && git reset -q --hard HEAD~1" + claimed, verify=["true"])
    write_story(repo, "after-empty", command="echo y > y", depends_on=["empty"])
    commit_stories(repo)
    well = run(repo, "--json", "--only", "after-fine")
    assert well.code == 0, well.err
    assert (well.story("fine")["status"], well.story("after-fine")["status"]) == ("no_work", "done")
    assert well.story("fine")["reason"] == "no change was needed, verified"
    ran = run(repo, "--json")
    assert ran.code == 4, ran.err
    found = {story["id"]: (story["status"], story["reason"]) for story in ran.data["stories"]}
    assert found["empty"] == ("no_work", "its 1 commit leaves every file as it was")
    assert found["reverted"] == ("no_work", "its 2 commits leave every file as it was")
    assert found["undone"] == ("no_work", "the session changed nothing")
    assert found["after-empty"] == ("skipped", "depends on empty, which had nothing to commit")
    assert found["after-fine"][0] == "done"
    assert git(repo, "rev-list", "--count", "main..autopilot/reverted") == "2\n"
