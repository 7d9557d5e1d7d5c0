"""Commits of a branch on top of another commit: compared with what git's own rebase makes."""

from pathlib import Path

from isolation.git.landing.old_tips import place_for
from isolation.git.landing.replay import replay
from isolation.git.repository import Repository
from tests.conftest import git


def commit(repo: Path, name: str, text: str | None = None, **env: str) -> str:
    """Commit one file, or its deletion, and return the commit."""
    (repo / name).unlink() if text is None else (repo / name).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", f"{name}\n\nsecond paragraph: ünïcode", *env.values())
    return git(repo, "rev-parse", "HEAD").strip()


def shown(repo: Path, commits: str) -> str:
    return git(repo, "log", "--format=%T|%an|%ae|%ad|%B", "--date=raw", commits)


def test_it_makes_what_a_rebase_makes(repo: Path) -> None:
    """The same trees, authors, dates and messages in the same order; no ref and no checkout is touched."""
    repository = Repository.open(repo)
    fork = commit(repo, "base.txt", "1\n2\n3\n4\n5\n")
    git(repo, "switch", "-q", "-c", "story")
    commit(
        repo,
        "a.txt",
        "a\n",
        author="--author=Ann Ö <ann@example.org>",
        date="--date=2001-02-03T04:05:06+0530",
    )
    commit(repo, "base.txt", "1\n2\n3\n4\nfive\n")
    commit(repo, "same.txt", "same\n")
    commit(repo, "a.txt")
    tip = commit(repo, "last.txt", "last\n")
    git(repo, "switch", "-q", "main")
    commit(repo, "same.txt", "same\n")
    onto = commit(repo, "base.txt", "one\n2\n3\n4\n5\n")
    before = git(repo, "for-each-ref")
    made = replay(repository, onto, tip, 1.0e9, fork=fork)
    assert (git(repo, "for-each-ref"), git(repo, "status", "--porcelain")) == (before, "")
    assert git(repo, "log", "-1", "--format=%ct", made.commit).strip() == "1000000000"
    git(repo, "rebase", "-q", "--onto", "main", fork, "story")
    assert shown(repo, f"{onto}..{made.commit}") == shown(repo, f"{onto}..story")
    assert git(repo, "rev-list", "--count", f"{onto}..{made.commit}").strip() == "4", "one became empty"
    assert git(repo, "rev-parse", f"{made.commit}^{{tree}}").strip() == made.tree


def test_a_conflict_and_a_branch_that_brings_nothing(repo: Path) -> None:
    """The paths are named; what is on the target already leaves it as it is."""
    repository = Repository.open(repo)
    fork = commit(repo, "x.txt", "x\n")
    git(repo, "switch", "-q", "-c", "story")
    tip = commit(repo, "x.txt", "story\n")
    git(repo, "switch", "-q", "main")
    other = commit(repo, "x.txt", "other\n")
    conflict = replay(repository, other, tip, 1.0, fork=fork)
    assert (conflict.commit, conflict.conflicts) == ("", ("x.txt",))
    nothing = replay(repository, tip, tip, 1.0, fork=fork)
    assert (nothing.commit, nothing.empty) == (tip, True)
    git(repo, "switch", "-q", "--orphan", "root")
    root = commit(repo, "root.txt", "root\n")
    joined = replay(repository, other, root, 1.0, fork="")
    assert git(repo, "ls-tree", "--name-only", joined.commit).split()[-2:] == ["root.txt", "x.txt"]


def test_conflicts_that_a_merge_has_resolved_are_not_met_again(repo: Path) -> None:
    """The branch was merged with the target, which has moved since: one commit up to there, then the rest."""
    repository = Repository.open(repo)
    fork = commit(repo, "x.txt", "x\n")
    git(repo, "switch", "-q", "-c", "story")
    commit(repo, "x.txt", "story\n")
    git(repo, "switch", "-q", "main")
    commit(repo, "x.txt", "other\n")
    git(repo, "switch", "-q", "story")
    git(repo, "merge", "-q", "--no-commit", "-s", "ours", "main")
    commit(repo, "x.txt", "both\n")
    tip = commit(repo, "after.txt", "after\n")
    git(repo, "switch", "-q", "main")
    onto = commit(repo, "later.txt", "later\n")
    made = replay(repository, onto, tip, 1.0, fork=fork)
    assert git(repo, "log", "--format=%s", f"{onto}..{made.commit}").split() == ["after.txt", "x.txt"]
    assert git(repo, "rev-list", "--merges", f"{onto}..{made.commit}") == ""
    assert git(repo, "show", f"{made.commit}:x.txt") == "both\n"
    assert git(repo, "show", f"{made.commit}:later.txt") == "later\n"


def test_old_tips_are_numbered_and_kept_once(repo: Path) -> None:
    """A tip that is kept already keeps its number; another one gets the next."""
    repository = Repository.open(repo)
    first = git(repo, "rev-parse", "HEAD").strip()
    assert place_for(repository, "s", first) == "refs/autopilot/old/s/1"
    git(repo, "update-ref", "refs/autopilot/old/s/9", first)
    second = commit(repo, "y.txt", "y\n")
    assert place_for(repository, "s", first) == "refs/autopilot/old/s/9"
    assert place_for(repository, "s", second) == "refs/autopilot/old/s/10"
    assert place_for(repository, "other", second) == "refs/autopilot/old/other/1"
