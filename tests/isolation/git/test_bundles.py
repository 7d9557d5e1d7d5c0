"""Branches that travel as bundles: between shallow clones, forward only."""

from pathlib import Path

import pytest

from isolation.errors import RepositoryError
from isolation.git.bundles import commits_since, move_branches, take_objects, write_bundle
from isolation.git.diffstat import ChangedPath, changes
from isolation.git.remotes import push_branches
from isolation.git.repository import Repository
from tests.conftest import git


@pytest.fixture
def origin(repo: Path) -> Path:
    """Return a repository with more than one commit."""
    commit(repo, "second.txt")
    return repo


def commit(place: Path, name: str, text: str = "text\n") -> str:
    """Commit one file; give the commit."""
    (place / name).write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", name)
    return git(place, "rev-parse", "HEAD").strip()


def clone(origin: Path, name: str) -> Repository:
    """Clone one commit deep."""
    place = origin.parent / name
    git(origin.parent, "clone", "-q", "--depth", "1", origin.as_uri(), str(place))
    return Repository.open(place)


def worked(repository: Repository, branch: str, *names: str) -> str:
    """Commit files on a branch of their own."""
    git(repository.top, "switch", "-q", "-C", branch, "origin/main")
    return [commit(repository.top, name) for name in names][-1]


def bundled(repository: Repository, *branches: str) -> tuple[Path, dict[str, str]]:
    """Put branches into a bundle."""
    base = repository.resolve("origin/main")
    tips = commits_since(repository, base, branches)
    path = repository.top.parent / f"{repository.top.name}.bundle"
    write_bundle(repository, path, base, list(tips))
    return path, tips


def read_bundle(repository: Repository, path: Path, tips: dict[str, str]) -> tuple[str, ...]:
    """Take over everything, as an import does."""
    take_objects(repository, path, tips)
    return move_branches(repository, path, tips)


def test_a_branch_travels_between_shallow_clones(origin: Path) -> None:
    """Its commits arrive whole; a branch without commits is not among them; again changes nothing."""
    here, there = clone(origin, "here"), clone(origin, "there")
    tip = worked(here, "work/a", "a.txt", "b.txt")
    git(here.top, "branch", "work/empty", "origin/main")
    path, tips = bundled(here, "work/a", "work/empty", "work/none")
    assert tips == {"work/a": tip}
    assert read_bundle(there, path, tips) == ("work/a",)
    assert there.branch_tip("work/a") == tip
    assert there.count_commits("origin/main", "work/a") == 2
    assert read_bundle(there, path, tips) == ()


def test_a_branch_only_moves_forward(origin: Path) -> None:
    """One that has gone another way is refused and nothing moves; one that is further stays."""
    here, there = clone(origin, "here"), clone(origin, "there")
    worked(here, "work/a", "a.txt")
    worked(here, "work/b", "b.txt")
    path, tips = bundled(here, "work/a", "work/b")
    mine = worked(there, "work/b", "mine.txt")
    with pytest.raises(RepositoryError, match="branch work/b is at"):
        read_bundle(there, path, tips)
    assert there.branch_tip("work/a") is None
    assert there.branch_tip("work/b") == mine
    further = clone(origin, "further")
    read_bundle(further, path, tips)
    git(further.top, "switch", "-q", "work/a")
    ahead = commit(further.top, "more.txt")
    assert read_bundle(further, path, tips) == ()
    assert further.branch_tip("work/a") == ahead


def test_a_clone_without_the_base_is_told_so(origin: Path) -> None:
    """The commit that the bundle starts from is named, with what to do."""
    here = clone(origin, "here")
    worked(here, "work/a", "a.txt")
    path, tips = bundled(here, "work/a")
    commit(origin, "third.txt")
    with pytest.raises(RepositoryError, match=f"starts from commit {here.resolve('origin/main')[:12]}"):
        read_bundle(clone(origin, "late"), path, tips)


def test_a_push_is_never_forced(origin: Path) -> None:
    """From a shallow clone it arrives; what went another way there stays."""
    here, there = clone(origin, "here"), clone(origin, "there")
    tip = worked(here, "work/a", "a.txt")
    (first,) = push_branches(here, "origin", {"work/a": tip})
    assert (first.how, first.refusal) == ("new", "")
    assert git(origin, "rev-parse", "work/a").strip() == tip
    other, fresh = worked(there, "work/a", "other.txt"), worked(there, "work/b", "b.txt")
    refused, taken = push_branches(there, "origin", {"work/a": other, "work/b": fresh})
    assert (refused.branch, refused.how) == ("work/a", "")
    assert "rejected" in refused.refusal
    assert taken.how == "new", "one that is refused does not keep the others back"
    assert git(origin, "rev-parse", "work/a").strip() == tip
    with pytest.raises(RepositoryError, match="cannot name a remote"):
        push_branches(here, "--force", {"work/a": tip})


def test_changes_count_lines_and_name_both_paths_of_a_rename(origin: Path) -> None:
    """Binary files have no lines, odd names stay as they are, an unknown commit changes nothing."""
    base = git(origin, "rev-parse", "HEAD").strip()
    git(origin, "mv", "second.txt", "moved\tname.txt")
    (origin / "image.bin").write_bytes(b"\0\1\2")
    tip = commit(origin, "new.txt", "1\n2\n")
    assert set(changes(Repository.open(origin), base, tip)) == {
        ChangedPath(path="image.bin", added=None, removed=None),
        ChangedPath(path="moved\tname.txt", added=1, removed=0),
        ChangedPath(path="new.txt", added=2, removed=0),
        ChangedPath(path="second.txt", added=0, removed=1),
    }
    assert changes(Repository.open(origin), "f" * 40, tip) == ()
