"""Merges without a checkout: with a base of their own, as one commit, and reverted."""

from pathlib import Path

from isolation.git.landing.merges import conflicting, join, not_contained, revert
from isolation.git.repository import Repository
from tests.conftest import git


def branch(repo: Path, name: str, start: str, files: dict[str, str | None]) -> str:
    """Make a branch with one commit; None deletes a file."""
    git(repo, "switch", "-q", "-c", name, start)
    for file, text in files.items():
        (repo / file).unlink() if text is None else (repo / file).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", name)
    tip = git(repo, "rev-parse", "HEAD").strip()
    git(repo, "switch", "-q", "main")
    return tip


def files(repo: Path, commit: str) -> list[str]:
    return git(repo, "ls-tree", "-r", "--name-only", commit).split()


def test_what_the_child_of_a_squashed_parent_deleted_stays_deleted(repo: Path) -> None:
    """With the recorded fork point as base, the parent's file does not come back."""
    repository = Repository.open(repo)
    parent = branch(repo, "parent", "main", {"draft.txt": "draft\n", "kept.txt": "kept\n"})
    child = branch(repo, "child", "parent", {"draft.txt": None, "final.txt": "final\n"})
    squashed = join(repository, "main", parent, "parent", 1.0, base="main", single=True)
    assert git(repo, "rev-list", "--count", f"main..{squashed.commit}").strip() == "1"
    plain = join(repository, squashed.commit, child, "child", 1.0)
    assert "draft.txt" in files(repo, plain.commit), "the trap that the base avoids"
    based = join(repository, squashed.commit, child, "child", 1.0, base=parent, single=True)
    assert "draft.txt" not in files(repo, based.commit)
    assert {"kept.txt", "final.txt"} <= set(files(repo, based.commit))


def test_a_conflict_has_paths_and_no_commit(repo: Path) -> None:
    """Both sides changed one file; no checkout and no ref has moved."""
    repository = Repository.open(repo)
    one = branch(repo, "one", "main", {"x.txt": "one\n"})
    two = branch(repo, "two", "main", {"x.txt": "two\n"})
    three = branch(repo, "three", "main", {"y.txt": "three\n"})
    before = git(repo, "for-each-ref")
    joined = join(repository, one, two, "m", 1.0)
    assert (joined.commit, joined.conflicts) == ("", ("x.txt",))
    assert conflicting(repository, one, (two, three)) == (two,)
    assert not_contained(repository, (one, three), one) == {three}
    assert git(repo, "for-each-ref") == before
    assert git(repo, "status", "--porcelain") == ""


def test_a_revert_removes_only_what_lies_between(repo: Path) -> None:
    """What came later stays, and a later change of the same file is a conflict."""
    repository = Repository.open(repo)
    before = git(repo, "rev-parse", "main").strip()
    landed = join(repository, before, branch(repo, "s", "main", {"s.txt": "s\n"}), "land", 1.0).commit
    later = branch(repo, "later", landed, {"later.txt": "later\n"})
    made = revert(repository, later, "revert", 1.0, before=before, after=landed)
    assert "s.txt" not in files(repo, made.commit)
    assert "later.txt" in files(repo, made.commit)
    changed = branch(repo, "changed", landed, {"s.txt": "changed\n"})
    assert revert(repository, changed, "revert", 1.0, before=before, after=landed).conflicts == ("s.txt",)
