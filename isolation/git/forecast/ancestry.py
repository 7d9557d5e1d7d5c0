"""Where each two of many branches parted, from one list of their commits. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations_with_replacement


class Ancestry:
    """The commits of some branches beyond `common`, a commit that is in the history of all of them."""

    def __init__(self, common: str, parents: Mapping[str, Sequence[str]], tips: Iterable[str]) -> None:
        self._common = common
        self._parents = parents
        self._bases: dict[frozenset[str], str | None] = {}
        self._reached = {tip: self._reach(tip) for tip in tips}

    @classmethod
    def read(cls, common: str, listed: str, tips: Iterable[str]) -> "Ancestry":
        """Read what `rev-list --parents TIPS --not COMMON` printed."""
        rows = (line.split() for line in listed.splitlines())
        return cls(common, {commit: parents for commit, *parents in rows}, tips)

    def base(self, one: str, other: str) -> str | None:
        """Return the one commit that git would take as the base of a merge; None if there may be several."""
        shared = self._reached[one] & self._reached[other]
        if not shared:
            return self._common
        # Branches that began at a few commits have a few shared histories, which may be long.
        if shared not in self._bases:
            self._bases[shared] = self._head(shared)
        return self._bases[shared]

    def groups(self) -> tuple[dict[str, int], dict[tuple[int, int], str | None]]:
        """Return the group of each tip, and for pairs of groups the `base` of each pair of tips from these.

        The tips of a group share the same commits with others. Two groups that are not named parted at
        `common`; one that is named with itself has its base within.
        """
        often = Counter(chain.from_iterable(self._reached.values()))
        members: defaultdict[frozenset[str], list[str]] = defaultdict(list)
        for tip, reached in self._reached.items():
            members[frozenset(commit for commit in reached if often[commit] > 1)].append(tip)
        number_of = {shared: number for number, shared in enumerate(members)}
        having: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
        for shared in number_of:
            for commit in shared:
                having[commit].append(shared)
        bases: dict[tuple[int, int], str | None] = {}
        for sharing in having.values():
            for one, other in combinations_with_replacement(sharing, 2):
                first, last = members[one][0], members[other][-1]
                pair = (number_of[one], number_of[other])
                if pair not in bases and first != last:  # else there is but one tip
                    bases[pair] = self.base(first, last)
        return {tip: number_of[shared] for shared, tips in members.items() for tip in tips}, bases

    def _head(self, shared: frozenset[str]) -> str | None:
        heads = shared.difference(*(self._parents[commit] for commit in shared))
        if len(heads) != 1:
            return None
        (head,) = heads
        # Otherwise `common` is a second base beside it: the history was merged crosswise.
        stands_on_common = any(self._common in self._parents[commit] for commit in self._reach(head))
        return head if stands_on_common else None

    def _reach(self, tip: str) -> frozenset[str]:
        found: set[str] = set()
        left = [tip]
        while left:
            commit = left.pop()
            if commit in self._parents and commit not in found:
                found.add(commit)
                left += self._parents[commit]
        return frozenset(found)
