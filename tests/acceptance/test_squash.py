"""`squash`: a done story leaves one commit with the files that were verified, and nothing is lost."""

from pathlib import Path

from runner.story.workspace import squashed_message
from tests.acceptance.program import commit_stories, run, write_story, writes
from tests.conftest import git

TRIES = (
    "echo try >> tries; git add -A; git commit -qm 'Try it' -m 'Co-authored-by: Bot <bot@example.org>'; "
    "echo $(wc -l < tries) > more.txt"
)


def test_a_done_story_is_one_commit_and_its_history_is_kept(repo: Path) -> None:
    """Retries and the agent's own commits become one; dependents start from it; what failed stays."""
    write_story(repo, "a", command=TRIES, verify=["test $(wc -l < tries) -eq 2"])
    write_story(repo, "b", command=writes("b.txt"), depends_on=["a"], verify=["test -s more.txt"])
    write_story(repo, "bad", command=TRIES, verify=["false"])
    commit_stories(repo)
    ran = run(repo, "--squash", "--json")
    assert ran.story("a")["reason"] == "4 commits squashed into 1, verified", ran.err
    assert ran.story("a")["commits"] == 1
    assert ran.story("b")["reason"] == "1 commit, verified"
    tip = git(repo, "rev-parse", "autopilot/a").strip()
    assert ran.story("a")["commit"] == tip
    assert git(repo, "rev-parse", f"{tip}^", "autopilot/b^").split() == [ran.data["base"], tip]
    assert ran.story("bad")["commits"] > 1, "only what is done is squashed"
    kept = git(repo, "for-each-ref", "--format=%(refname)", "refs/autopilot/squashed/").split()
    assert kept == [f"refs/autopilot/squashed/{ran.data['run_id']}/autopilot/a"]
    assert git(repo, "rev-list", "--count", f"main..{kept[0]}").strip() == "4"
    assert git(repo, "diff", kept[0], tip) == "", "what was verified is what is committed"
    message = git(repo, "log", "-1", "--format=%B", tip)
    original = git(repo, "rev-parse", kept[0]).strip()
    assert message.startswith("a\n\n- Try it\n- Try it\n\nAutopilot-Run: ")
    assert f"Autopilot-Squashed: {original}\nCo-authored-by: Bot <bot@example.org>\n" in message
    assert not (repo.parent / f"{repo.name}.worktrees" / "a").exists(), "nothing is left that needs it"
    git(repo, "merge", "-q", "--ff-only", "autopilot/b")
    refused = run(repo, "--squash", "--bg-isolation=none", "--max-stories=1", "--json")
    assert refused.code == 1
    assert "squash does not work with bg-isolation 'none'" in refused.document["error"]["message"]


def test_the_message_of_one_commit_is_kept_whole() -> None:
    """An agent that commits once explains its work better than a title."""
    own = "Title\n\nAutopilot-Story: a\n"
    assert squashed_message(own, ["Why\n\nBecause."], "f00") == (
        "Title\n\nWhy\n\nBecause.\n\nAutopilot-Story: a\nAutopilot-Squashed: f00\n"
    )
    assert squashed_message(own, [], "f00") == "Title\n\nAutopilot-Story: a\nAutopilot-Squashed: f00\n"


def test_a_story_that_follows_a_flow_keeps_the_commits_of_its_steps(repo: Path) -> None:
    """A step is rolled back by its commits, so they stay; nothing is kept aside for them."""
    (repo / "flows").mkdir()
    steps = (f'[[steps]]\nnumber = {n}\nname = "Step {n}"\ncommand = "echo {n} > {n}.txt"\n' for n in (1, 2))
    (repo / "flows" / "two.toml").write_text('summary = "two steps"\n' + "\n".join(steps))
    write_story(repo, "a", flow="two", command="true")
    commit_stories(repo)
    ran = run(repo, "--squash", "--json")
    assert (ran.story("a")["status"], ran.story("a")["commits"] > 1) == ("done", True), ran.err
    assert git(repo, "for-each-ref", "refs/autopilot/squashed/") == ""
    assert run(repo, "rollback", "a", "Step 2", "--yes").code == 0
    assert "2.txt" not in git(repo, "ls-tree", "--name-only", "autopilot/a").split()
    assert "1.txt" in git(repo, "ls-tree", "--name-only", "autopilot/a").split()
