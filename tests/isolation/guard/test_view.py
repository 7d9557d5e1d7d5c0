"""The view of a session: its own tree at the path of the checkout, and no way past it."""

import os
from pathlib import Path

import pytest

from isolation.guard.view import View, view_of
from isolation.model import EnforcementLevel, Means
from isolation.paths import find_repository, worktree_root
from tests.conftest import git
from tests.isolation.guard.guard_scenes import FILES, play, require
from tests.isolation.guard.test_guard import (
    ESCAPES,
    FOREIGN,
    GIT,
    OWN,
    open_folder,
    state,
    untouched,
    user,
    worked,
)

__all__ = ["open_folder", "user"]


def test_nothing_but_the_own_tree_can_be_changed(open_folder: Path, user: int | None) -> None:
    """Whatever a session does to the path of the checkout, it does to its own tree; git stays guarded."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    foreign = {name: text.replace("{there}", "{sibling}") for name, text in FOREIGN.items()}
    looks = {"is": 'test "$(pwd -P)" = {main} && test -e {main}/README.md && test -f .git && git status'}
    looks |= {name: f"test -w {{main}}/{name}" for name in FILES}
    looks["note"] = "git worktree repair; echo {main}/.git > {git}/worktrees/one/gitdir && git status"
    own = {"write": "echo mine > {main}/pkg/a.py && test $(cat {sibling}/../one/pkg/a.py) = mine", **OWN}
    commands = {**looks, **own, **foreign, **GIT, **ESCAPES}
    ended = play("worktree", open_folder, user, means=Means.MOUNTS, view=True, commands=commands)
    assert {*looks, *own} <= worked(ended), {name: ended[name] for name in {*looks, *own} - worked(ended)}
    assert state(open_folder) == untouched()
    note = open_folder / "repo" / ".git" / "worktrees" / "one" / "gitdir"
    assert note.read_text() == f"{open_folder}/repo.worktrees/one/.git\n"
    assert (open_folder / "repo.worktrees" / "one" / "pkg" / "a.py").read_text() == "mine\n"


def test_where_there_can_be_no_view_it_is_said(repo: Path) -> None:
    """Story worktrees inside the checkout, and a repository without one; submodules are no obstacle."""
    paths, environ = find_repository(repo), dict(os.environ)
    root = worktree_root(paths.common_dir)
    found = view_of(paths, root, environ)
    assert isinstance(found, View)
    assert (found.places, found.git_place.parent) == ((repo,), root)
    assert "lie one inside the other" in str(view_of(paths, repo / "trees", environ))
    (repo / ".gitmodules").touch()
    assert view_of(paths, root, environ) == found
    git(repo, "clone", "-q", "--bare", str(repo), str(repo.parent / "bare.git"))
    bare = find_repository(repo.parent / "bare.git")
    assert view_of(bare, root, environ) == "a bare repository has no checkout"


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "PATH"])
def test_only_an_activated_environment_is_borrowed(repo: Path, variable: str) -> None:
    """What else of the checkout is on the path, such as a build folder, would lead out of the story."""
    paths = find_repository(repo)
    (repo / ".venv" / "bin").mkdir(parents=True)
    (repo / ".venv" / "pyvenv.cfg").touch()
    (repo / "build" / "bin").mkdir(parents=True)
    place = repo / ".venv" if variable == "VIRTUAL_ENV" else f"{repo}/build/bin:{repo}/.venv/bin:/usr/bin"
    found = view_of(paths, worktree_root(paths.common_dir), {variable: str(place)})
    assert isinstance(found, View)
    assert found.borrowed == (repo / ".venv",)
