"""Which conflicts of a landing agents resolve, and what became of that."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from runner.core.left_out.evidence import CONFLICT
from runner.core.model import StoryId
from runner.land.candidates import Candidates
from runner.land.left_out.events import NotLanded
from runner.land.left_out.resolver import Conflict, Resolver
from runner.land.train import Clash, Resolution, Style, Train


class Resolving:
    """The resolutions of one landing: of every conflict, or of those that the user has decided so.

    `made` are those that count, `refused` says of the others why not. Each story is tried once.
    """

    def __init__(self, resolver: Resolver, *, onto: str, everything: bool) -> None:
        self.made: dict[StoryId, Resolution] = {}
        self.refused: dict[StoryId, str] = {}
        self._resolver = resolver
        self._onto = onto
        self._everything = everything

    def wants(self, each: NotLanded, candidates: Candidates) -> bool:
        """Whether the conflict of a story is to be resolved."""
        tried = each.story in self.made or each.story in self.refused
        asked = self._everything or each.story in candidates.resolvable
        return each.why == CONFLICT and bool(each.files) and asked and not tried

    async def resolve(self, story_id: StoryId, clash: Clash, onto: str, train: Train) -> bool:
        """Let the agent of a story resolve its conflict with `onto`; return whether the result counts."""
        candidates, one = train.candidates, train.candidates[story_id]
        made = await self._resolver.resolve(
            Conflict(
                landing_id=train.landing_id,
                story=one,
                others=tuple(candidates[other] for other in clash.stories),
                files=clash.files,
                onto=self._onto,
                target=train.tip,
                commit=onto,
                base=one.fork if one.replayed or train.style is not Style.MERGE else "",
            )
        )
        if isinstance(made, str):
            self.refused[story_id] = made
        else:
            self.made[story_id] = made
        return not isinstance(made, str)


def moved_behind(
    candidates: Candidates, landed: Sequence[StoryId], resolved: Collection[StoryId]
) -> Candidates:
    """Return the candidates in the order in which conflicts were resolved: on top of what lands."""
    first = [*landed, *resolved]
    rest = [each.id for each in candidates.stories if each.id not in first]
    return replace(candidates, stories=tuple(candidates[each] for each in (*first, *rest)))
