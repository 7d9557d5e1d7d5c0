"""A story's own view of the branches: what is taken over of it, when, and what is not."""

import re
from pathlib import Path

import pytest

from isolation.errors import RepositoryError
from isolation.git.contained.private_refs import PARTED, is_deleted, others_written, pending, ref_mounts
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir
from tests.conftest import git

OWN = "refs/heads/autopilot/a"


class Scene:
    """A repository with the branch of a story and another one, and the view of that story."""

    def __init__(self, repo: Path) -> None:
        self.repo = repo
        git(repo, "branch", "autopilot/a")
        git(repo, "branch", "autopilot/other")
        git(repo, "tag", "-m", "t", "tagged")
        git(repo, "pack-refs", "--all")
        git(repo, "branch", "autopilot/loose")
        self.common = (repo / ".git").resolve()
        self.inside = autopilot_dir(self.common) / "refs" / "a"
        self.view(fresh=True)

    def view(self, *, fresh: bool = False) -> None:
        """Make the view, as each session and each command does."""
        assert ref_mounts(self.common, "a", fresh=fresh) is not None

    def commit(self, message: str) -> str:
        """Return a new commit that is on no branch."""
        return git(self.repo, "commit-tree", "-p", "main", "-m", message, "main^{tree}").strip()

    def write(self, commit: str, branch: str = "a") -> None:
        """Move a branch as a session does."""
        (self.inside / "heads" / branch).write_text(f"{commit}\n")

    def outside(self, ref: str = OWN) -> str:
        """Return where a ref is in the repository."""
        return git(self.repo, "rev-parse", ref).strip()


@pytest.fixture
def scene(repo: Path) -> Scene:
    """Return the scene."""
    return Scene(repo)


def test_commands_keep_their_list_while_sessions_get_new_ones(scene: Scene) -> None:
    """A new file would cost the next command new mounts, and it needs no branch of another story."""
    scene.view()
    commands = scene.inside / "packed-refs-of-commands"
    before = commands.stat().st_ino
    assert commands.read_bytes() == (scene.common / "packed-refs").read_bytes()
    Repository.open(scene.repo).run("branch", "autopilot/later")
    scene.view(fresh=True)
    scene.view()
    assert commands.stat().st_ino == before
    git(scene.repo, "pack-refs", "--all")
    scene.view()
    assert b"autopilot/later" in commands.read_bytes()
    assert b"autopilot/later" in (scene.inside / "packed-refs").read_bytes()


def test_others_are_listed_as_git_lists_them(scene: Scene) -> None:
    """Git accepts the list: it is sorted, tags keep what they lead to, and loose branches are in it."""
    scene.repo.joinpath(".git", "packed-refs").write_bytes((scene.inside / "packed-refs").read_bytes())
    (scene.common / "refs" / "heads" / "autopilot" / "loose").unlink()
    refs = git(scene.repo, "for-each-ref", "--format=%(refname)").split()
    assert refs == [
        *(f"refs/heads/autopilot/{name}" for name in ("a", "loose", "other")),
        "refs/heads/main",
        "refs/tags/tagged",
    ]
    assert git(scene.repo, "fsck", "--strict") == ""
    assert scene.outside("tagged^{}") == scene.outside("main")


def test_the_own_branch_is_taken_over_and_no_other(scene: Scene) -> None:
    """When the repository is opened, as after a kill; what is no commit is not."""
    made = scene.commit("made")
    scene.write(made)
    scene.write(made, "other")
    assert pending(scene.common) == ["a"]
    repository = Repository.open(scene.repo)
    assert (scene.outside(), scene.outside("autopilot/other")) == (made, scene.outside("main"))
    assert others_written(scene.common, "a") == ("autopilot/other",)
    for nonsense in ("evil", "0" * 39 + "1", scene.outside("main^{tree}"), "ref: refs/heads/main"):
        scene.write(nonsense)
        repository.take_over("a")
        assert scene.outside() == made
        assert (scene.inside / "heads" / "a").read_text() == f"{made}\n"
    assert not is_deleted(scene.common, "a")
    (scene.inside / "heads" / "a").unlink()
    assert is_deleted(scene.common, "a")
    repository.take_over("a")
    assert scene.outside() == made, "a branch that was deleted inside stays"
    assert not is_deleted(scene.common, "a")


def test_a_lock_that_a_power_failure_left_is_removed(scene: Scene) -> None:
    """The coordinator died while it took a branch over; the next one finds a lock that nobody holds."""
    commit, lock = scene.commit("made in a session"), scene.common / f"{OWN}.lock"
    scene.write(commit)
    lock.parent.mkdir(exist_ok=True)
    lock.write_text(f"{commit}\n")
    Repository.open(scene.repo)
    assert scene.outside() == commit
    assert not lock.exists()


def test_a_lock_that_somebody_holds_stays_and_is_named(scene: Scene) -> None:
    """A git command of the user's may be at work; its lock is its own."""
    before, lock = scene.outside(), scene.common / f"{OWN}.lock"
    scene.write(scene.commit("made in a session"))
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w"), pytest.raises(RepositoryError, match=re.escape(str(lock))):
        Repository.open(scene.repo)
    assert lock.exists()
    assert scene.outside() == before


def test_a_branch_that_was_moved_outside_is_handed_out(scene: Scene) -> None:
    """Unless both have moved: then the user's stays, and the session's is kept under a ref."""
    repository, users = Repository.open(scene.repo), scene.commit("the user's")
    git(scene.repo, "update-ref", OWN, users)
    scene.view()
    assert (scene.inside / "heads" / "a").read_text() == f"{users}\n"
    own, later = scene.commit("the session's"), scene.commit("later")
    scene.write(own)
    git(scene.repo, "update-ref", OWN, later)
    assert repository.take_over("a")
    assert scene.outside() == later
    assert scene.outside(f"{PARTED}/a/{own[:12]}") == own
    assert (scene.inside / "heads" / "a").read_text() == f"{later}\n"
    (scene.inside / "heads" / "a.lock").touch()
    git(scene.repo, "update-ref", OWN, users)
    scene.view()
    assert (scene.inside / "heads" / "a").read_text() == f"{later}\n", "a command inside holds the lock"
    assert pending(scene.common) == []
