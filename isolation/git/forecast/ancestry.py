"""Where each two of many branches parted, from one list of their commits. Pure."""

from collections.abc import Iterable, Mapping, Sequence


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
