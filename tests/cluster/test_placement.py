"""Which worker gets which story, by plain values."""

from hypothesis import given
from hypothesis import strategies as st

from runner.core.model import Story, StoryId
from runner.plan.stories.keys import needs_of
from runner.remote.cluster.placing.placement import Room, choose, unplaced


def _story(name: str, **needs: object) -> Story:
    return Story(id=StoryId(name), title=name, prompt="", needs=needs_of(needs))


def test_a_plain_story_leaves_special_machines_to_others() -> None:
    """Of two free workers, the one without a resource or a label is chosen."""
    rooms = [Room(name="gpu", slots=4, offers={"gpu": 1.0}), Room(name="plain", slots=1)]
    assert choose((), rooms) == rooms[1]


def test_needs_are_met_by_amounts_and_labels() -> None:
    """A story gets a worker that has all that it needs, and none otherwise."""
    rooms = [
        Room(name="a", slots=2, labels=frozenset({"linux"})),
        Room(name="b", slots=2, offers={"gpu": 2.0}, labels=frozenset({"linux", "big"})),
    ]
    chosen = choose(_story("x", gpu=2, label=["linux", "big"]).needs, rooms)
    assert chosen is not None
    assert chosen.name == "b"
    assert choose(_story("y", gpu=3).needs, rooms) is None
    assert choose(_story("y", label="windows").needs, rooms) is None


def test_a_worker_with_a_clone_comes_before_an_equal_one_without() -> None:
    """It decides between workers that are as free as each other, and makes no worker fuller than another."""
    rooms = [Room(name="a", slots=2), Room(name="b", slots=2, repos=frozenset({"web"}))]
    assert choose((), rooms, repo="web") == rooms[1]
    assert choose((), rooms) == rooms[0]
    busy = [rooms[0], Room(name="b", slots=2, taken=1, repos=frozenset({"web"}))]
    assert choose((), busy, repo="web") == rooms[0]


def test_a_worker_without_a_clone_of_its_repository_gets_no_story() -> None:
    """It waits, and says what for; stories of other repositories do not."""
    rooms = [Room(name="a", slots=1, closed=frozenset({"web"}))]
    there = Story(id=StoryId("w"), title="w", prompt="", repo="web")
    assert choose(there.needs, rooms, repo="web") is None
    assert unplaced([there, _story("x")], rooms) == {
        "w": "waits for a worker that can have a clone of its repository"
    }


def test_what_waits_says_what_for_and_others_go_first() -> None:
    """A story whose worker is busy waits; one behind it that fits elsewhere does not."""
    rooms = [Room(name="gpu", slots=1, taken=1, offers={"gpu": 1.0}), Room(name="plain", slots=1)]
    found = unplaced([_story("a", gpu=1), _story("b", label="mac"), _story("c"), _story("d")], rooms)
    assert found == {
        "a": "waits for a free slot on a worker",
        "b": "waits for a worker with label mac",
        "d": "waits for a free slot on a worker",
    }
    assert unplaced([_story("a")], []) == {"a": "waits for a worker of the cluster"}


_rooms = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=4).map(
    lambda sizes: [
        Room(name=str(number), slots=slots, offers={"gpu": float(gpus)} if gpus else {})
        for number, (slots, gpus) in enumerate(sizes)
    ]
)


@given(rooms=_rooms, wants=st.lists(st.integers(0, 3), max_size=12))
def test_no_worker_is_ever_given_more_than_it_has(rooms: list[Room], wants: list[int]) -> None:
    """Slots and amounts hold, whatever is asked; what is refused would fit nowhere at its turn."""
    stories = [_story(f"s{number}", **({"gpu": gpus} if gpus else {})) for number, gpus in enumerate(wants)]
    waiting = unplaced(stories, rooms)
    left = {room.name: room for room in rooms}
    for story in stories:
        found = choose(story.needs, left.values())
        assert (found is None) == (story.id in waiting)
        if found is not None:
            left[found.name] = found.with_story(story.needs)
    for room in left.values():
        assert room.taken <= room.slots
        assert room.used.get("gpu", 0.0) <= room.offers.get("gpu", 0.0)
