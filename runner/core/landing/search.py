"""Which stories land: batches of a train are verified, and a red batch is split until its culprit is found.

A generator that asks and is answered, so that it needs neither git nor processes: it yields `Merge` (does the
last story merge onto the others?) and `Verify` (are these stories green together?), and returns `Found`.

Invariants:

1. What is landed was verified green, as exactly this sequence, by the last answer about it.
2. A story is red only if a sequence of landed stories was green without it and red with it.
3. What is left at the end does not merge onto what lands, or lacks a story that it depends on.
4. Of a red group, the last story is left out. Where several are red with the same one, that one is, if it is
   green that way.

A batch that is red halves the next one, a green one doubles it: few red stories cost about log2(n) runs each,
and many cost hardly more than one run each.
"""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from runner.core.landing.closure import closure
from runner.core.model import StoryId

Stories: TypeAlias = tuple[StoryId, ...]
Needs: TypeAlias = Mapping[StoryId, Collection[StoryId]]
"""What each story depends on, as far as that is in the train."""


class Answer(StrEnum):
    """What is known of a sequence of stories; `CONFLICT` means that it could not even be merged."""

    GREEN = "green"
    RED = "red"
    CONFLICT = "conflict"


class Merge(Struct, frozen=True):
    """Whether the last of these merges onto the others; `GREEN` means yes."""

    stories: Stories


class Verify(Struct, frozen=True):
    """Whether these are green together; without any, whether the target is green as it is."""

    stories: Stories


class Company(Struct, frozen=True, kw_only=True):
    """With which landed stories a red story is red; without any, it is red on the target alone.

    `exact` means that these are enough; otherwise others play a part, too.
    """

    stories: Stories = ()
    exact: bool = True


class Found(Struct, frozen=True, kw_only=True):
    """What lands, what is red in which company, and what was left out; `red_target`: without any story."""

    landed: Stories = ()
    red: Mapping[StoryId, Company] = {}
    left: Stories = ()
    red_target: bool = False


Question: TypeAlias = Merge | Verify
Search: TypeAlias = Generator[Question, Answer, Found]


class _Swap(Struct, frozen=True):
    """A landed story, those that are red only with it, and what would have to be left out with it."""

    partner: StoryId
    others: Stories
    lost: frozenset[StoryId]


class _Progress:
    """What the search has found out so far; the next batch has at most `size` stories."""

    def __init__(self, order: Sequence[StoryId], needs: Needs, kept: Collection[StoryId]) -> None:
        self.landed: Stories = ()
        self.red: dict[StoryId, Company] = {}
        self.rest = list(order)
        self.size = len(order)
        self.needs = needs
        self.tried: dict[StoryId, frozenset[StoryId]] = {}
        """With whom it was red to leave a partner out."""
        self._order = order
        self._kept = set(kept)

    @property
    def partners(self) -> set[StoryId]:
        """Landed stories with which others are red."""
        return {story for company in self.red.values() if company.exact for story in company.stories}

    def land(self, batch: Stories, good: int) -> StoryId | None:
        """Take the green part of a batch, and return the story behind it, which is red with it."""
        culprit = batch[good] if good < len(batch) else None
        self.landed = (*self.landed, *batch[:good])
        self.rest = [story for story in self.rest if story not in self.landed and story != culprit]
        self.size = self.size * 2 if culprit is None else max(1, min(len(batch), len(self.rest)) // 2)
        return culprit

    def swaps(self) -> Iterator[_Swap]:
        """Return landed stories without which more would land, as far as is known."""
        for partner in sorted(self.partners):
            others = tuple(story for story, its in self.red.items() if its.exact and partner in its.stories)
            lost = self._with_dependents({partner})
            won = self._with_dependents(others) - lost
            if len(won) > len(lost) and self._kept.isdisjoint(lost):
                yield _Swap(partner, others, lost)

    def swap(self, swap: _Swap, landed: Stories) -> None:
        """Leave out what was landed in favor of others, which are green without it."""
        # A story that is red for reasons that are not known exactly may be green without this one.
        free = {story for story, its in self.red.items() if not its.exact or swap.lost & set(its.stories)}
        self.red = {story: its for story, its in self.red.items() if story not in free}
        self.red[swap.partner] = Company(stories=tuple(each for each in swap.others if each in landed))
        self.rest = [story for story in self._order if story not in {*landed, *self.red}]
        self.landed, self.size = landed, max(self.size, len(free))

    def again(self) -> bool:
        """Try what is red with stories that were left out since; whether there is any."""
        there = {
            story: tuple(each for each in its.stories if each in self.landed)
            for story, its in self.red.items()
        }
        back = {story for story, its in self.red.items() if its.stories and not there[story]}
        back |= {story for story, its in self.red.items() if not its.exact and there[story] != its.stories}
        self.rest = [story for story in self._order if story in {*self.rest, *back}]
        self.red = {
            story: Company(stories=there[story], exact=its.exact)
            for story, its in self.red.items()
            if story not in back
        }
        return bool(back)

    def _with_dependents(self, stories: Collection[StoryId]) -> frozenset[StoryId]:
        return frozenset(story for story in self._order if closure((story,), self.needs) & set(stories))


def search(
    order: Sequence[StoryId],
    needs: Needs,
    *,
    rejected: Collection[StoryId] = (),
    kept: Collection[StoryId] = (),
) -> Search:
    """Find out which stories land, tried in this order; those that are `rejected` count as red.

    Those to be `kept` are never left out in favor of others that come later.
    """
    now, sound = _Progress([story for story in order if story not in rejected], needs, kept), False
    while True:
        batch = yield from _batch(now.landed, now.rest, needs, now.size)
        if not batch:
            if (yield from _swapped(now)) or now.again():
                continue
            return Found(landed=now.landed, red=now.red, left=tuple(now.rest))
        green = (yield Verify((*now.landed, *batch))) is Answer.GREEN
        good = len(batch) if green else (yield from _green_part(now.landed, batch))
        culprit = now.land(batch, good)
        if culprit is None:
            continue
        company = yield from _company(now.landed, culprit, needs, now.partners)
        if not company.stories and company.exact and not sound:
            sound = (yield Verify(())) is not Answer.RED
            if not sound:
                return Found(red_target=True, left=tuple(order))
        now.red[culprit] = company
        if company.exact and len(company.stories) == 1:
            yield from _swapped(now, company.stories[0])


def _swapped(now: _Progress, only: StoryId | None = None) -> Generator[Question, Answer, bool]:
    """Leave out a landed story with which several are red, if these are green without it.

    One run shows it, together with all that is left; where it fails, everything stays as it was.
    """
    for swap in now.swaps():
        if only is not None and (only != swap.partner or only in now.tried):
            continue
        kept = tuple(story for story in now.landed if story not in swap.lost)
        rest = [*swap.others, *(story for story in now.rest if story not in swap.lost)]
        more = yield from _batch(kept, rest, now.needs, len(rest))
        better = len(set(swap.others) & set(more)) > len(swap.lost & {*now.landed, *now.rest})
        # What was red with less is red with more.
        if not better or any(red <= {*kept, *more} for red in now.tried.values()):
            continue
        if (yield Verify((*kept, *more))) is Answer.GREEN:
            now.swap(swap, (*kept, *more))
            return True
        now.tried[swap.partner] = frozenset((*kept, *more))
    return False


def _batch(
    landed: Stories, rest: Sequence[StoryId], needs: Needs, size: int
) -> Generator[Question, Answer, Stories]:
    """Collect the next stories that merge, each onto those before it, and have what they depend on."""
    batch: Stories = ()
    for story in rest:
        if len(batch) == size:
            break
        before = (*landed, *batch)
        if set(needs.get(story, ())) <= set(before):
            answer = yield Merge((*before, story))
            batch = (*batch, story) if answer is Answer.GREEN else batch
    return batch


def _green_part(landed: Stories, batch: Stories) -> Generator[Question, Answer, int]:
    """Return how many of a red batch are green, so that one more is red."""
    green, red = 0, len(batch)
    while red - green > 1:
        middle = (green + red) // 2
        if (yield Verify((*landed, *batch[:middle]))) is Answer.GREEN:
            green = middle
        else:
            red = middle
    return green


def _company(
    landed: Stories, culprit: StoryId, needs: Needs, suspects: Collection[StoryId]
) -> Generator[Question, Answer, Company]:
    """Find a story of those that land without which the culprit would be green."""
    own = closure((culprit,), needs)
    others = [story for story in landed if story not in own]
    # Where something was red together before, the same story is often the other half again.
    likely = [story for story in others if story in closure(suspects, needs)]
    green, red = -1, len(others)
    if likely and len(likely) < len(others):
        answer = yield Verify(_in_order(landed, (*own, *likely), culprit))
        if answer is Answer.RED:
            others, red = likely, len(likely)
        elif answer is Answer.GREEN:
            green = 0
    middle = 0
    while red - green > 1:
        middle = (green + red) // 2 if green >= 0 else 0
        answer = yield Verify(_in_order(landed, (*own, *others[:middle]), culprit))
        if answer is Answer.CONFLICT:
            return Company(stories=tuple(others[:red]), exact=False)
        green, red = (middle, red) if answer is Answer.GREEN else (green, middle)
    if red == 0:
        return Company()
    partner = others[red - 1]
    pair = _in_order(landed, (*own, *closure((partner,), needs)), culprit)
    if red == 1:
        return Company(stories=(partner,))
    return Company(stories=(partner,), exact=(yield Verify(pair)) is Answer.RED)


def _in_order(landed: Stories, chosen: Collection[StoryId], last: StoryId) -> Stories:
    """Return the chosen ones of the landed stories in the order of landing, and one more behind them."""
    wanted = set(chosen) - {last}
    return (*(story for story in landed if story in wanted), last)
