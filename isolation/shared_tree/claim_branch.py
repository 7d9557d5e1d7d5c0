"""A story's workspace in the shared working tree: its claim in the user's checkout, and a branch of its own.

The checkout stays on its branch. Its index and everything outside the claim are never written here;
a story's commits go to `autopilot/<id>`, each built from its parent with only paths of the claim changed.
So the work shows in the checkout as unstaged changes, and the commits hold it too.

A story begins on clean paths: a change that another author left in its claim would get into its commit. What
the story itself left when it failed is recorded under a ref and picked up again.
"""

import time
from functools import partial
from pathlib import Path

from isolation.claims.globs import Claim
from isolation.errors import GitCommandError, WorkspaceError
from isolation.git.branches import (
    fast_forward,
    require_branch_name,
    require_creatable,
    require_free_branch,
    start_of,
)
from isolation.git.commit_flaws import conflict_markers, may_have_markers
from isolation.git.commits import Checkpoint, merge_parents, named, operation_in_progress
from isolation.git.metadata_lock import metadata_lock
from isolation.git.private_index import ClaimTree, NewCommit, claim_tree, differing, fresh_index
from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository, failure
from isolation.model import Workspace, WorkspaceRequest
from isolation.paths import claim_index_path, own_git_dir, require_component
from isolation.shared_tree.changes import note_changes
from isolation.shared_tree.skipped import skipped_paths

LEFTOVERS = "refs/autopilot/left/"
FOUND = "refs/autopilot/found/"


def open_claim(
    repository: Repository, request: WorkspaceRequest, claim: Claim, *, resumed: bool
) -> Workspace:
    """Open a story's claim in the checkout, with a branch that starts from the base; blocking.

    `resumed` means that this run, or one that was killed, has opened the claim for the story before, and
    found it clean: what is there now is the story's own, written by its sessions, its hooks or the runner.
    """
    require_component(request.story_id, "story id")
    require_branch_name(request.branch)
    try:
        return _open_claim(repository, request, claim, resumed=resumed)
    except GitCommandError as error:
        raise WorkspaceError(error.message, hint=error.hint) from error


def _open_claim(
    repository: Repository, request: WorkspaceRequest, claim: Claim, *, resumed: bool
) -> Workspace:
    git_dir = own_git_dir(request.path)
    if git_dir is not None and (operation := operation_in_progress(git_dir)):
        raise WorkspaceError(
            f"{request.path} is in the middle of {operation}", hint="finish or abort it, then run again"
        )
    base = merge_parents(repository, request.parents, f"Merge the dependencies of {request.story_id}")
    before = repository.branch_tip(request.branch)
    _require_dependencies(repository, request, base)
    _require_checked_out(repository, request.path, claim)
    if not resumed:
        # A branch without commits of its own may be older than the base, so then the base counts.
        begun = before is not None and not repository.is_ancestor(before, base)
        _require_clean(repository, request, claim, before if before and begun else base)
    # Only the branch is made under the lock: building the claim's tree above reads every file of it.
    with metadata_lock(repository.common_dir):
        require_free_branch(request, load_registrations(repository))
        if before is None:
            made = repository.make_branch(request.branch, base)
            if made.returncode != 0:
                require_creatable(repository, request.branch)
                raise failure(("branch", request.branch), made)
        tip = fast_forward(repository, request.branch, before, base) if before else base
    if resumed:
        _record_found(repository, request, claim, tip)
    return Workspace(
        path=request.path,
        branch=request.branch,
        base=start_of(repository, base, tip),
        head=tip,
        reattached=before is not None,
    )


def commit_claim(
    repository: Repository,
    workspace: Workspace,
    claim: Claim,
    message: str,
    date: float,
    *,
    since: str,
) -> Checkpoint:
    """Commit what the claim owns to the story's branch; if nothing changed, the branch stays.

    The same content on the same parent at the same `date` is the same commit, so a repeat is harmless.
    """
    tip = repository.branch_tip(workspace.branch)
    if tip is None:
        raise WorkspaceError(
            f"branch {workspace.branch} is gone",
            hint=f"`git branch {workspace.branch} {since[:12]}` restores it; then resume the run",
        )
    before, index = tip, claim_index_path(repository.common_dir, workspace.branch)
    commit = NewCommit(message=message, date=date)
    built = claim_tree(repository, workspace.path, index=index, tip=tip, claim=claim, commit=commit)
    if built.changed:
        with metadata_lock(repository.common_dir):
            # Naming the old tip makes it a compare-and-swap: a branch that moved meanwhile is an error.
            ref, why = f"refs/heads/{workspace.branch}", "autopilot-multi: checkpoint"
            repository.move_ref(ref, built.tip, tip, why)
        tip = built.tip
    # The branch was at its base and was moved from there by compare-and-swap: this is its only commit.
    first = bool(built.changed) and before == workspace.base
    if first:
        note_changes(repository, before, tip, built.changed)
    commits = 1 if first else repository.count_commits(workspace.base, tip)
    # The commits here are ours and never empty, so one alone has changed something.
    unchanged = commits != 1 and len(set(repository.trees((workspace.base, tip)))) == 1
    made = commits == 1 and bool(built.changed)
    may_have = partial(may_have_markers, workspace.path, built.changed)
    suspect = not unchanged and (not made or (built.suspect and may_have()))
    return Checkpoint(
        tip=tip,
        commits=commits,
        files=len(built.changed) if before == since else len(repository.changed_paths(since, tip)),
        unchanged=unchanged,
        markers=conflict_markers(repository, workspace.base, tip, workspace.path) if suspect else (),
        among=built.changed if first else None,
    )


def changed_in_claim(
    repository: Repository, cwd: Path, branch: str, claim: Claim, tip: str
) -> tuple[str, ...]:
    """Return the files of a claim in the checkout that differ from a commit of the story's branch."""
    index = claim_index_path(repository.common_dir, branch)
    return claim_tree(repository, cwd, index=index, tip=tip, claim=claim).changed


def advance_claim(repository: Repository, cwd: Path, branch: str, old: str, new: str) -> str:
    """Move a story's branch to a new commit, and its files in the checkout with it; return why not.

    Git writes only what differs between the two commits, and nothing at all if one of these files is not as
    `old` has it. The user's index and branch stay as they are.
    """
    index = claim_index_path(repository.common_dir, branch)
    env = fresh_index(index)
    try:
        repository.run("read-tree", "--reset", old, cwd=cwd, env=env)
        # Without the times of the files, git would take each of them for changed.
        repository.run("update-index", "-q", "--refresh", cwd=cwd, env=env, check=False)
        write = ("read-tree", "-m", "-u", "--no-sparse-checkout")
        tried = repository.run(*write, "--dry-run", old, new, cwd=cwd, env=env, check=False)
        if tried.returncode != 0:
            return tried.stderr
        ref = ("update-ref", "-m", "autopilot-multi: on request", f"refs/heads/{branch}")
        with metadata_lock(repository.common_dir):
            moved = repository.run(*ref, new, old, check=False)
        if moved.returncode != 0:
            return moved.stderr
        written = repository.run(*write, old, new, cwd=cwd, env=env, check=False)
        if written.returncode != 0:
            with metadata_lock(repository.common_dir):
                repository.run(*ref, old, new)
            return written.stderr
    finally:
        index.unlink(missing_ok=True)
    return ""


def record_leftovers(repository: Repository, request: WorkspaceRequest, claim: Claim) -> None:
    """Record what an unfinished story leaves in its claim, to distinguish it later from others' changes."""
    tip = repository.resolve(f"refs/heads/{request.branch}")
    _record(repository, request, claim, tip, ref=f"{LEFTOVERS}{request.story_id}", what="left unfinished")


def _record_found(repository: Repository, request: WorkspaceRequest, claim: Claim, tip: str) -> None:
    """Record what a story finds in its claim when it continues after a kill.

    It counts as the story's own, but a user may have edited it since, and the next session may change it.
    """
    # A name of its own for each, so that none replaces another.
    ref = f"{FOUND}{request.story_id}/{request.run_id}-{time.time_ns():x}"
    _record(repository, request, claim, tip, ref=ref, what="found when it continued")


def _record(
    repository: Repository, request: WorkspaceRequest, claim: Claim, tip: str, *, ref: str, what: str
) -> None:
    message = f"What story {request.story_id} {what}\n\nAutopilot-Run: {request.run_id}\n"
    built = _built(repository, request, claim, tip, NewCommit(message=message, date=time.time()))
    if built.changed:
        repository.run("update-ref", ref, built.tip)


def _built(
    repository: Repository, request: WorkspaceRequest, claim: Claim, tip: str, commit: NewCommit | None = None
) -> ClaimTree:
    index = claim_index_path(repository.common_dir, request.branch)
    return claim_tree(repository, request.path, index=index, tip=tip, claim=claim, commit=commit)


def _require_clean(repository: Repository, request: WorkspaceRequest, claim: Claim, tip: str) -> None:
    """Refuse to begin over uncommitted changes, except those that the story itself left."""
    found = _built(repository, request, claim, tip)
    if not found.changed:
        return
    left = f"{LEFTOVERS}{request.story_id}"
    kept = repository.run("rev-parse", "--verify", "--quiet", f"{left}^{{tree}}", check=False)
    if kept.returncode == 0 and kept.stdout.strip() == found.tree:
        return
    count = len(found.changed)
    files = f"{count} file{'s' * (count != 1)}"
    if not repository.branch_tip(request.branch):
        raise WorkspaceError(
            f"{files} in its claim {'are' if count != 1 else 'is'} not committed: {named(found.changed)}",
            hint="commit or stash them, then run again",
        )
    raise WorkspaceError(
        f"{files} in its claim differ{'s' * (count == 1)} from its branch {request.branch}: "
        f"{named(found.changed)}",
        hint=f"to continue from the branch: git restore --source {request.branch} -- <paths>; "
        f"to start over: git branch -m {request.branch} <another-name>",
    )


def _require_dependencies(repository: Repository, request: WorkspaceRequest, base: str) -> None:
    """Refuse a checkout that lacks what the story's dependencies made: the story builds on it."""
    head = repository.head(request.path)
    if head is None or head == base:
        return
    made = repository.changed_paths(start_of(repository, head, base), base)
    index = claim_index_path(repository.common_dir, request.branch)
    missing = differing(repository, request.path, index=index, tip=base, paths=made) if made else ()
    if missing:
        raise WorkspaceError(
            f"the checkout lacks what the story depends on: {named(missing)}",
            hint=f"`git restore --source {base[:12]} -- PATH` adds it",
        )


def _require_checked_out(repository: Repository, cwd: Path, claim: Claim) -> None:
    """Refuse a claim with files that a sparse checkout leaves out: they would be committed as deleted."""
    missing = [
        path for path in skipped_paths(repository, cwd) if claim.owns(path) and not (cwd / path).is_symlink()
    ]
    missing = [path for path in missing if not (cwd / path).exists()]
    if missing:
        raise WorkspaceError(
            f"its claim holds files that are not checked out: {named(missing)}",
            hint="`git sparse-checkout add` checks them out",
        )
