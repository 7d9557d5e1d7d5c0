"""Branches that travel as a bundle from one clone to another.

A bundle starts at one commit that both clones have, so that a shallow clone can make and take it. A
branch only ever moves forward, by compare-and-swap; nothing is forced, here or there.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from isolation.errors import RepositoryError
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository, failure

_LACKS = re.compile(r"^(?:error: )?([0-9a-f]{40,64})\b", re.MULTILINE)


def commits_since(repository: Repository, base: str, branches: Sequence[str]) -> dict[str, str]:
    """Return the tips of those branches that have commits beyond `base`."""
    tips = {branch: repository.branch_tip(branch) for branch in branches}
    return {
        branch: tip for branch, tip in tips.items() if tip is not None and repository.count_commits(base, tip)
    }


def write_bundle(repository: Repository, path: Path, base: str, branches: Sequence[str]) -> None:
    """Write what the branches have beyond `base`; each must have something."""
    refs = [f"refs/heads/{branch}" for branch in branches]
    repository.run("bundle", "create", "--quiet", str(path), *refs, f"^{base}")


def read_bundle(repository: Repository, path: Path, tips: Mapping[str, str]) -> tuple[str, ...]:
    """Move branches to their tips from a bundle; return those that moved or are new.

    A branch that has diverged here is refused before any is touched.
    """
    args = ("bundle", "unbundle", str(path))
    output = repository.run(*args, check=False)
    if output.returncode != 0:
        lacking = _LACKS.findall(output.stderr)
        if lacking:
            raise RepositoryError(
                f"{path} starts from commit {lacking[0][:12]}, which this clone does not have",
                hint="check out the commit that the jobs ran on, or fetch it, then try again",
            )
        raise failure(args, output)
    with metadata_lock(repository.common_dir):
        # All branches are checked before the first one moves.
        moves = {}
        for branch, tip in tips.items():
            here = repository.branch_tip(branch)
            if here is not None and not repository.is_ancestor(here, tip):
                if repository.is_ancestor(tip, here):
                    continue  # it is ahead and has everything already
                raise RepositoryError(
                    f"branch {branch} is at {here[:12]} here, and at {tip[:12]} in {path}",
                    hint=f"rename yours, then try again: git branch -m {branch} <another-name>",
                )
            if here != tip:
                moves[branch] = (tip, here)
        for branch, (tip, here) in moves.items():
            message = ("-m", "autopilot-multi: from a bundle")
            repository.run("update-ref", *message, f"refs/heads/{branch}", tip, here or "0" * len(tip))
    return tuple(moves)
