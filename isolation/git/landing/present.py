"""Files of a checkout that are already what a move of its branch would make of them.

Stories that share the user's checkout leave their files there, uncommitted, and commit them on their own
branches. When those land, nothing has to be written, and nothing of the user's can be lost.
"""

import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

from isolation.git.repository import Repository

_EXECUTABLE, _PLAIN = "100755", "100644"


def present(repository: Repository, checkout: Path, commit: str, paths: Collection[str]) -> frozenset[str]:
    """Return those of the paths that are in a checkout what they are in a commit: the same file, or none.

    Where the user has staged a third version, that would be lost, so such a path is not among them.
    """
    if not paths:
        return frozenset()
    wanted = _entries(repository.run("ls-tree", "-r", "-z", "--full-tree", commit).fields())
    before = _entries(repository.run("ls-tree", "-r", "-z", "--full-tree", "HEAD", cwd=checkout).fields())
    staged = _entries(repository.run("ls-files", "-s", "-z", cwd=checkout).fields())
    fitting = [path for path in paths if staged.get(path) in {before.get(path), wanted.get(path)}]
    gone = {path for path in fitting if path not in wanted and not os.path.lexists(checkout / path)}
    files = [path for path in fitting if wanted.get(path, ("", ""))[0] == _mode(checkout / path)]
    blobs = _hashed(repository, checkout, files)
    same = {path for path, blob in zip(files, blobs, strict=True) if wanted[path][1] == blob}
    return frozenset(gone | same)


def _entries(fields: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Read mode and blob of each path, as `ls-tree` and `ls-files -s` list them."""
    found = {}
    for field in fields:
        before, _, path = field.partition("\t")
        mode, *words = before.split()
        # `ls-tree` has the type in between, `ls-files` the stage behind.
        found[path] = (mode, words[1] if words[0] == "blob" else words[0])
    return found


def _mode(path: Path) -> str | None:
    """Return how git would record a file; None for what is not a plain file."""
    if path.is_symlink() or not path.is_file():
        return None
    return _EXECUTABLE if path.stat().st_mode & stat.S_IXUSR else _PLAIN


def _hashed(repository: Repository, checkout: Path, paths: Sequence[str]) -> list[str]:
    """Return the blobs that files would become; of a name that git cannot read from a list, none."""
    readable = [path for path in paths if "\n" not in path and not path.startswith('"')]
    if not readable:
        return ["" for _ in paths]
    lines = "".join(f"{path}\n" for path in readable).encode(errors="surrogateescape")
    output = repository.run("hash-object", "--stdin-paths", cwd=checkout, stdin=lines, check=False)
    blobs = dict(zip(readable, output.stdout.split(), strict=False))
    return [blobs.get(path, "") for path in paths]
