"""`make chaos`: eight stories, 5,000 writes outside their claims, all at once."""

import pytest

from tests.acceptance.foreign_writes import NAMES, check_kept, prepare
from tests.acceptance.people import GROUNDS, USERS, somebody
from tests.acceptance.test_foreign_writes import fight

pytestmark = pytest.mark.chaos

WRITES = 5000
PATIENCE = 300.0


@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("name", ["divert", "deny by mounts"])
def test_five_thousand_foreign_writes(who: str, name: str) -> None:
    """Acceptance 18: 0 of 5,000 reach the tree; each is kept or refused by its story's name."""
    ground = GROUNDS[name]
    ground.require()
    with somebody(who) as person:
        battle = prepare(person, NAMES, WRITES)
        fight(battle, ground, limit=PATIENCE)
        outcome = "through" if name == "divert" else "refused"
        outcomes = {story: battle.outcomes(story) for story in NAMES}
        assert outcomes == {story: battle.all_of(story, outcome) for story in NAMES}
        assert sum(sum(counted.values()) for counted in outcomes.values()) == WRITES
        if name == "divert":
            check_kept(battle)
