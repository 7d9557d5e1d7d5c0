"""The commits of a branch on top of another commit, one by one, like a rebase but without a checkout.

The result is a straight line. The first parents are followed: a merge in the branch becomes one ordinary
commit with all that it brought, conflicts resolved as they were. So nothing of the branch is lost, whatever
its shape. A commit that changes nothing in its new place is left out. Where commits conflict and the branch
was merged later with what is below it now, to resolve that, everything up to this merge is one commit.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from isolation.errors import GitCommandError
from isolation.git.commits import commit_tree
from isolation.git.forecast.merge_tree import merge_tree
from isolation.git.landing.merges import Joined, not_contained
from isolation.git.repository import Repository

_FORMAT = "%H%x00%P%x00%T%x00%an%x00%ae%x00%ad%x00%B"
_FIELDS = _FORMAT.count("%x00") + 1


class _Commit(Struct, frozen=True, kw_only=True):
    """One commit as git prints it; the author's date is in git's raw form."""

    id: str
    parents: tuple[str, ...]
    tree: str
    author: dict[str, str]
    message: str


def replay(
    repository: Repository,
    onto: str,
    tip: str,
    date: float,
    *,
    fork: str,
    sign: bool = False,
    reword: Callable[[str], str] = str,
) -> Joined:
    """Put what a branch has since `fork`, and `onto` has not, on top of `onto`; `date` is the committer's.

    Authors and their dates stay. `reword` makes the new message of each commit from its old one.
    """
    line = partial(_line, repository, onto, date=date, sign=sign, reword=reword)
    try:
        commits = _commits(repository, fork, tip, onto)
        made = line(commits)
        caught_up = _caught_up(repository, commits, onto) if made.conflicts else None
        again = line(commits[caught_up:], whole=True) if caught_up is not None else made
    except GitCommandError as error:
        return Joined(obstacle=error.message)
    return made if again.conflicts else again


def _line(
    repository: Repository,
    onto: str,
    commits: Sequence[_Commit],
    *,
    date: float,
    sign: bool,
    reword: Callable[[str], str],
    whole: bool = False,
) -> Joined:
    """Make the commits; `whole` means that the first one brings all that its history has."""
    (before,) = repository.trees((onto,))
    commit, tree = onto, before
    for each in commits:
        first = whole and each is commits[0]
        merged, conflicts = (
            merge_tree(repository, onto, each.id) if first else _picked(repository, each, tree, date)
        )
        if conflicts:
            return Joined(conflicts=conflicts)
        if merged != tree:
            message = reword(each.message)
            commit = commit_tree(repository, merged, (commit,), message, date, author=each.author, sign=sign)
            tree = merged
    return Joined(commit=commit, tree=tree, empty=tree == before)


def _caught_up(repository: Repository, commits: Sequence[_Commit], onto: str) -> int | None:
    """Return where a branch was last merged with what `onto` has: conflicts were resolved there.

    What comes before it would meet the same conflicts again.
    """
    sides = {parent for each in commits for parent in each.parents[1:]}
    known = sides - not_contained(repository, sides, onto)
    found = [number for number, each in enumerate(commits) if known & set(each.parents[1:])]
    return found[-1] if found else None


def _picked(repository: Repository, each: _Commit, tree: str, date: float) -> tuple[str, tuple[str, ...]]:
    """Return the tree with what a commit has changed since its first parent, and the paths in conflict."""
    # Both sides get one parent, which makes it the base of the merge.
    base = each.parents[:1] or (commit_tree(repository, _empty_tree(repository), (), "base", date),)
    ours = commit_tree(repository, tree, base, "side", date)
    single = len(each.parents) == 1
    theirs = each.id if single else commit_tree(repository, each.tree, base, "side", date)
    return merge_tree(repository, ours, theirs)


def _empty_tree(repository: Repository) -> str:
    return repository.run("mktree", stdin=b"").stdout.strip()


def _commits(repository: Repository, fork: str, tip: str, onto: str) -> list[_Commit]:
    known = [name for name in (fork, onto) if name]
    args = (
        "log",
        "--first-parent",
        "--reverse",
        "-z",
        "--date=raw",
        "--encoding=UTF-8",
        "--no-show-signature",
    )
    output = repository.run(*args, f"--format=tformat:{_FORMAT}", tip, "--not", *known, "--").stdout
    fields = output.split("\0")[:-1]
    starts = range(0, len(fields), _FIELDS)
    return [_commit(*fields[start : start + _FIELDS]) for start in starts]


def _commit(*fields: str) -> _Commit:
    commit, parents, tree, name, address, at, message = fields
    return _Commit(
        id=commit,
        parents=tuple(parents.split()),
        tree=tree,
        author={"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address, "GIT_AUTHOR_DATE": f"@{at}"},
        message=message,
    )
