"""What would make a commit differ from what its session left: changes hidden from git, conflict markers.

Both are found when a story's work is committed, so that nothing is verified which is not in the commit.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from isolation.git.direct.index_file import is_plain, load_index
from isolation.git.repository import Repository
from isolation.paths import current_branch, own_git_dir
from isolation.patterns import pattern

_MARKER_SIZE = 7
_SMALL = 1 << 20
_FEW = 50
_HUNK = pattern(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def reveal_hidden(repository: Repository, cwd: Path, commit: str) -> tuple[str, ...]:
    """Clear skip-worktree and assume-unchanged, which hide changes from git; return the paths that had them.

    The files that a sparse checkout leaves out keep theirs. Any `commit` shows how long git's ids are.
    """
    if has_plain_index(cwd, commit):
        return ()
    entries = repository.run("ls-files", "-v", "-z", cwd=cwd).fields()
    assumed = [entry[2:] for entry in entries if entry[0].islower()]
    skipped = [entry[2:] for entry in entries if entry[0] in "Ss"]
    if skipped and _is_sparse(repository, cwd):
        skipped = [path for path in skipped if os.path.lexists(cwd / path)]
    # One command applies only one of the two options.
    for option, paths in (("--no-assume-unchanged", assumed), ("--no-skip-worktree", skipped)):
        if paths:
            stdin = "".join(f"{path}\0" for path in paths).encode(errors="surrogateescape")
            repository.run("update-index", option, "-z", "--stdin", cwd=cwd, stdin=stdin)
    return tuple(dict.fromkeys((*assumed, *skipped)))


def has_plain_index(cwd: Path, commit: str) -> bool:
    """Return, without a process, whether nothing in a checkout is hidden from git; False may be wrong.

    It has no submodules either. Any `commit` shows how long git's ids are.
    """
    return is_plain(load_index(own_git_dir(cwd)), len(commit) // 2)


def restore(repository: Repository, cwd: Path, branch: str, since: str) -> bool:
    """Put right what a session did to its branch and its index; return whether there was anything.

    A branch that is gone, or whose commit is, goes back to `since`, where the session found it. An index that
    git cannot read, or that may name lost content, is made again from there. The files are all there, so
    only the session's own commits are lost, and not what they hold.
    """
    git_dir = own_git_dir(cwd)
    if git_dir is None or _is_sparse(repository, cwd):
        return False
    ref = f"refs/heads/{branch}"
    lost = current_branch(cwd) == branch and repository.branch_tip(branch) is None
    if lost:
        repository.run("update-ref", "-m", "autopilot-multi: it was lost in a session", ref, since)
    if not lost and repository.run("ls-files", cwd=cwd, check=False).returncode == 0:
        return False
    with suppress(FileNotFoundError):
        (git_dir / "index").replace(git_dir / "index.unreadable")
    repository.run("read-tree", "HEAD", cwd=cwd)
    return True


def _is_sparse(repository: Repository, cwd: Path) -> bool:
    asking = ("config", "--type=bool", "--get", "core.sparseCheckout")
    return repository.run(*asking, cwd=cwd, check=False).stdout.strip() == "true"


def may_have_markers(cwd: Path, paths: Sequence[str]) -> bool:
    """Return, without a process, whether one of these files may hold conflict markers; False is certain."""
    return len(paths) > _FEW or any(_may_have(cwd / path) for path in paths)


def is_suspect(content: bytes) -> bool:
    """Return whether the content of a file may hold conflict markers; False is certain."""
    return b"<<<" in content


def _may_have(file: Path) -> bool:
    try:
        if file.is_symlink() or not file.is_file():
            return False
        return file.stat().st_size > _SMALL or is_suspect(file.read_bytes())
    except OSError:
        return True


def conflict_markers(repository: Repository, base: str, tip: str, cwd: Path) -> tuple[str, ...]:
    """Return the text files to which the commits since `base` added a whole set of conflict markers.

    As for git itself, the attribute `conflict-marker-size` says how long the markers of a file are.
    """
    how = ("-r", "-p", "-U0", "--no-prefix", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv")
    found = repository.run("diff-tree", *how, "-G", "^<{3,} ", base, tip, "--", cwd=cwd).stdout
    added = _added_lines(found.split("\n"))
    sizes = _marker_sizes(repository, cwd, tuple(added)) if added else {}
    return tuple(path for path, lines in added.items() if _marked(lines, sizes.get(path, _MARKER_SIZE)))


def _added_lines(patch: list[str]) -> dict[str, list[str]]:
    """Return the lines that a patch without context adds to each file."""
    added: dict[str, list[str]] = {}
    lines, path = iter(patch), ""
    for line in lines:
        if line.startswith("+++ "):
            path = line[4:].removesuffix("\t")  # git marks the end of a name that holds a space
        elif hunk := _HUNK.match(line):
            count = sum(1 if number is None else int(number) for number in hunk.groups())
            added.setdefault(path, []).extend(_added_in_hunk(lines, count))
    return added


def _added_in_hunk(lines: Iterator[str], count: int) -> Iterator[str]:
    """Yield the added among the next `count` lines: counted, because one may look like a header."""
    while count:
        line = next(lines, None)
        if line is None:
            return
        if not line.startswith("\\"):  # a remark that the file does not end with a line break
            count -= 1
        if line.startswith("+"):
            yield line[1:]


def _marked(lines: list[str], size: int) -> bool:
    """Whether the lines hold all markers of a conflict, in their order."""
    rest = iter(lines)
    return (
        any(line.startswith("<" * size + " ") for line in rest)
        and any(line.rstrip() == "=" * size for line in rest)
        and any(line.startswith(">" * size + " ") for line in rest)
    )


def _marker_sizes(repository: Repository, cwd: Path, paths: tuple[str, ...]) -> dict[str, int]:
    stdin = "".join(f"{path}\0" for path in paths).encode(errors="surrogateescape")
    asking = ("check-attr", "-z", "--stdin", "conflict-marker-size")
    fields = iter(repository.run(*asking, cwd=cwd, stdin=stdin).fields())
    answers = iter(lambda: tuple(islice(fields, 3)), ())
    return {path: int(size) for path, _, size in answers if size.isdecimal()}
