"""A story's branch: a name that git and every file system accept, not in use elsewhere, moved only forward.

The caller holds the metadata lock wherever a branch is made, moved or deleted.
"""

from collections.abc import Collection

from isolation.errors import WorkspaceError
from isolation.git.direct.refs import has_refs_below
from isolation.git.registrations import Registration
from isolation.git.repository import Repository
from isolation.model import WorkspaceRequest
from isolation.patterns import pattern

_LONGEST_BRANCH = 200
_NEVER_IN_REFS = pattern(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{")


def require_branch_name(branch: str) -> None:
    """Refuse what cannot name a branch, before anything is written."""
    if len(branch) > _LONGEST_BRANCH or not _is_branch_name(branch):
        raise WorkspaceError(
            f"{branch[:80]!r} cannot name a branch",
            hint="use letters, digits, `.`, `_` and `-` in story ids",
        )


def _is_branch_name(branch: str) -> bool:
    """Apply git's rules for references, and ours: nothing that looks like an option or another ref."""
    if branch.startswith("refs/") or branch in {"@", "HEAD"} or not branch.isprintable():
        return False
    if _NEVER_IN_REFS.search(branch):
        return False
    return all(
        part and not part.startswith((".", "-")) and not part.endswith((".", ".lock"))
        for part in branch.split("/")
    )


def require_free_branch(request: WorkspaceRequest, entries: tuple[Registration, ...]) -> None:
    """Refuse a branch that is checked out elsewhere: its checkout would not know that it moved."""
    for entry in entries:
        if entry.branch == request.branch and entry.path != request.path:
            raise WorkspaceError(
                f"branch {request.branch} is checked out at {entry.path}",
                hint="switch that checkout to another branch, or remove that worktree, then run again",
            )


def require_creatable(repository: Repository, branch: str) -> None:
    """Refuse a branch that another one blocks: git cannot have both `a` and `a/b`."""
    parts = branch.split("/")
    above = ["/".join(parts[:end]) for end in range(1, len(parts))]
    blocking = next((name for name in above if repository.branch_tip(name)), None)
    below = ""
    if has_refs_below(repository.common_dir, f"refs/heads/{branch}"):
        listing = ("for-each-ref", "--count=1", "--format=%(refname:lstrip=2)", f"refs/heads/{branch}/")
        below = repository.run(*listing).stdout.strip()
    if blocking or below:
        raise WorkspaceError(
            f"branch {branch} cannot be created while branch {blocking or below} exists",
            hint=f"rename that branch: git branch -m {blocking or below} <another-name>",
        )


def fast_forward(repository: Repository, branch: str, tip: str, base: str) -> str:
    """Move a branch without commits of its own to the new base; any other stays as it is."""
    if tip == base or not repository.is_ancestor(tip, base):
        return tip
    move_on(repository, branch, tip, base)
    return base


def move_on(repository: Repository, branch: str, tip: str, to: str) -> None:
    """Move a branch that is checked out nowhere to a commit that has its tip in its history."""
    if tip != to:
        # Naming the old tip makes it a compare-and-swap.
        repository.run("update-ref", "-m", "autopilot-multi: new base", f"refs/heads/{branch}", to, tip)


def start_of(repository: Repository, base: str, tip: str) -> str:
    """Return the commit that the story's own commits come after, even if the base has moved on."""
    if tip == base:
        return base
    common = repository.run("merge-base", base, tip, check=False)
    return common.stdout.strip() if common.returncode == 0 else base


def delete_branch(repository: Repository, branch: str, value: str) -> None:
    """Delete a branch that this call made, only while it points where it was made."""
    # The value makes it a compare-and-swap: a branch that has moved since stays.
    with_value = ("update-ref", "-d", f"refs/heads/{branch}", value)
    repository.run(*with_value, check=False)


def merged(repository: Repository, commits: Collection[str]) -> frozenset[str]:
    """Return those of the commits that the branch of the main checkout contains."""
    cwd = repository.main_checkout or repository.top
    known = sorted(commits)
    output = repository.run("rev-list", *known, "--not", "HEAD", "--", cwd=cwd, check=False)
    if output.returncode == 0:
        return frozenset(known) - frozenset(output.stdout.split())
    # One of them is gone, which must not hide the others.
    asked = ("merge-base", "--is-ancestor")
    return frozenset(
        commit
        for commit in known
        if not repository.run(*asked, commit, "HEAD", cwd=cwd, check=False).returncode
    )
