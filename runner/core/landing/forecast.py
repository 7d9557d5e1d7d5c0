"""From the conflicts that git foresees to the order to land in, and what that order loses. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from runner.core.forecast.clashes import Clash, Forecast
from runner.core.landing.order import landing, landing_order
from runner.core.model import StoryId

TARGET = ""
"""Stands for the target branch where stories are named."""


class Tip(Struct, frozen=True, kw_only=True):
    """A story's work as one commit; `uncommitted` means that it goes beyond its branch.

    `since` is when its first run began, not when it was done: stories of one run are equally old. `losses` is
    how many earlier landings left it out in favor of others.
    """

    id: StoryId
    commit: str
    needs: tuple[StoryId, ...] = ()
    since: float = 0.0
    uncommitted: bool = False
    losses: int = 0


def foresee(
    tips: Sequence[Tip], found: Mapping[tuple[str, str], tuple[tuple[str, ...], str]], onto: str = ""
) -> Forecast:
    """Return the forecast; `found` has the files, and a reason without any, of each two that conflict."""
    clashes = [
        Clash(stories=tuple(name for name in pair if name != TARGET), files=files, reason=reason)
        for pair, (files, reason) in found.items()
    ]
    conflicts: dict[StoryId, list[StoryId]] = {tip.id: [] for tip in tips}
    hopeless = {StoryId(clash.stories[0]) for clash in clashes if len(clash.stories) == 1}
    for one, other in (clash.stories for clash in clashes if len(clash.stories) > 1):
        conflicts[StoryId(one)].append(StoryId(other))
        conflicts[StoryId(other)].append(StoryId(one))
    needs = {tip.id: tip.needs for tip in tips}
    ages, losses = {tip.id: tip.since for tip in tips}, {tip.id: tip.losses for tip in tips if tip.losses}
    order = landing_order(needs, conflicts, ages=ages, hopeless=hopeless, losses=losses)
    landed = set(landing(order, needs, conflicts, hopeless))
    return Forecast(
        stories=tuple(tip.id for tip in tips),
        clashes=tuple(sorted(clashes, key=lambda clash: (len(clash.stories), clash.stories))),
        order=order,
        lost=tuple(story for story in order if story not in landed),
        uncommitted=tuple(tip.id for tip in tips if tip.uncommitted),
        onto=onto,
    )
