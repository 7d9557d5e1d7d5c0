"""Finds out whether the work of a branch is in a target as other commits: squashed, rebased or picked.

Commits are compared by patch id, which ignores line numbers and white space, and only those that the target
got since the branch left it. A branch counts as there if its whole change is one commit of the target, or if
each of its commits is. The content of binary files does not count in a patch id before git 2.39, so a branch
that changes some is never found.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from isolation.errors import GitCommandError
from isolation.git.repository import Repository

MOST_COMMITS = 500
"""How many commits of the target are looked at, the newest first."""

_MOST_PATHS = 400
_DIFF = ("-p", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "-U3")
_BINARY = "\nBinary files "


class Work(Struct, frozen=True):
    """What a branch has done: the commits after `fork`, up to `tip`."""

    fork: str
    tip: str


def patched_into(
    repository: Repository, target: str, works: Sequence[Work], *, without: Collection[str] = ()
) -> frozenset[str]:
    """Return the tips whose work is in `target` as other commits; those `without` do not count. Blocking."""
    try:
        return _patched_into(repository, target, works, without)
    except GitCommandError:  # a commit is gone, so nothing can be said
        return frozenset()


def _patched_into(
    repository: Repository, target: str, works: Sequence[Work], without: Collection[str]
) -> frozenset[str]:
    known = [each for each in works if each.fork and each.tip and each.fork != each.tip]
    base = _common_base(repository, target, known) if known else ""
    if not base:
        return frozenset()
    wholes = _patch_ids(repository, [f"{each.tip} {each.fork}" for each in known])
    paths = _paths(repository, known)
    there = _target_ids(repository, target, base, paths, set(without))
    if not there:
        return frozenset()
    found = {each.tip for each in known if wholes.get(each.tip) in there}
    rest = [each for each in known if each.tip not in found and each.tip in wholes]
    return frozenset(found | {each.tip for each in rest if _each_is_in(repository, each, there)})


def brought_by(repository: Repository, ranges: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the commits between pairs of commits; a pair that is gone has none."""
    found: set[str] = set()
    for before, after in ranges:
        found |= set(repository.run("rev-list", after, f"^{before}", "--", check=False).stdout.split())
    return frozenset(found)


def _common_base(repository: Repository, target: str, works: Sequence[Work]) -> str:
    """Return a commit before which nothing needs to be looked at."""
    forks = sorted({each.fork for each in works})
    asked = repository.run("merge-base", "--octopus", target, *forks, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _paths(repository: Repository, works: Sequence[Work]) -> list[str]:
    """Return the paths that the branches change; none if they are too many for one command."""
    lines = "".join(f"{each.tip} {each.fork}\n" for each in works)
    listed = repository.run(
        *("diff-tree", "--stdin", "-r", "-z", "--name-only", "--no-renames", "--no-commit-id", "-m"),
        stdin=lines.encode(),
    ).fields()
    found = sorted(set(listed))
    return found if len(found) <= _MOST_PATHS else []


def _target_ids(
    repository: Repository, target: str, base: str, paths: Iterable[str], without: Collection[str]
) -> frozenset[str]:
    limit = ("--no-merges", f"--max-count={MOST_COMMITS}", target, f"^{base}", "--")
    listed = repository.run("--literal-pathspecs", "rev-list", *limit, *paths).stdout.split()
    return frozenset(_patch_ids(repository, [each for each in listed if each not in without]).values())


def _each_is_in(repository: Repository, work: Work, there: Collection[str]) -> bool:
    commits = repository.run("rev-list", "--no-merges", work.tip, f"^{work.fork}", "--").stdout.split()
    ids = _patch_ids(repository, commits)
    return bool(ids) and all(each in ids and ids[each] in there for each in commits)


def _patch_ids(repository: Repository, lines: Sequence[str]) -> Mapping[str, str]:
    """Return the patch id of each commit, or of a commit against another; without binary and empty ones."""
    if not lines:
        return {}
    stdin = "".join(f"{line}\n" for line in lines).encode()
    diffs = repository.run("diff-tree", "--stdin", "-r", "-m", "--root", *_DIFF, stdin=stdin).stdout
    if _BINARY in diffs:
        diffs = _without_binary(diffs, {line.split()[0] for line in lines})
    answer = repository.run("patch-id", "--stable", stdin=diffs.encode("utf-8", "surrogateescape")).stdout
    pairs = (line.split() for line in answer.splitlines())
    return {commit: patch for patch, commit in pairs}


def _without_binary(diffs: str, commits: Collection[str]) -> str:
    """Leave out the commits that change binary files."""
    parts: list[list[str]] = []
    for line in diffs.split("\n"):
        if line in commits or not parts:
            parts.append([])
        parts[-1].append(line)
    whole = ("\n".join(part) for part in parts)
    return "\n".join(part for part in whole if _BINARY not in part)
