"""Work that is in a target as other commits: found by patch id, and never found where it is not."""

from pathlib import Path

from isolation.git.landing.patches import Work, brought_by, patched_into
from isolation.git.repository import Repository
from tests.conftest import git


def commit(repo: Path, message: str, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        (repo / name).write_bytes(data)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", message)
    return git(repo, "rev-parse", "HEAD").strip()


def branch(repo: Path, name: str, *changes: dict[str, bytes]) -> Work:
    """Make a branch with a commit for each change, and return to main."""
    fork = git(repo, "rev-parse", "main").strip()
    git(repo, "switch", "-q", "-c", name, "main")
    for number, files in enumerate(changes):
        commit(repo, f"{name} {number}", files)
    tip = git(repo, "rev-parse", "HEAD").strip()
    git(repo, "switch", "-q", "main")
    return Work(fork, tip)


def test_squashed_picked_and_neither(repo: Path) -> None:
    """The whole change as one commit counts, so do all of its commits; a part of them does not."""
    lines = b"".join(b"line %d\n" % number for number in range(40))
    commit(repo, "begin", {"file.txt": lines})
    edited = lines.replace(b"line 30\n", b"line 30, changed\n")
    squashed = branch(repo, "squashed", {"file.txt": edited}, {"file.txt": edited, "new.txt": b"new\n"})
    picked = branch(repo, "picked", {"a.txt": b"a\n"}, {"b.txt": b"b\n"})
    half = branch(repo, "half", {"c.txt": b"c\n"}, {"d.txt": b"d\n"})
    other = branch(repo, "other", {"new.txt": b"something else\n"})
    commit(repo, "earlier lines move", {"file.txt": b"first\n" + lines})
    git(repo, "merge", "-q", "--squash", "squashed")
    git(repo, "commit", "-q", "-m", "by hand")
    git(repo, "cherry-pick", "picked~1", "picked", "half")
    opened, works = Repository.open(repo), [squashed, picked, half, other]
    target = git(repo, "rev-parse", "main").strip()
    assert patched_into(opened, target, works) == {squashed.tip, picked.tip}
    assert patched_into(opened, squashed.fork, works) == frozenset()
    counted = brought_by(opened, [(squashed.fork, target)])
    assert patched_into(opened, target, works, without=counted) == frozenset()


def test_binary_files_are_not_taken_for_each_other(repo: Path) -> None:
    """Before git 2.39 all changes of a binary file have one patch id."""
    commit(repo, "begin", {"image": b"\0one"})
    mine = branch(repo, "mine", {"image": b"\0two"})
    also = branch(repo, "also", {"text.txt": b"text\n"})
    commit(repo, "theirs", {"image": b"\0three"})
    commit(repo, "also by hand", {"text.txt": b"text\n"})
    target = git(repo, "rev-parse", "main").strip()
    assert patched_into(Repository.open(repo), target, [mine, also]) == {also.tip}


def test_commits_that_are_gone_are_not_found(repo: Path) -> None:
    """Nothing is said of them, and nothing fails."""
    tip = git(repo, "rev-parse", "main").strip()
    gone = [Work(tip, "0" * 39 + "1"), Work("0" * 39 + "1", tip), Work("", tip), Work(tip, tip)]
    for each in gone:
        assert patched_into(Repository.open(repo), tip, [each]) == frozenset()
