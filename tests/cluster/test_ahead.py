"""Which worker prepares for which story: nothing of it is binding, and nobody waits for it for long."""

from collections.abc import Callable
from dataclasses import dataclass, field

from trio.testing import MockClock

from runner.core.model import Story, StoryId
from runner.plan.stories.keys import needs_of
from runner.remote.cluster.placing.ahead import PATIENCE_SECONDS, Ahead
from runner.remote.cluster.placing.placement import Needs, Room, choose, unplaced
from runner.remote.cluster.wire.messages import Start


@dataclass
class _Link:
    name: str
    expects: str = ""
    can_prepare: bool = True
    offers: dict[str, float] = field(default_factory=dict)
    placed: dict[str, Needs] = field(default_factory=dict)
    told: list[Start | None] = field(default_factory=list)

    def room(self, _is_leaving: Callable[[str], bool]) -> Room:
        taken = len(self.placed)
        return Room(name=self.name, slots=1, taken=taken, offers=self.offers, expects=self.expects)

    def expect(self, start: Start | None) -> None:
        self.told.append(start)


def _story(name: str, **needs: object) -> Story:
    return Story(id=StoryId(name), title=name, prompt="", needs=needs_of(needs))


def _ids(*names: str) -> set[StoryId]:
    return {StoryId(name) for name in names}


A, B, C = _story("a"), _story("b"), _story("c")


async def test_each_worker_prepares_for_one_story_that_it_suits() -> None:
    """The order of the stories holds; a worker that has one, or no room on its disk, gets none."""
    links = [_Link("full", can_prepare=False), _Link("one"), _Link("gpu", offers={"gpu": 1.0})]
    ahead = Ahead()
    wanted = [_story("g", gpu=1), A, B]
    assert [(link.name, story.id) for link, story in ahead.assign(wanted, links)] == [
        ("one", "a"),
        ("gpu", "g"),
    ]
    assert list(ahead.assign(wanted, links)) == []


async def test_what_cannot_start_any_more_is_dropped() -> None:
    """A story that is no longer ready frees its worker, and the worker hears of it."""
    ahead, link = Ahead(), _Link("one", expects="a")
    ahead.keep(_ids("a"), [link])
    assert (link.expects, link.told) == ("a", [])
    ahead.keep(_ids("b"), [link])
    assert (link.expects, link.told) == ("", [None])


async def test_a_placed_story_is_expected_nowhere() -> None:
    """The worker that gets it begins with what is prepared; one that prepared in vain undoes that."""
    ahead, there, elsewhere = Ahead(), _Link("one", expects="a", placed={"a": ()}), _Link("two", expects="b")
    ahead.forget(A.id, [there, elsewhere])
    ahead.forget(B.id, [there, elsewhere])
    assert (there.expects, there.told) == ("", [])
    assert (elsewhere.expects, elsewhere.told) == ("", [None])


async def test_a_story_lets_others_go_first_for_a_moment(mock_clock: MockClock) -> None:
    """It waits while its own worker is busy and the free one has prepared for another; then it does not."""
    ahead = Ahead()
    links = [_Link("busy", expects="a", placed={"x": ()}), _Link("free", expects="b")]
    rooms = [link.room(lambda _: False) for link in links]

    def waiting(*stories: Story) -> set[StoryId]:
        ahead.keep(_ids("a", "b"), links)
        found = unplaced(stories, rooms, patient=ahead.patient)
        ahead.passed(found)
        return set(found)

    assert waiting(A) == {"a"}
    assert waiting(B) == set()
    mock_clock.jump(PATIENCE_SECONDS - 0.1)
    assert waiting(A) == {"a"}
    mock_clock.jump(0.2)
    assert waiting(A) == set()


def test_a_story_goes_where_it_is_prepared() -> None:
    """Of two free workers it gets its own, and one that prepared for nobody is free for all."""
    rooms = [Room(name="one", slots=2), Room(name="two", slots=2, taken=1, expects="a")]
    assert choose((), rooms, story_id="a") == rooms[1]
    assert choose((), rooms, story_id="b") == rooms[0]
    assert unplaced([C, A], rooms, patient=_ids("a", "c")) == {}
    roomy = [Room(name="two", slots=2, expects="a")]
    assert unplaced([C], roomy, patient=_ids("c")) == {}, "there is another slot for the story it expects"
