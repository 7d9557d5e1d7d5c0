"""The commits that the program makes itself: checkpoints of a story, merges of its dependencies.

They are made from plumbing, with fixed dates: the same act on the same content gives the same
commit id, so an act that was torn by a crash can simply be done again. A branch moves only by
compare-and-swap. A lock that another git command holds is waited for, within bounds, and never
deleted.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from isolation.errors import MergeConflictError, RepositoryError, WorkspaceError
from isolation.repository import GitOutput, Repository, failure

OWN_NAME = "autopilot-multi"
OWN_ADDRESS = "autopilot-multi@localhost"
_WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 1.2, 1.2)
_USAGE = 129
_OPERATIONS = {
    "MERGE_HEAD": "a merge",
    "MERGE_AUTOSTASH": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "BISECT_LOG": "a bisection",
    "sequencer": "a series of picks",
}
_NAMED = 5


def named(paths: Sequence[str]) -> str:
    """Name up to five paths, safe to print, and the number of the others."""
    shown = ", ".join(path if path.isprintable() else repr(path)[1:-1] for path in paths[:_NAMED])
    others = len(paths) - _NAMED
    return shown if others <= 0 else f"{shown} and {others} other{'s' * (others > 1)}"


def operation_in_progress(git_dir: Path) -> str | None:
    """Name the git operation that a checkout is in the middle of."""
    return next((what for name, what in _OPERATIONS.items() if (git_dir / name).exists()), None)


def checkpoint(repository: Repository, cwd: Path, branch: str, message: str, date: float) -> str | None:
    """Commit everything in a worktree to its branch; None when nothing changed.

    `date` is the commit's author and committer date: the same for a repeat of the same checkpoint.
    """
    _require_committable(repository, cwd, branch)
    head = repository.resolve(f"refs/heads/{branch}")
    _stage_all(repository, cwd)
    tree = repository.run("write-tree", cwd=cwd).stdout.strip()
    if tree == repository.run("rev-parse", f"{head}^{{tree}}").stdout.strip():
        return None
    commit = _commit_tree(repository, tree, (head,), message, date)
    moved = repository.run(
        *("update-ref", "-m", "autopilot-multi: checkpoint", f"refs/heads/{branch}", commit, head),
        cwd=cwd,
        check=False,
    )
    if moved.returncode != 0:
        tip = repository.branch_tip(branch)
        if tip != head:
            raise WorkspaceError(
                f"branch {branch} moved from {head[:10]} to {tip and tip[:10]} during a checkpoint",
                hint="does another process commit to it? run again when it has ended",
            )
        raise failure(("update-ref", f"refs/heads/{branch}"), moved)
    return commit


def merge_parents(repository: Repository, parents: Sequence[str], message: str) -> str:
    """Give one commit with all of `parents` in its history, without touching any checkout.

    Those that others contain already are left out; what is left is merged in the given order. The
    same parents give the same commit.
    """
    tips = _independent(repository, parents)
    merged = tips[0]
    for number, tip in enumerate(tips[1:], start=2):
        tree = _merge_tree(repository, merged, tip)
        date = max(_committed_at(repository, commit) for commit in (merged, tip))
        subject = message if number == len(tips) else f"{message} ({number} of {len(tips)})"
        merged = _commit_tree(repository, tree, (merged, tip), subject, date)
    return merged


def _require_committable(repository: Repository, cwd: Path, branch: str) -> None:
    on = repository.current_branch(cwd)
    if on != branch:
        raise WorkspaceError(
            f"{cwd} is {f'on branch {on}' if on else 'on no branch'}, not on {branch}",
            hint=f"`git switch {branch}` there, keep what you need, then run again",
        )
    if operation := operation_in_progress(repository.git_dir(cwd)):
        raise WorkspaceError(
            f"{cwd} is in the middle of {operation}", hint="finish or abort it there, then run again"
        )
    if conflicts := repository.run("diff", "--name-only", "--diff-filter=U", "-z", cwd=cwd).fields():
        raise WorkspaceError(
            f"{cwd} has unresolved conflicts: {named(conflicts)}", hint="resolve them, then run again"
        )


def _stage_all(repository: Repository, cwd: Path) -> None:
    args = ("-c", "advice.addEmbeddedRepo=false", "add", "--all")
    output = retried(repository, args, cwd)
    if output.returncode == 0:
        return
    nested = [line for line in output.stderr.splitlines() if "does not have a commit checked out" in line]
    if nested:
        path = nested[0].removeprefix("error: ").split("'")[1]
        raise WorkspaceError(
            f"{path} is a git repository without a commit inside {cwd}, so it cannot be committed",
            hint=f"remove {path}.git, or commit there, or ignore the folder",
        )
    raise failure(args, output)


def retried(repository: Repository, args: tuple[str, ...], cwd: Path) -> GitOutput:
    """Run a command that needs the index, with patience while another one holds its lock."""
    for wait in (*_WAITS, None):
        output = repository.run(*args, cwd=cwd, check=False)
        if output.returncode == 0 or "index.lock" not in output.stderr or wait is None:
            return output
        time.sleep(wait)
    raise AssertionError("unreachable")


def _commit_tree(
    repository: Repository, tree: str, parents: tuple[str, ...], message: str, date: float
) -> str:
    when = f"@{int(date)} +0000"
    env = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    if not repository.has_identity():
        env |= {f"GIT_{who}_NAME": OWN_NAME for who in ("AUTHOR", "COMMITTER")}
        env |= {f"GIT_{who}_EMAIL": OWN_ADDRESS for who in ("AUTHOR", "COMMITTER")}
    pointers = [part for parent in parents for part in ("-p", parent)]
    args = ("-c", "i18n.commitEncoding=UTF-8", "commit-tree", tree, *pointers, "-F", "-")
    return repository.run(*args, env=env, stdin=message.encode(errors="surrogateescape")).stdout.strip()


def _independent(repository: Repository, parents: Sequence[str]) -> list[str]:
    tips = list(dict.fromkeys(repository.resolve(parent) for parent in parents))
    if len(tips) < 2:  # noqa: PLR2004  one tip has nothing to be compared with
        return tips
    kept = set(repository.run("merge-base", "--independent", *tips).stdout.split())
    return [tip for tip in tips if tip in kept]


def _committed_at(repository: Repository, commit: str) -> int:
    return int(repository.run("show", "--no-patch", "--format=%ct", commit, "--").stdout)


def _merge_tree(repository: Repository, ours: str, theirs: str) -> str:
    args = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    output = repository.run(*args, check=False)
    if output.returncode == _USAGE:
        raise RepositoryError(
            "merging several dependencies needs git 2.38 or newer",
            hint="install a newer git, or let the story depend on one story only",
        )
    if output.returncode not in {0, 1}:
        raise failure(args, output)
    tree, *paths = output.fields()
    if output.returncode == 1:
        conflicts = tuple(dict.fromkeys(paths))
        raise MergeConflictError(
            f"{ours[:10]} and {theirs[:10]} do not merge: conflicts in {named(conflicts)}",
            paths=conflicts,
            hint="let one story depend on the other, or merge their branches by hand",
        )
    return tree
