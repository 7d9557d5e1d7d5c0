"""The commits that the program makes itself: checkpoints of a story, merges of its dependencies.

They have fixed dates: the same operation on the same content gives the same commit id, so one that a crash
interrupted can simply be repeated. A branch moves only by compare-and-swap. A lock that another git command
holds is waited for, within bounds, and never deleted.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import (
    GitCommandError,
    MergeConflictError,
    SigningError,
    UncommittableError,
    WorkspaceError,
)
from isolation.files.lookups import present
from isolation.files.plain import read_plain
from isolation.git.checkout import (
    CheckoutStatus,
    after_staging,
    index_identity,
    read_status,
    seen_status,
)
from isolation.git.commit_flaws import conflict_markers, may_have_markers, restore, reveal_hidden
from isolation.git.direct.racy_index import settle_racy
from isolation.git.direct.refs import COMMIT_ID
from isolation.git.forecast.merge_tree import merge_tree
from isolation.git.plain.commit import Signature, commit_plainly
from isolation.git.repository import GitOutput, Repository, failure
from isolation.paths import own_git_dir

OWN_NAME = "autopilot-multi"
OWN_ADDRESS = "autopilot-multi@localhost"
_WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 1.2, 1.2)
_SPARSE_GIT = (2, 34)
_IGNORED = "paths are ignored by one of your .gitignore files"
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
_MARKS = ("CHERRY_PICK_HEAD", "REVERT_HEAD")
_SERIES = ("sequencer", "rebase-merge", "rebase-apply", "MERGE_HEAD")
_NAMED = 5
_FEW = 50
"""How many paths are named to git, which compares each with every file that it knows."""
_LONGEST_LOG = 1 << 26
_EMBEDDED = "warning: adding embedded git repository: "


def named(paths: Sequence[str], most: int = _NAMED) -> str:
    """Return up to five paths, or so many as are asked for, safe to print, and the number of the others."""
    shown = ", ".join(path if path.isprintable() else repr(path)[1:-1] for path in paths[:most])
    others = len(paths) - most
    return shown if others <= 0 else f"{shown} and {others} other{'s' * (others > 1)}"


def operation_in_progress(git_dir: Path) -> str | None:
    """Return the git operation that a checkout is in the middle of; None if there is none."""
    return next((_OPERATIONS[name] for name in present(git_dir, _OPERATIONS)), None)


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Where a branch is after a checkpoint: its tip, and how many commits it has since its base.

    `files` is how many paths the session changed; None if that can no longer be found out. `unchanged` means
    that the tip has the same files as the base, although there may be commits. `markers` are the files to
    which the branch adds conflict markers. All that the branch changes is `among` these paths; None if only
    git can tell. `index` is what the file system says of git's index, where it has the files of `tip`.
    """

    tip: str
    commits: int
    files: int | None
    unchanged: bool = False
    markers: tuple[str, ...] = ()
    among: tuple[str, ...] | None = None
    index: tuple[int, ...] = ()


def checkpoint(
    repository: Repository,
    cwd: Path,
    branch: str,
    message: str,
    date: float,
    *,
    base: str,
    since: str,
    index: tuple[int, ...] = (),
) -> Checkpoint:
    """Commit everything in a worktree to its branch; if nothing changed, the branch stays.

    `date` is the commit's author and committer date: the same for a repeat of the same checkpoint. `since` is
    where the branch was before the session, and `index` that of the workspace. Raises `UncommittableError`
    for what the next session can put right: an unfinished merge, or changes that were hidden from git. No
    session may be alive there.
    """
    with repository.visiting(cwd):
        status, head = _to_commit(repository, cwd, branch, base=base, since=since, index=index)
        first = None
        who = signature_of(repository, date)
        made = commit_plainly(repository, cwd, branch, status, signature=who, message=message)
        if made is not None:  # the usual case, without a process
            status = replace(status, dirty=made.changed)
            first = made.tip if head == base else None
        elif status.dirty:
            _stage_all(repository, cwd, status.dirty)
            status = after_staging(cwd, status)
        if status.dirty and made is None:
            if _commit_index(repository, cwd, message, date) and head == base:
                first = _logged_on_top_of(base, cwd)
            _refuse_deep(repository, cwd, status.deep)
        elif head == base and not status.dirty:
            return Checkpoint(tip=head, commits=0, files=0, unchanged=True)
        # Git makes no empty commit by itself, so a first commit of ours has changed something.
        tip, commits, unchanged = (
            (first, 1, False) if first else _since_base(repository, cwd, branch, head, base)
        )
        if tip == since:
            files: int | None = 0
        elif head == since:
            files = len(status.dirty)
        else:  # it has committed by itself
            files = _count_changed(repository, since, tip)
        # Alone on its base, the new commit holds just what was dirty.
        may_have = made.suspect if made is not None else bool(first) and may_have_markers(cwd, status.dirty)
        suspect = may_have if first else not unchanged
        markers = conflict_markers(repository, base, tip, cwd) if suspect else ()
        return Checkpoint(
            tip=tip,
            commits=commits,
            files=files,
            unchanged=unchanged,
            markers=markers,
            among=status.dirty if first else None,
            index=index_identity(cwd, status.git_dir) if first else (),
        )


def _to_commit(
    repository: Repository, cwd: Path, branch: str, *, base: str, since: str, index: tuple[int, ...]
) -> tuple[CheckoutStatus, str]:
    """Return what there is to commit and the commit to build on; put right what a session broke of these."""
    if (git_dir := own_git_dir(cwd)) is not None:
        settle_racy(git_dir, cwd, index, len(base) // 2)
    seen = seen_status(repository, cwd, branch, since, index, git_dir=git_dir)
    try:
        return _committable(repository, cwd, branch, since, seen)
    except (GitCommandError, WorkspaceError):
        if not restore(repository, cwd, branch, since):
            raise
        return _committable(repository, cwd, branch, since, None)


def commit_paths(
    repository: Repository, cwd: Path, branch: str, message: str, date: float, *, paths: Sequence[str]
) -> str | None:
    """Commit some paths of a worktree and nothing else; return the new tip.

    None if there is nothing to commit: they are unchanged or ignored, the worktree is gone or on another
    branch, or git is in the middle of something.
    """
    git_dir = own_git_dir(cwd)
    if git_dir is None or operation_in_progress(git_dir) is not None:
        return None
    status = read_status(repository, cwd)
    dirty = [path for path in status.dirty if any(path == own or path.startswith(f"{own}/") for own in paths)]
    if status.branch != branch or not dirty:
        return None
    sparse = ("--sparse",) if repository.version >= _SPARSE_GIT else ()
    adding = ("--literal-pathspecs", "add", "--all", *sparse, "--", *dirty)
    staged = repository.run(*adding, cwd=cwd, check=False)
    if staged.returncode != 0 or not _commit_index(repository, cwd, message, date, only=dirty):
        return None
    return repository.head(cwd)


def _count_changed(repository: Repository, since: str, tip: str) -> int | None:
    """Count the paths that differ; None if the session has deleted the commit it began at."""
    try:
        return len(repository.changed_paths(since, tip))
    except GitCommandError:
        return None


def _commit_index(
    repository: Repository, cwd: Path, message: str, date: float, *, only: Sequence[str] = ()
) -> bool:
    """Commit what is staged, or `only` some paths, without hooks, templates and signing.

    Git refuses an empty commit, and moves the branch by compare-and-swap under its own locks. False if there
    was nothing to commit.
    """
    settings = ("-c", "core.hooksPath=/dev/null", "-c", "i18n.commitEncoding=UTF-8")
    args = ("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "--no-status")
    output = repository.run(
        *(*settings, *args, "--file=-", *(("--only", "--", *only) if only else ())),
        cwd=cwd,
        check=False,
        env=_signature(repository, date),
        stdin=message.encode(errors="surrogateescape"),
    )
    # Exit code 1 without an error message means that there was nothing to commit.
    if output.returncode not in {0, 1} or (output.returncode == 1 and output.stderr):
        raise failure(args, output)
    return output.returncode == 0


def _logged_on_top_of(base: str, cwd: Path) -> str | None:
    """Return the commit that git has just logged on top of `base`, which saves a process.

    None if git keeps no log, or if another process committed in between.
    """
    git_dir = own_git_dir(cwd)
    try:
        lines = read_plain(git_dir / "logs" / "HEAD", _LONGEST_LOG).splitlines() if git_dir else []
    except OSError:
        return None
    words = lines[-1].decode(errors="replace").split(" ", 2) if lines else []
    before, after = (*words, "", "")[:2]
    return after if before == base != after and COMMIT_ID.fullmatch(after) else None


def _since_base(
    repository: Repository, cwd: Path, branch: str, before: str, base: str
) -> tuple[str, int, bool]:
    """Return the branch's tip, its number of commits, and whether they leave all files as in the base.

    A foreign commit on `before` is an error. So is a branch that has lost its base: what was verified on it
    would differ from what a merge gives.
    """
    args = ("rev-list", "--parents", "--boundary", "--format=%T", f"{base}..HEAD", "--")
    output = repository.run(*args, cwd=cwd).stdout.splitlines()
    # Each commit takes two lines, and the boundary, where the base is, is marked by a dash.
    listed = [line.removeprefix("commit ") for line in output[::2]]
    trees = {line.split()[0].removeprefix("-"): tree for line, tree in zip(listed, output[1::2], strict=True)}
    lines = [line for line in listed if not line.startswith("-")]
    newest = lines[0].split() if lines else [base]
    if before != base and not any(base in line.split()[1:] for line in lines):
        raise WorkspaceError(
            f"the history of {branch} was rewritten: it no longer contains its base {base[:10]}",
            hint=f"`git reset --soft {base[:10]}` in {cwd} keeps the files; then run again",
        )
    if before not in newest[:2]:
        raise WorkspaceError(
            f"branch {branch} moved from {before[:10]} to {newest[0][:10]} during a checkpoint",
            hint="does another process commit to it? run again when it has ended",
        )
    return newest[0], len(lines), not lines or trees.get(base) == trees[newest[0]]


def merge_parents(repository: Repository, parents: Sequence[str], message: str) -> str:
    """Return one commit with all of `parents` in its history, without touching any checkout.

    Those that others already contain are left out; the rest is merged in the given order. The same parents
    give the same commit.
    """
    tips = _independent(repository, parents)
    merged = tips[0]
    for number, tip in enumerate(tips[1:], start=2):
        tree = _merged_tree(repository, merged, tip)
        # Not the current time: the same parents must give the same commit.
        date = max(committed_at(repository, commit) for commit in (merged, tip))
        subject = message if number == len(tips) else f"{message} ({number} of {len(tips)})"
        merged = commit_tree(repository, tree, (merged, tip), subject, date)
    return merged


def _committable(
    repository: Repository, cwd: Path, branch: str, since: str, seen: CheckoutStatus | None
) -> tuple[CheckoutStatus, str]:
    """Return what there is to commit and the commit to build on; raises if that cannot be."""
    hidden = () if seen else reveal_hidden(repository, cwd, since)  # what was seen has a plain index
    status = seen or read_status(repository, cwd)
    head = _require_committable(status, cwd, branch, since)
    _refuse_hidden(tuple(path for path in hidden if path in status.dirty))
    return status, head


def _require_committable(status: CheckoutStatus, cwd: Path, branch: str, since: str) -> str:
    """Return the commit that a checkpoint builds on; raises if something blocks it."""
    _require_finished(status, cwd)
    if status.branch == branch and status.head is None:
        raise WorkspaceError(
            f"branch {branch} is gone",
            hint=f"`git branch {branch} {since[:12]}` restores it; then run again",
        )
    if status.branch != branch or status.head is None:
        where = f"on branch {status.branch}" if status.branch else "on no branch"
        raise WorkspaceError(
            f"{cwd} is {where}, not on {branch}",
            hint=f"`git switch {branch}` there, keep what you need, then run again",
        )
    return status.head


def _require_finished(status: CheckoutStatus, cwd: Path) -> None:
    """Refuse a merge, a rebase and the like that the session left unfinished; it is never ended for it."""
    if (git_dir := status.git_dir or own_git_dir(cwd)) is not None and not status.conflicts:
        _clear_concluded(git_dir)
    if git_dir is not None and (operation := operation_in_progress(git_dir)):
        raise UncommittableError(
            f"{cwd} is in the middle of {operation}",
            words=f"The worktree is in the middle of {operation}. Finish it, or abort it, before you end.",
            hint="finish or abort it there, then run again",
        )
    if status.conflicts:
        raise UncommittableError(
            f"{cwd} has unresolved conflicts: {named(status.conflicts)}",
            words="These files have unresolved conflicts; resolve them and `git add` them:\n"
            + "\n".join(status.conflicts),
            hint="resolve them, then run again",
        )


def _refuse_hidden(changed: tuple[str, ...]) -> None:
    """Refuse changes that a session hid from git: they are neither lost nor committed against its will."""
    if changed:
        raise UncommittableError(
            f"it hid changes from git by skip-worktree or assume-unchanged: {named(changed)}",
            words="You changed these files and hid that from git (skip-worktree or assume-unchanged). "
            "Only what is committed counts. Git sees them again; keep the changes that belong to your task, "
            "and restore the other files:\n" + "\n".join(changed),
            hint="see `git diff` in its worktree",
        )


def _clear_concluded(git_dir: Path) -> None:
    """Remove the marker files of a pick or a revert that is over.

    Git deletes them under a lock of the shared directory, which the write guard does not let a session
    take. Without conflicts, and with no further picks to come, only the marker is left.
    """
    there = present(git_dir, _OPERATIONS)
    if there and not any(name in _SERIES for name in there):
        for name in _MARKS:
            (git_dir / name).unlink(missing_ok=True)


def _stage_all(repository: Repository, cwd: Path, dirty: Sequence[str]) -> None:
    """Stage everything.

    A few paths are named to git. By itself it would also take every file that is as young as the index, as
    all are soon after a checkout, and write its object again: it may not touch the one that is there.
    """
    # A sparse checkout does not limit what a story may write; older versions of git add everything anyway.
    sparse = ("--sparse",) if repository.version >= _SPARSE_GIT else ()
    args = ("--literal-pathspecs", "-c", "advice.addEmbeddedRepo=false", "add", "--all", *sparse)
    output = retried(repository, (*args, "--", *dirty), cwd) if len(dirty) <= _FEW else None
    if output is None or not _is_staged(output):
        output = retried(repository, args, cwd)
    if _is_staged(output):
        _refuse_embedded(repository, cwd, output)
        return
    nested = [line for line in output.stderr.splitlines() if "does not have a commit checked out" in line]
    if nested:
        path = nested[0].removeprefix("error: ").split("'")[1]
        raise WorkspaceError(
            f"{path} is a git repository without a commit inside {cwd}, so it cannot be committed",
            hint=f"remove {path}.git, make it a submodule, or ignore the folder",
        )
    raise failure(args, output)


def _is_staged(added: GitOutput) -> bool:
    """Whether git has staged everything but the paths that its rules ignore, of which it complains."""
    return added.returncode == 0 or (added.returncode == 1 and _IGNORED in added.stderr)


def _refuse_embedded(repository: Repository, cwd: Path, added: GitOutput) -> None:
    """Refuse repositories that a session made in the worktree: git would commit their ids but no files."""
    lines = (line.strip() for line in added.stderr.splitlines())
    paths = [line.removeprefix(_EMBEDDED) for line in lines if line.startswith(_EMBEDDED)]
    if not paths:
        return
    repository.run("--literal-pathspecs", "rm", "--cached", "--force", "--quiet", "--", *paths, cwd=cwd)
    raise WorkspaceError(
        f"{named(paths)} inside {cwd} is a git repository of its own, so its files cannot be committed",
        hint=f"remove {paths[0]}/.git there, make it a submodule, or ignore the folder; then run again",
    )


def _refuse_deep(repository: Repository, cwd: Path, submodules: tuple[str, ...]) -> None:
    """Refuse uncommitted files in submodules, unless the user's settings ignore them.

    A commit holds only the id of a submodule's commit, so what was verified with these files would be lost.
    """
    if not submodules:
        return
    args = ("--literal-pathspecs", "status", "--porcelain", "-z", "--no-renames", "--", *submodules)
    relevant = [entry[3:] for entry in repository.run(*args, cwd=cwd).fields()]
    if relevant:
        raise WorkspaceError(
            f"uncommitted files in a submodule cannot be committed from {cwd}: {named(relevant)}",
            hint="commit them there, or set `ignore` in .gitmodules if they do not matter; then run again",
        )


def retried(repository: Repository, args: tuple[str, ...], cwd: Path) -> GitOutput:
    """Run a command that needs the index, and wait while another one holds its lock."""
    for wait in (*_WAITS, None):
        output = repository.run(*args, cwd=cwd, check=False)
        if output.returncode == 0 or "index.lock" not in output.stderr or wait is None:
            return output
        time.sleep(wait)
    raise AssertionError("unreachable")


def commit_tree(
    repository: Repository,
    tree: str,
    parents: tuple[str, ...],
    message: str,
    date: float,
    *,
    author: Mapping[str, str] | None = None,
    sign: bool = False,
) -> str:
    """Make a commit of an existing tree; no branch moves.

    `author` are git's variables for the author, if that is somebody else. With `sign` the user's git signs
    it, or `SigningError` says why it could not.
    """
    env = {**_signature(repository, date), **(author or {})}
    pointers = [part for parent in parents for part in ("-p", parent)]
    text = message.encode(errors="surrogateescape")
    args = ("-c", "i18n.commitEncoding=UTF-8", "commit-tree", tree, *pointers, "-F", "-")
    if not sign:
        return repository.run(*args, env=env, stdin=text).stdout.strip()
    signed = repository.run(*args, "-S", env=env, stdin=text, check=False)
    if signed.returncode == 0:
        return signed.stdout.strip()
    repository.run(*args, env=env, stdin=text)  # what fails without a signature as well has another reason
    raise SigningError(
        f"git could not sign a commit, as `commit.gpgSign` asks: {' '.join(signed.stderr.split())[:300]}",
        hint="check `gpg.format` and `user.signingKey`; `git commit -S --allow-empty` tries it by hand.",
    )


def signature_of(repository: Repository, date: float) -> Signature:
    """Return who makes a commit, and when: this program itself if the user has no name."""
    own = f"{OWN_NAME} <{OWN_ADDRESS}>"
    author, committer = (repository.author, repository.committer) if repository.has_identity else (own, own)
    return Signature(author=author, committer=committer, date=int(date))


def _signature(repository: Repository, date: float) -> dict[str, str]:
    """Return the dates of a commit, and this program's own name if the user has none."""
    when = f"@{int(date)} +0000"
    env = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    if not repository.has_identity:
        env |= {f"GIT_{who}_NAME": OWN_NAME for who in ("AUTHOR", "COMMITTER")}
        env |= {f"GIT_{who}_EMAIL": OWN_ADDRESS for who in ("AUTHOR", "COMMITTER")}
    return env


def _independent(repository: Repository, parents: Sequence[str]) -> list[str]:
    if len(parents) == 1 and COMMIT_ID.fullmatch(parents[0]):
        return list(parents)  # the usual case, without a git process
    tips = list(dict.fromkeys(repository.resolve(parent) for parent in parents))
    if len(tips) < 2:  # noqa: PLR2004  one tip needs no comparison
        return tips
    kept = set(repository.run("merge-base", "--independent", *tips).stdout.split())
    return [tip for tip in tips if tip in kept]


def committed_at(repository: Repository, commit: str) -> int:
    """Return when a commit was made."""
    return int(repository.run("show", "--no-patch", "--format=%ct", commit, "--").stdout)


def _merged_tree(repository: Repository, ours: str, theirs: str) -> str:
    tree, conflicts = merge_tree(repository, ours, theirs)
    if conflicts:
        tips = " and ".join(_shown(repository, commit) for commit in (ours, theirs))
        raise MergeConflictError(
            f"{tips} do not merge: conflicts in {named(conflicts)}",
            paths=conflicts,
            hint="let one story depend on the other, or merge their branches by hand",
        )
    return tree


def _shown(repository: Repository, commit: str) -> str:
    """Return a branch that points at a commit, which says more to a reader than its id."""
    asking = ("for-each-ref", "--count=1", "--format=%(refname:lstrip=2)", f"--points-at={commit}")
    return repository.run(*asking, "refs/heads").stdout.strip() or commit[:10]
