"""A coordinator killed in a shared tree before a story's first session: the story's files are its own."""

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.flow_stories import AUTODEV, sessions, story
from tests.acceptance.program import commit_stories, run, started, write_story
from tests.conftest import git

SHARED = ("run", "--bg-isolation", "none", "--deconflict-paths", "pkg/{id}/**", "--enforce", "detect")
TRIES = 10


def _kinds(repo: Path) -> list[str]:
    journal = repo / ".git" / "autopilot" / "journal.db"
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as connection:
        return [kind for (kind,) in connection.execute("SELECT kind FROM events ORDER BY seq")]


def _killed_at_the_state_file(repo: Path) -> bool:
    """Kill a run as soon as the state file is there; return whether no session had begun."""
    state = repo / "_docs" / "stories" / "a" / AUTODEV
    with started(repo, *SHARED, "--cross-boundaries") as program:
        # Without a pause: the moment lasts only some milliseconds.
        while not state.exists():
            os.kill(program.pid, 0)
        os.kill(program.pid, signal.SIGKILL)
        program.finish()
    return "SessionStarted" not in _kinds(repo)


def test_the_state_file_that_a_killed_run_has_just_written_is_the_storys(
    make_repository: Callable[..., Path], memory: Path
) -> None:
    """Killed between the first write of the state file and the first session, the run is resumed to its end.

    An edit that the user had left in the claim before the run still stops the story.
    """
    for number in range(TRIES):
        repo = make_repository(f"repo-{number}", {"pkg/a/x": "a\n", "pkg/b/x": "b\n"})
        story(repo, "a")
        story(repo, "b")
        commit_stories(repo)
        (repo / "pkg/b/x").write_text("mine\n")
        if _killed_at_the_state_file(repo):
            break
    else:
        pytest.fail("no kill came in time")
    assert not sessions(memory) or number
    ran = run(repo, "resume", "--json")
    assert ran.story("a")["status"] == "done", ran.story("a")["reason"]
    assert "1 file in its claim is not committed: pkg/b/x" in ran.story("b")["reason"]
    assert (repo / "pkg/b/x").read_text() == "mine\n"
    text = git(repo, "show", f"autopilot/a:_docs/stories/a/{AUTODEV}")
    assert (repo / "_docs/stories/a" / AUTODEV).read_text() == text


def test_a_new_run_continues_what_a_killed_one_had_open(
    make_repository: Callable[..., Path], memory: Path
) -> None:
    """A state file without a commit, and another run instead of `resume`: it is the story's own all the same.

    Once a run has ended the story, an edit in its claim is somebody else's again.
    """
    repo = make_repository("repo", {"pkg/a/x": "a\n"})
    story(repo, "a")
    commit_stories(repo)
    for _ in range(2):  # the second one is killed with the state file there from the beginning
        _killed_at_the_state_file(repo)
    ran = run(repo, *SHARED, "--cross-boundaries", "--json")
    assert ran.story("a")["status"] == "done", ran.story("a")["reason"]
    assert sessions(memory)
    (repo / "pkg/a/x").write_text("mine\n")
    ran = run(repo, *SHARED, "--cross-boundaries", "--again", "--json")
    assert "1 file in its claim differs from its branch" in ran.story("a")["reason"]
    assert (repo / "pkg/a/x").read_text() == "mine\n"


def test_what_a_hook_made_before_a_kill_is_the_storys(repo: Path) -> None:
    """A hook that kills the coordinator after its write: the resumed run commits the file with the work.

    What the user wrote there since is kept, whatever the session does to it.
    """
    write_story(repo, "a", command="echo made > pkg/a/new; test -f pkg/a/hooked")
    lease = repo / ".git" / "autopilot" / "lease.json"
    once = repo.parent / "once"
    kill = f"kill -9 $(python3 -c \"import json; print(json.load(open('{lease}'))['pid'])\")"
    hook = f"mkdir -p pkg/a; echo x > pkg/a/hooked; test -f {once} || {{ touch {once}; {kill}; sleep 60; }}"
    (repo / "autopilot-multi.toml").write_text(f"[hooks]\nafter_create = {json.dumps(hook)}\n")
    commit_stories(repo)
    assert run(repo, *SHARED).code == -signal.SIGKILL
    assert "SessionStarted" not in _kinds(repo)
    (repo / "pkg/a/new").write_text("mine\n")
    ran = run(repo, "resume", "--json")
    assert ran.story("a")["status"] == "done", ran.story("a")["reason"]
    assert (repo / "pkg/a/new").read_text() == "made\n"
    (found,) = git(repo, "for-each-ref", "--format=%(refname)", "refs/autopilot/found/a").split()
    assert git(repo, "show", f"{found}:pkg/a/new") == "mine\n"
    assert git(repo, "ls-tree", "-r", "--name-only", "autopilot/a", "pkg").split() == [
        "pkg/a/hooked",
        "pkg/a/new",
    ]
