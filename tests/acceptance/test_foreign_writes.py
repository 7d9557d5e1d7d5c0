"""Stories that write outside their claims in every way, by the real program: a sample of what chaos does."""

from collections.abc import Iterator

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.foreign_writes import NAMES, Battle, check_kept, check_tree, digest, prepare
from tests.acceptance.people import GROUNDS, USERS, Ground, Person, somebody
from tests.acceptance.program import LIMIT

SAMPLE = 240
ATTRIBUTES = {"mode": "through", "time": "through"}


@pytest.fixture(params=USERS)
def who(request: pytest.FixtureRequest) -> str:
    """Name every user that the tests can be."""
    name: str = request.param
    return name


@pytest.fixture(params=["divert", "deny by mounts", "deny by Landlock"])
def ground(request: pytest.FixtureRequest) -> Ground:
    """Return every way in which the system helps, if this machine has it."""
    found = GROUNDS[request.param]
    found.require()
    return found


@pytest.fixture
def person(who: str, ground: Ground) -> Iterator[Person]:
    """Return somebody on that ground."""
    with somebody(who, landlocks=ground.landlocks) as found:
        yield found


def fight(battle: Battle, ground: Ground, *, limit: float = LIMIT) -> None:
    """Have all stories write at once; whatever they tried, the tree is as it was and their own work whole."""
    blind = ground.means is not Means.MOUNTS
    before, own = digest(battle.root, folder_times=not blind), _users(battle)
    ran = battle.run("--enforce", ground.level, limit=limit)
    assert ran.data["enforcement"] == ground.level
    assert [story["status"] for story in ran.data["stories"]] == ["done"] * len(battle.plans), ran.err
    check_tree(battle, before, folder_times=not blind)
    assert _users(battle) == own
    if ground.means is not Means.MOUNTS or ground.level is EnforcementLevel.DIVERT:
        assert {story["retry_count"] for story in ran.data["stories"]} == {1}, "the first attempt failed"
        assert "its claim: " in ran.err or "what is not theirs: " in ran.err


def _users(battle: Battle) -> tuple[bytes, str]:
    """Look at the index and the branch that the user has checked out."""
    index = (battle.root / ".git" / "index").read_bytes()
    return index, battle.person.git(battle.root, "rev-parse", "--symbolic-full-name", "HEAD", "main")


def test_eight_stories_at_once_reach_nothing_that_is_not_theirs(person: Person, ground: Ground) -> None:
    """Acceptance 18 and 20, open cases 1 to 4 and 9: of all foreign writes none reaches the tree.

    At `divert` each is in its story's quarantine. At `deny` each was refused, and the story's own log says
    so; Landlock does not see modes and times, which are found afterwards.
    """
    lands = ground.means is Means.LANDLOCK
    battle = prepare(person, NAMES, SAMPLE, siblings=not lands)
    fight(battle, ground)
    diverts = ground.level is EnforcementLevel.DIVERT
    for name in NAMES:
        expected = battle.all_of(name, "through" if diverts else "refused", but=ATTRIBUTES if lands else None)
        assert battle.outcomes(name) == expected
    if diverts:
        check_kept(battle)
    elif lands:
        _check_attributes(battle)
    else:
        assert person.run(battle.root, "quarantine", "--json").data["quarantines"] == []


def _check_attributes(battle: Battle) -> None:
    """Every mode and time that Landlock let through was found, and told to all who may have done it."""
    listed = battle.person.run(battle.root, "quarantine", "--json").data["quarantines"]
    found = {(change["path"], change["what"]) for one in listed for change in one["changes"]}
    acts = [act for plan in battle.plans.values() for act in plan if act.kind in ATTRIBUTES]
    assert found == {item for act in acts for item in act.found.items()}
    assert {name for one in listed for name in one["story_ids"]} == set(NAMES)


def test_one_story_alone_is_found_out(who: str) -> None:
    """Acceptance 18 at `detect`, open cases 1 to 4 and 9: all that it did is named, kept and undone."""
    with somebody(who) as person:
        battle = prepare(person, "a", SAMPLE)
        fight(battle, GROUNDS["detect"])
        assert battle.outcomes("a") == battle.all_of("a", "through")
        check_kept(battle)
