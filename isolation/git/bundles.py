"""Branches that travel as a bundle from one clone to another.

A bundle starts at one commit that both clones have, so that a shallow clone can make and take it. A
branch moves forward only, by compare-and-swap, except from a tip that the caller names as replaced; that tip
is kept under another name.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from isolation.errors import RepositoryError
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository
from isolation.patterns import pattern

_LACKS = pattern(r"^(?:error: )?([0-9a-f]{40,64})\b", re.MULTILINE)


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


def take_objects(repository: Repository, path: Path, tips: Mapping[str, str]) -> None:
    """Take over the objects of a bundle; raise if one is malformed or missing. Moves no branch.

    `git bundle unbundle` would take a branch whose history this clone lacks, and leave the clone broken.
    """
    quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
    checks = ("-c", "fetch.fsckObjects=true", "-c", "protocol.file.allow=always")
    refs = [f"refs/heads/{branch}" for branch in tips]
    args = (*checks, "fetch", *quiet, str(path), *refs)
    listed = repository.run("bundle", "list-heads", str(path), check=False).stdout.splitlines()
    held = {ref: tip for tip, _, ref in (line.partition(" ") for line in listed)}
    for branch, tip in tips.items():
        if listed and held.get(f"refs/heads/{branch}") != tip:
            raise RepositoryError(f"{path} has no branch {branch} at {tip[:12]}", hint="run its job again")
    output = repository.run(*args, check=False)
    if output.returncode != 0:
        lacking = _LACKS.findall(output.stderr)
        if lacking:
            raise RepositoryError(
                f"{path} starts from commit {lacking[0][:12]}, which this clone does not have",
                hint="check out the commit that the jobs ran on, or fetch it, then try again",
            )
        raise RepositoryError(
            f"git refuses {path}: {_refusal(output.stderr)}",
            hint="run its job again; nothing of it was imported",
        )


def move_branches(
    repository: Repository,
    path: Path,
    tips: Mapping[str, str],
    *,
    replaceable: Mapping[str, Collection[str]] | None = None,
) -> tuple[str, ...]:
    """Move branches to tips whose objects were taken from a bundle; return those that moved or are new.

    A branch that has diverged here is refused before any is touched, unless it is at one of its `replaceable`
    tips. That tip then stays under `refs/autopilot/replaced/`.
    """
    with metadata_lock(repository.common_dir):
        # All branches are checked before the first one moves.
        moves = {}
        for branch, tip in tips.items():
            here = repository.branch_tip(branch)
            if here is not None and not repository.is_ancestor(here, tip):
                if repository.is_ancestor(tip, here):
                    continue  # it is ahead and has everything already
                if here not in (replaceable or {}).get(branch, ()):
                    raise RepositoryError(
                        f"branch {branch} is at {here[:12]} here, and at {tip[:12]} in {path}",
                        hint=f"rename yours, then try again: git branch -m {branch} <another-name>",
                    )
                repository.run("update-ref", f"refs/autopilot/replaced/{branch}/{here[:12]}", here)
            if here != tip:
                moves[branch] = (tip, here)
        for branch, (tip, here) in moves.items():
            message = ("-m", "autopilot-multi: from a bundle")
            repository.run("update-ref", *message, f"refs/heads/{branch}", tip, here or "0" * len(tip))
    return tuple(moves)


def _refusal(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("error:", "fatal:"))]
    return (telling or lines or ["git printed nothing"])[0]
