"""What a story owns in the shared tree, as a git tree: built in a private index.

The user's index is neither read nor written, so what is staged there, hidden there or half-merged
there stays as it is, and nothing of it gets into a story's commit.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from isolation.claims.globs import Claim
from isolation.claims.owners import roots
from isolation.errors import WorkspaceError
from isolation.git.commits import named
from isolation.git.repository import Repository

_GITLINK = "160000"


class ClaimTree(Struct, frozen=True, kw_only=True):
    """A commit's tree with the claim's paths as in the working tree; `changed` are those that differ."""

    tree: str
    changed: tuple[str, ...]


def fresh_index(index: Path) -> dict[str, str]:
    """Return the variables for commands with a private index, which is empty at first."""
    index.parent.mkdir(parents=True, exist_ok=True)
    # A killed command may have left both. The file belongs to one story's branch; no other process uses it.
    for left in (index, index.with_name(f"{index.name}.lock")):
        left.unlink(missing_ok=True)
    return {"GIT_INDEX_FILE": str(index)}


def claim_tree(repository: Repository, cwd: Path, *, index: Path, tip: str, claim: Claim) -> ClaimTree:
    """Build the tree of `tip` with everything that the claim owns taken from the working tree.

    Ignored files stay out, unless they are tracked. `index` is a file for this call alone.
    """
    env = fresh_index(index)
    repository.run("read-tree", tip, cwd=cwd, env=env)
    present, gone = _owned(repository, cwd, env, claim)
    # Removals first, so that a folder can take the place of a file.
    if gone:
        _update(repository, cwd, env, ("--force-remove",), gone)
    if present:
        _update(repository, cwd, env, ("--add", "--remove", "--replace"), present)
    tree = repository.run("write-tree", cwd=cwd, env=env).stdout.strip()
    index.unlink(missing_ok=True)
    return ClaimTree(tree=tree, changed=repository.changed_paths(tip, tree, cwd))


def differing(
    repository: Repository, cwd: Path, *, index: Path, tip: str, paths: Sequence[str]
) -> tuple[str, ...]:
    """Return those paths that differ between the working tree and a commit."""
    env = fresh_index(index)
    repository.run("read-tree", "--reset", tip, cwd=cwd, env=env)
    comparing = ("--literal-pathspecs", "diff", "-z", "--name-only", "--no-ext-diff", "--no-renames")
    found = repository.run(*comparing, "--", *paths, cwd=cwd, env=env).fields()
    index.unlink(missing_ok=True)
    return found


def _owned(
    repository: Repository, cwd: Path, env: dict[str, str], claim: Claim
) -> tuple[list[str], list[str]]:
    """Return the claim's paths that exist, and its tracked paths that no longer do."""
    within = ("--literal-pathspecs", "ls-files", "-z")
    specs = ("--", *roots(claim))
    present: list[str] = []
    gone: list[str] = []
    for entry in repository.run(*within, "--stage", *specs, cwd=cwd, env=env).fields():
        words, _, path = entry.partition("\t")
        if not claim.owns(path):
            continue
        if words.startswith(_GITLINK):
            # A submodule that is not checked out has an empty folder; its recorded commit stays.
            present += [path] if (cwd / path / ".git").exists() else []
        else:
            (present if _is_entry(cwd, path) else gone).append(path)
    others = repository.run(*within, "--others", "--exclude-standard", *specs, cwd=cwd, env=env).fields()
    nested = [path for path in others if path.endswith("/") and claim.owns(path.rstrip("/"))]
    if nested:
        raise WorkspaceError(
            f"its claim holds other git repositories, which cannot be committed: {named(nested)}",
            hint="remove them, or have git ignore them, then run again",
        )
    return [*present, *(path for path in others if claim.owns(path))], gone


def _is_entry(cwd: Path, path: str) -> bool:
    """Return whether a path is a file or link that is reached through real folders only."""
    place = cwd / path
    if not os.path.lexists(place) or (place.is_dir() and not place.is_symlink()):
        return False
    return "/" not in path or Path(os.path.realpath(place.parent)) == place.parent


def _update(
    repository: Repository, cwd: Path, env: dict[str, str], how: tuple[str, ...], paths: list[str]
) -> None:
    stdin = "".join(f"{path}\0" for path in paths).encode(errors="surrogateescape")
    repository.run("update-index", *how, "-z", "--stdin", cwd=cwd, env=env, stdin=stdin)
