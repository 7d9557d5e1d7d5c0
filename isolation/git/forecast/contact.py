"""Which branches can conflict at all, from the paths that they change. Pure.

The rule may only err on one side: a pair without contact never conflicts, whatever git's merge does about
renames. So git has to be asked only about pairs with contact, which are few. Contact is:

- a path that both change; a rename changes its old and its new path, a mode or a submodule counts, too;
- a path of one that is a folder of the other (a file `a` here, `a/b` there);
- a folder that one has removed, perhaps by renaming it, into which the other puts a file: git moves such
  files along, or calls that a conflict.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product

from msgspec import Struct

TREE = "040000"
NOTHING = "000000"


class Changes(Struct, frozen=True, kw_only=True):
    """What a branch has changed since a commit; `folders` are all folders above `paths`.

    `filled` are the folders above the files that it adds, `removed` those that it no longer has.
    """

    paths: frozenset[str]
    folders: frozenset[str]
    filled: frozenset[str]
    removed: frozenset[str]


def changes_of(fields: Sequence[str]) -> Changes:
    """Read the fields of `diff-tree -r -t -z --no-renames`: modes with ids and status, then a path."""
    paths: set[str] = set()
    added: set[str] = set()
    removed: set[str] = set()
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        before, after = facts[1:7], facts[8:14]
        if before == TREE and after != TREE:
            removed.add(path)
        if before not in {TREE, NOTHING} or after not in {TREE, NOTHING}:
            paths.add(path)
            added |= {path} if before in {TREE, NOTHING} else set()
    return Changes(
        paths=frozenset(paths),
        folders=frozenset(_above(paths)),
        filled=frozenset(_above(added)),
        removed=frozenset(removed),
    )


def pairs_in_contact(branches: Mapping[str, Changes]) -> set[tuple[str, str]]:
    """Return the pairs of names, each in order, that can conflict; any other pair certainly cannot.

    Found by what they have in common: branches that have nothing in common cost nothing, however many.
    """
    paths, folders, filled, removed = (
        _by_path(branches, kind) for kind in ("paths", "folders", "filled", "removed")
    )
    found = chain(
        *(combinations(names, 2) for names in paths.values() if len(names) > 1),
        *(product(names, folders[path]) for path, names in paths.items() if path in folders),
        *(product(names, filled[path]) for path, names in removed.items() if path in filled),
    )
    return {(one, other) if one < other else (other, one) for one, other in found if one != other}


def _by_path(branches: Mapping[str, Changes], kind: str) -> Mapping[str, Collection[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, changes in branches.items():
        for path in getattr(changes, kind):
            found[path].append(name)
    return dict(found)


def _above(paths: Iterable[str]) -> Iterator[str]:
    """Yield every folder above these paths."""
    seen: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in seen:
            seen.add(folder)
            folder = folder.rpartition("/")[0]
    yield from seen
