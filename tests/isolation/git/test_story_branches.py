"""The list of all stories' branches that sessions get: right after every move, and cheap for many stories."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolation.git.branches import delete_branch
from isolation.git.contained import story_branches
from isolation.git.contained.story_branches import NAMESPACE, StoryBranches, branches_of
from isolation.git.repository import Repository
from tests.conftest import git

_heard: list[list[str]] = []
"""Where the paths that Python opens and lists are noted now; a hook cannot be removed."""


def _hear(event: str, args: tuple[object, ...]) -> None:
    if _heard and event in {"open", "os.listdir", "os.scandir"}:
        _heard[-1].append(str(args[0]))


sys.addaudithook(_hear)


@contextmanager
def touched(folder: Path) -> Iterator[list[str]]:
    """Note what is opened and listed in a folder."""
    found: list[str] = []
    _heard.append(found)
    try:
        yield found
    finally:
        _heard.pop()
        found[:] = [path for path in found if path.startswith(str(folder))]


class Scene:
    """A repository with the branches of many stories, most of them files."""

    def __init__(self, repo: Path, stories: int) -> None:
        self.repo = repo
        git(repo, "branch", "autopilot/packed")
        git(repo, "tag", "-m", "t", "tagged")
        git(repo, "pack-refs", "--all")
        self.first = git(repo, "rev-parse", "HEAD").strip()
        self.second = git(repo, "commit-tree", "-p", "main", "-m", "second", "main^{tree}").strip()
        lines = [f"create refs/heads/autopilot/s{number} {self.first}\n" for number in range(stories)]
        self.repository = Repository.open(repo)
        self.repository.run("update-ref", "--stdin", stdin="".join(lines).encode())
        self.common = self.repository.common_dir
        self.folder = self.common / "refs" / NAMESPACE

    def listed(self) -> dict[str, str]:
        """Return the branches of stories in the next list, each with its commit."""
        lines = branches_of(self.common).text().decode().splitlines()
        pairs = (line.partition(" ") for line in lines if "refs/heads/autopilot/" in line)
        return {ref.rpartition("/")[2]: commit for commit, _, ref in pairs}

    def by_git(self) -> dict[str, str]:
        """Return what git says."""
        form = "--format=%(objectname) %(refname:lstrip=3)"
        lines = git(self.repo, "for-each-ref", form, "refs/heads/autopilot").splitlines()
        return {name: commit for commit, _, name in (line.partition(" ") for line in lines)}


@pytest.fixture
def scene(repo: Path) -> Scene:
    """Return a scene with thirty stories."""
    return Scene(repo, 30)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the next look at all files off for the whole test."""
    monkeypatch.setattr(story_branches, "LOOK_SECONDS", 3600.0)


def moves(scene: Scene) -> Iterator[str]:
    """Move, make, rename and delete branches in all ways in which this program does it."""
    repository, first, second = scene.repository, scene.first, scene.second
    repository.move_ref("refs/heads/autopilot/s1", second, first, "moved")
    yield "moved without a process"
    assert repository.make_branch("autopilot/made", second).returncode == 0
    yield "made without a process"
    repository.run("update-ref", "-m", "x", "refs/heads/autopilot/s2", second, first)
    yield "moved by git"
    repository.run("update-ref", "--stdin", stdin=f"update refs/heads/autopilot/s3 {second}\n".encode())
    yield "moved by git as it reads"
    delete_branch(repository, "autopilot/s4", first)
    yield "deleted"
    repository.run("branch", "-m", "autopilot/s5", "autopilot/renamed")
    yield "renamed"
    delete_branch(repository, "autopilot/packed", first)
    yield "deleted among the packed"
    repository.run("worktree", "add", "-q", "-b", "autopilot/w", str(scene.repo.parent / "w"), second)
    yield "made with a worktree"
    repository.move_ref("refs/heads/autopilot/w", first, second, "moved back")
    yield "moved back"


@pytest.mark.usefixtures("far")
def test_what_this_process_moves_is_in_the_next_list(scene: Scene) -> None:
    """A story may begin right after the commit of another one that it depends on."""
    assert scene.listed() == scene.by_git()
    for what in moves(scene):
        assert scene.listed() == scene.by_git(), what


@pytest.mark.usefixtures("far")
def test_a_list_costs_the_same_for_few_and_many_stories(scene: Scene) -> None:
    """Only what was moved is read; neither the folder nor the other files are."""
    scene.listed()
    scene.repository.move_ref("refs/heads/autopilot/s1", scene.second, scene.first, "moved")
    with touched(scene.common / "refs") as found:
        scene.listed()
    assert found == [str(scene.folder / "s1")]
    with touched(scene.common) as found:
        scene.listed()
    assert [path for path in found if not path.endswith("packed-refs")] == []


def test_a_move_by_hand_is_seen_soon(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that leaves the folder as it was."""
    monkeypatch.setattr(story_branches, "LOOK_SECONDS", 0.2)
    scene.listed()
    git(scene.repo, "update-ref", "refs/heads/autopilot/s1", scene.second)
    git(scene.repo, "branch", "-D", "autopilot/s2")
    (scene.folder / "s3").write_text(f"{scene.second}\n")
    time.sleep(0.3)
    assert scene.listed() == scene.by_git()
    assert scene.listed()["s3"] == scene.second


def test_what_has_settled_is_not_read_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look asks for the state of each file, and opens those alone that have another one than before."""
    monkeypatch.setattr(story_branches, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(story_branches, "_PART_OF_TIME", 0)
    time.sleep(1.1)
    scene.listed()
    git(scene.repo, "update-ref", "refs/heads/autopilot/s1", scene.second)
    with touched(scene.folder) as found:
        assert scene.listed()["s1"] == scene.second
    assert found == [str(scene.folder), str(scene.folder / "s1")]


@pytest.mark.usefixtures("far")
def test_what_git_packs_meanwhile_is_listed_at_once(scene: Scene) -> None:
    """Git removes the files of what it has packed."""
    scene.listed()
    git(scene.repo, "update-ref", "refs/heads/autopilot/s1", scene.second)
    git(scene.repo, "pack-refs", "--all")
    assert scene.listed() == scene.by_git()
    assert not any(scene.folder.glob("s*"))
    scene.repository.run("update-ref", "refs/heads/autopilot/s1", scene.first)
    assert scene.listed() == scene.by_git()
    assert b"refs/tags/tagged\n^" in branches_of(scene.common).text(), "tags keep what they lead to"


def test_a_list_that_was_kept_is_the_one_that_is_read_afresh(scene: Scene) -> None:
    """Whatever happened in between, down to the order of the lines."""
    for _ in moves(scene):
        branches_of(scene.common).text()
    git(scene.repo, "pack-refs", "--all")
    branches_of(scene.common).text()
    for number in range(6, 12):
        ref = f"refs/heads/autopilot/s{number}"
        scene.repository.move_ref(ref, scene.second, scene.first, "moved")
        scene.repository.run("update-ref", ref, scene.second)
    assert branches_of(scene.common).text() == StoryBranches(scene.common).text()
