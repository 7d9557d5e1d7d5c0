"""Which commits are in the history of the branch that the main checkout is on."""

import re
from collections.abc import Collection

from isolation.git.repository import Repository
from isolation.paths import RepositoryPaths, current_branch, own_git_dir

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def head_without_git(paths: RepositoryPaths) -> str:
    """Return the commit of the main checkout, read without a process; empty if that takes git."""
    checkout = paths.main_checkout or paths.top
    git_dir = own_git_dir(checkout) if checkout != paths.common_dir else paths.common_dir
    branch = current_branch(checkout)
    try:
        if not branch:
            head = (git_dir / "HEAD").read_text().strip() if git_dir else ""
            return head if _COMMIT.fullmatch(head) else ""
        loose = paths.common_dir / "refs" / "heads" / branch
        if loose.is_file():
            return loose.read_text().strip()
        ending = f" refs/heads/{branch}"
        lines = (paths.common_dir / "packed-refs").read_text(errors="surrogateescape").splitlines()
        return next((line.partition(" ")[0] for line in lines if line.endswith(ending)), "")
    except OSError:
        return ""


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
