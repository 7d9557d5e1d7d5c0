"""`make chaos`: the coordinator is killed at 50 random moments, in runs and in resumes."""

import random
from pathlib import Path

import pytest

from tests.chaos.killing import play, prepare

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("number", range(25))
def test_fifty_kills(repo: Path, number: int) -> None:
    """Acceptance 68: 25 backlogs, each killed twice: 0 lost, 0 repeated, 0 orphans, fsck clean."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201  a failure must be replayable
    play(prepare(repo, str(number)), seed, kills=2)
