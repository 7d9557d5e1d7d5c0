"""What is foreseen about the merges of stories: which conflict, where, and in which order to land them."""

from collections.abc import Collection

from msgspec import Struct


class Clash(Struct, frozen=True, kw_only=True):
    """Two stories whose branches conflict; one story alone conflicts with the target branch.

    Without files, `reason` says why they cannot be merged at all.
    """

    stories: tuple[str, ...]
    files: tuple[str, ...] = ()
    reason: str = ""


class Forecast(Struct, frozen=True, kw_only=True):
    """The conflicts among `stories`, the best order to land them in, and which of them are lost in it.

    `uncommitted` are stories of which files were looked at that are in no commit yet. `onto` is the target.
    `more` is how many conflicts are left out of `clashes`.
    """

    stories: tuple[str, ...] = ()
    clashes: tuple[Clash, ...] = ()
    order: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    uncommitted: tuple[str, ...] = ()
    onto: str = ""
    more: int = 0


def joined(forecasts: Collection[Forecast]) -> Forecast | None:
    """Return what is foreseen in several repositories as one; stories of different ones never conflict."""
    found = list(forecasts)
    if len(found) <= 1:
        return found[0] if found else None
    targets = {each.onto for each in found if each.onto}
    return Forecast(
        stories=tuple(name for each in found for name in each.stories),
        clashes=tuple(clash for each in found for clash in each.clashes),
        order=tuple(name for each in found for name in each.order),
        lost=tuple(name for each in found for name in each.lost),
        uncommitted=tuple(name for each in found for name in each.uncommitted),
        onto=targets.pop() if len(targets) == 1 else "",
        more=sum(each.more for each in found),
    )
