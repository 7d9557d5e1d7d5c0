"""A merge that stops at conflicts, in a worktree of its own, and the files that somebody resolved it to."""

from collections.abc import Sequence
from pathlib import Path

from isolation.git.commit_flaws import conflict_markers, reveal_hidden
from isolation.git.commits import OWN_ADDRESS, OWN_NAME, commit_tree, retried
from isolation.git.landing.merges import merged_files
from isolation.git.repository import Repository, failure

RESOLVED = "refs/autopilot/resolved"
"""Where resolutions are kept, under the id of the landing."""


def begin_merge(
    repository: Repository, path: Path, onto: str, tip: str, date: float, *, base: str = ""
) -> None:
    """Begin to merge a branch in a worktree that is at `onto`; what conflicts has markers.

    With a `base`, where only what changed since counts, git is not in the middle of a merge.
    """
    if base:
        tree, _ = merged_files(repository, onto, tip, date, base=base)
        repository.run("read-tree", "--reset", "-u", tree, cwd=path)
        return
    settings = ["-c", "core.hooksPath=/dev/null", "-c", "rerere.enabled=false"]
    if not repository.has_identity:
        settings += ["-c", f"user.name={OWN_NAME}", "-c", f"user.email={OWN_ADDRESS}"]
    args = (*settings, "merge", "--quiet", "--no-commit", "--no-ff", "--no-verify", tip)
    output = repository.run(*args, cwd=path, check=False)
    if output.returncode not in {0, 1}:
        raise failure(args, output)


def resolved(
    repository: Repository,
    path: Path,
    parents: tuple[str, str],
    message: str,
    date: float,
    *,
    without: Sequence[str] = (),
) -> tuple[str, tuple[str, ...]]:
    """Return a merge of both parents with the files of a worktree, and those that still have markers.

    `without` are untracked files that were there before anybody worked.
    """
    reveal_hidden(repository, path, parents[0])
    args = ("add", "--all")
    output = retried(repository, args, path)
    if output.returncode != 0:
        raise failure(args, output)
    if without:
        unstage = ("--literal-pathspecs", "rm", "--cached", "--quiet", "--ignore-unmatch", "--force", "--")
        repository.run(*unstage, *without, cwd=path)
    tree = repository.run("write-tree", cwd=path).stdout.strip()
    commit = commit_tree(repository, tree, parents, message, date)
    return commit, conflict_markers(repository, parents[0], commit, path)


def untracked(repository: Repository, path: Path) -> tuple[str, ...]:
    """Return the files of a worktree that git neither knows nor ignores."""
    return repository.run("ls-files", "--others", "--exclude-standard", "-z", cwd=path).fields()


def keep(repository: Repository, name: str, commit: str) -> None:
    """Keep a resolution as `RESOLVED/name`."""
    repository.run("update-ref", "-m", "autopilot-multi: resolution", f"{RESOLVED}/{name}", commit)
