"""Which changes can meet at all: the rule, case by case and in both directions."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isolation.git.forecast.ancestry import Ancestry
from isolation.git.forecast.contact import Changes, changes_of, pairs_in_contact

FILE, TREE, MODULE, NOTHING = "100644", "040000", "160000", "000000"


def changes(*entries: tuple[str, str, str]) -> Changes:
    """Return changes from modes before and after, and a path."""
    fields = [part for old, new, path in entries for part in (f":{old} {new} {'1' * 40} {'2' * 40} X", path)]
    return changes_of(fields)


EDIT = (FILE, FILE, "src/a")
CASES = {
    "the same file": (changes(EDIT), changes(EDIT), True),
    "files side by side": (changes(EDIT), changes((FILE, FILE, "src/b")), False),
    "an old name and an edit": (changes((FILE, NOTHING, "src/a"), (NOTHING, FILE, "c")), changes(EDIT), True),
    "a mode": (changes((FILE, "100755", "src/a")), changes(EDIT), True),
    "a submodule": (changes((MODULE, MODULE, "m")), changes((MODULE, NOTHING, "m")), True),
    "a file and a folder": (changes((NOTHING, FILE, "p")), changes((NOTHING, FILE, "p/q/r")), True),
    "a submodule and a folder": (changes((NOTHING, MODULE, "p")), changes((NOTHING, FILE, "p/q")), True),
    "names that only begin alike": (changes((NOTHING, FILE, "p")), changes((NOTHING, FILE, "pq/r")), False),
    "a folder gone and a file in it": (
        changes((TREE, NOTHING, "d"), (FILE, NOTHING, "d/x"), (NOTHING, FILE, "e/x")),
        changes((NOTHING, FILE, "d/deep/new")),
        True,
    ),
    "a folder that is left, and a file in it": (
        changes((TREE, TREE, "d"), (FILE, NOTHING, "d/x"), (NOTHING, FILE, "e/x")),
        changes((NOTHING, FILE, "d/new")),
        False,
    ),
    "a folder that became a file": (
        changes((TREE, NOTHING, "d"), (FILE, NOTHING, "d/x"), (NOTHING, FILE, "d")),
        changes((NOTHING, FILE, "d/new")),
        True,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_contact_is_known_from_both_sides(case: str) -> None:
    """What one side sees, the other sees, too."""
    one, other, expected = CASES[case]
    for branches in ({"a": one, "b": other}, {"a": other, "b": one}):
        assert pairs_in_contact(branches) == ({("a", "b")} if expected else set())


@given(st.lists(st.sampled_from([side for one, other, _ in CASES.values() for side in (one, other)])))
def test_of_many_branches_the_same_pairs_meet_as_of_two(sides: list[Changes]) -> None:
    """A third branch neither adds a pair of others nor hides it."""
    branches = {f"{number:02}": side for number, side in enumerate(sides)}
    alone = [
        pairs_in_contact({one: branches[one], two: branches[two]}) for one, two in combinations(branches, 2)
    ]
    assert pairs_in_contact(branches) == set().union(*alone)


_HISTORIES = st.lists(st.sets(st.integers(0, 12), min_size=1, max_size=2), min_size=1, max_size=12)


@given(_HISTORIES, st.sets(st.integers(1, 12), min_size=2))
def test_groups_say_the_base_of_every_pair(parents: list[set[int]], chosen: set[int]) -> None:
    """Commit 0 is common; each further one has some before it as parents."""
    rows = {number: sorted(each % number for each in of) for number, of in enumerate(parents, start=1)}
    listed = "".join(f"{number} {' '.join(map(str, of))}\n" for number, of in rows.items())
    tips = [str(tip) for tip in sorted(chosen) if tip in rows]
    ancestry = Ancestry.read("0", listed, tips)
    group_of, bases = ancestry.groups()
    for one, other in combinations(tips, 2):
        groups = tuple(sorted((group_of[one], group_of[other])))
        assert bases.get((groups[0], groups[1]), "0") == ancestry.base(one, other)


def test_the_base_of_two_branches_is_where_they_parted() -> None:
    """The common commit, a shared one beyond it, or unknown where histories were merged crosswise."""
    listed = "a1 base\nb1 base\nc1 a1\nd1 a1\nx b1 a1\ny a1 b1\nside older\n"
    tips = ("a1", "b1", "c1", "d1", "x", "y", "side")
    ancestry = Ancestry.read("base", listed, tips)
    assert ancestry.base("a1", "b1") == "base"
    assert ancestry.base("c1", "d1") == "a1"
    assert ancestry.base("a1", "c1") == "a1"
    assert ancestry.base("x", "y") is None, "two heads"
    assert Ancestry.read("base", "p side\nq side base\nside older\n", ("p", "q")).base("p", "q") is None
