"""The next command to type, typed: whatever a report offers works as it stands, in a shell."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.program import Ran, commit_stories, run, write_story, writes
from tests.conftest import git

ODD = 'it\'s a "repo" $HOME'


def typed(repo: Path, line: str) -> str:
    """Type a line into a shell that knows the program; it must succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    done = subprocess.run(["sh", "-c", line], cwd=repo, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def next_of(ran: Ran, story_id: str) -> str:
    """Return what the report says to type next."""
    command: str = ran.story(story_id)["next"]
    return command


def test_every_verdict_says_what_can_be_typed(make_repository: Callable[..., Path]) -> None:
    """In a folder with an odd name, and with tags that have the names of the branches."""
    repo = make_repository(ODD)
    write_story(repo, "good", command=writes("good.txt"))
    write_story(repo, "plain", command=writes("plain.txt"))
    write_story(repo, "bad", command="echo the reason; exit 3")
    write_story(repo, "after", command="true", depends_on=["bad"])
    write_story(repo, "idle", command="true")
    commit_stories(repo)
    git(repo, "tag", "autopilot/good")
    ran = run(repo, "--json")
    assert next_of(ran, "good") == next_of(ran, "plain") == ran.data["next"] == "autopilot-multi land"
    typed(repo, f"{ran.data['next']} --yes")
    for name in ("good", "plain"):
        assert (repo / f"{name}.txt").exists(), "the work is here now"
    assert "the reason" in typed(repo, next_of(ran, "bad"))
    assert "the reason" in typed(repo, next_of(ran, "after"))
    typed(repo, next_of(ran, "idle"))
    beside = run(repo.parent, "-C", ODD, "status")
    where = beside.err.strip().removeprefix("run these commands in this folder: ")
    assert "the reason" in typed(repo.parent, f"{where} && {next_of(ran, 'bad')}")
    again = run(repo, "--json", "good")
    assert next_of(again, "good") == "", "what is merged is not offered again"
    assert again.story("good")["merged"] == "main"
    shown = run(repo, "status")
    assert [line.split()[1] for line in shown.out.splitlines() if line.startswith("good ")] == ["landed"]
    assert "multi land" not in shown.out


def test_the_work_in_a_shared_tree_lands(repo: Path) -> None:
    """With odd names, a glob that nothing matches and one that is excluded, the same command is offered."""
    owns = ["it's/**", "never/**", "!it's/left/**"]
    write_story(repo, "two", command='mkdir -p "it\'s"; echo made > "it\'s/made"', owns=owns)
    commit_stories(repo)
    git(repo, "tag", "autopilot/two")
    ran = run(repo, "--json", "--bg-isolation=none", "--max-stories=1")
    assert next_of(ran, "two") == ran.data["next"] == "autopilot-multi land"
    typed(repo, f"{next_of(ran, 'two')} --yes --style squash")
    assert git(repo, "show", "--format=%s", "--name-only").split("\n")[:3] == ["two", "", "it's/made"]
    assert git(repo, "status", "--porcelain") == ""
