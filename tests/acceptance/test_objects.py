"""Git's objects as a session meets them: it adds to them, and can neither remove nor change one."""

import os
import signal
from pathlib import Path

import pytest

from tests.acceptance.people import USERS, somebody
from tests.acceptance.program import run, started, wait_until, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount

guarded = pytest.mark.skipif(not can_mount(), reason="this machine cannot mount")

DESTROY = (
    "G=$(git rev-parse --git-common-dir); for O in $G/objects $G/autopilot/shared-objects; do "
    "chmod -R u+w $O; rm -rf $O/pack/* $O/??; for F in $(find $O -type f); do (: > $F); done; done; "
    "git gc --prune=now; git repack -adf; "
)
COMMIT = "echo {name} > {name} && git add {name} && git commit -qm {name}; "


@guarded
@pytest.mark.parametrize("name", USERS)
def test_a_session_adds_objects_and_removes_none(name: str) -> None:
    """All objects are whole after a session that destroys what it can, and what others did is there."""
    with somebody(name) as person:
        root = person.repository({"x": "x\n", "big": "x\n" * 5000})
        person.git(root, "gc", "-q")
        person.git(root, "commit", "-q", "--allow-empty", "-m", "loose")
        person.story(root, "a", COMMIT.format(name="a"))
        person.story(root, "b", DESTROY + COMMIT.format(name="b"), depends_on=["a"])
        person.story(root, "c", COMMIT.format(name="c") + "git log --format=%s", depends_on=["b"])
        ran = person.run(root, "--json")
        assert [ran.story(each)["status"] for each in "abc"] == ["done"] * 3, ran.err
        assert person.git(root, "fsck", "--full", "--strict") == ""
        assert person.git(root, "log", "--format=%s", "autopilot/c").split() == [
            "c",
            "b",
            "a",
            "loose",
            "first",
        ]
        assert not (root / ".git" / "objects" / "info" / "alternates").exists()


@guarded
def test_commits_of_a_session_are_seen_at_once_and_survive_kills(repo: Path, tmp_path: Path) -> None:
    """While the session works, git outside finds its commit; its branch has it after a kill and a resume."""
    go, met = tmp_path / "go", Path.home() / "met"
    told = f"git rev-parse HEAD > {met}.part; mv {met}.part {met}"
    waits = f"until [ -e {go} ]; do sleep 0.02; done"
    command = f"[ -e a ] || {{ {COMMIT.format(name='a')} }}; {told}; {waits}"
    write_story(repo, "a", command=command)
    with started(repo, "run") as running:
        wait_until(met.exists, what="the session has committed")
        assert git(repo, "log", "-1", "--format=%s", met.read_text().strip()) == "a\n"
        os.kill(running.pid, signal.SIGKILL)
    assert git(repo, "log", "-1", "--format=%s", met.read_text().strip()) == "a\n"
    assert run(repo, "status").code == 0
    go.touch()
    ran = run(repo, "resume", "--json")
    assert ran.story("a")["status"] == "done", ran.err
    assert git(repo, "show", "autopilot/a:a") == "a\n"
    assert git(repo, "fsck") == ""


@guarded
@pytest.mark.parametrize("level", ["deny", "divert"])
def test_a_planted_filter_cannot_remove_objects_in_a_shared_tree(repo: Path, level: str) -> None:
    """The program's own git command runs the story's filter, which finds all objects closed."""
    (repo / "packages" / "a").mkdir(parents=True)
    (repo / "packages" / "a" / "x").write_text("x\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "packages")
    git(repo, "config", "filter.relative.clean", "packages/a/clean")
    lines = ("#!/bin/sh", f"rm -rf {repo}/.git/objects/* {repo}/.git/autopilot/shared-objects/*", "cat")
    plant = "printf '%s\\n' " + " ".join(f"'{line}'" for line in lines) + " > packages/a/clean"
    script = (
        f"{plant}; chmod +x packages/a/clean; cd packages/a; echo '*.dat filter=relative' > .gitattributes"
    )
    write_story(repo, "a", command=f"{script}; echo x > x.dat")
    run(
        repo, "--json", "--bg-isolation", "none", "--deconflict-paths", "packages/{id}/**", "--enforce", level
    )
    assert "missing" not in git(repo, "fsck", "--full")
    assert git(repo, "show", "main:README.md") == "hello\n"
