"""Which stories land: batches of a train are verified, and a red batch is split until its culprit is found.

A generator that asks and is answered, so that it needs neither git nor processes: it yields `Merge` (does the
last story merge onto the others?) and `Verify` (are these stories green together?), and returns `Found`.

Invariants:

1. What is landed was verified green, as exactly this sequence, by the last answer about it.
2. A story is red only if a sequence of landed stories was green without it and red with it.
3. What is left at the end does not merge onto what lands, or lacks a story that it depends on.

A batch that is red halves the next one, a green one doubles it: few red stories cost about log2(n) runs each,
and many cost hardly more than one run each.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

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


def search(order: Sequence[StoryId], needs: Needs, *, rejected: Collection[StoryId] = ()) -> Search:
    """Find out which stories land, tried in this order; those that are `rejected` count as red."""
    landed: Stories = ()
    red: dict[StoryId, Company] = {}
    rest = [story for story in order if story not in rejected]
    size, sound = len(rest), False
    while batch := (yield from _batch(landed, rest, needs, size)):
        answer = yield Verify((*landed, *batch))
        if answer is Answer.GREEN:
            good, size = len(batch), size * 2
        else:
            good = yield from _green_part(landed, batch)
            size = max(1, len(batch) // 2)
        landed = (*landed, *batch[:good])
        culprit = batch[good] if good < len(batch) else None
        rest = [story for story in rest if story not in landed and story != culprit]
        if culprit is None:
            continue
        company = yield from _company(landed, culprit, needs, _named(red))
        if not company.stories and company.exact and not sound:
            sound = (yield Verify(())) is not Answer.RED
            if not sound:
                return Found(red_target=True, left=tuple(order))
        red[culprit] = company
    return Found(landed=landed, red=red, left=tuple(rest))


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
    own = _closure((culprit,), needs)
    others = [story for story in landed if story not in own]
    # Where something was red together before, the same story is often the other half again.
    likely = [story for story in others if story in _closure(suspects, needs)]
    if likely and len(likely) < len(others):
        answer = yield Verify(_in_order(landed, (*own, *likely), culprit))
        others = likely if answer is Answer.RED else others
    green, red = -1, len(others)
    while red - green > 1:
        middle = (green + red) // 2
        answer = yield Verify(_in_order(landed, (*own, *others[:middle]), culprit))
        if answer is Answer.CONFLICT:
            return Company(stories=tuple(others[:red]), exact=False)
        green, red = (middle, red) if answer is Answer.GREEN else (green, middle)
    if red == 0:
        return Company()
    partner = others[red - 1]
    pair = _in_order(landed, (*own, *_closure((partner,), needs)), culprit)
    if red == 1:
        return Company(stories=(partner,))
    return Company(stories=(partner,), exact=(yield Verify(pair)) is Answer.RED)


def _named(red: Mapping[StoryId, Company]) -> set[StoryId]:
    return {story for company in red.values() if company.exact for story in company.stories}


def _closure(stories: Collection[StoryId], needs: Needs) -> set[StoryId]:
    """Return stories with everything that they depend on."""
    found: set[StoryId] = set()
    left = list(stories)
    while left:
        story = left.pop()
        if story not in found:
            found.add(story)
            left.extend(needs.get(story, ()))
    return found


def _in_order(landed: Stories, chosen: Collection[StoryId], last: StoryId) -> Stories:
    """Return the chosen ones of the landed stories in the order of landing, and one more behind them."""
    wanted = set(chosen) - {last}
    return (*(story for story in landed if story in wanted), last)
