"""`make chaos`: stories that break what real tools have set up, at every level of the guard."""

import pytest

from isolation.guard.guard import READ_ONLY, attempt
from isolation.model import Means
from tests.acceptance.people import GROUNDS, NO_MOUNTS, USERS, Ground
from tests.acceptance.sabotage import BROKEN, FINE, REAL, SAMPLE, Project, prepared
from tests.acceptance.test_sabotage import refused, seen_through, statuses
from tests.isolation.guard.guard_scenes import can_mount

PROJECTS = {**SAMPLE, **REAL}


@pytest.mark.chaos
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("project", PROJECTS.values(), ids=list(PROJECTS))
def test_broken_code_is_never_verified(project: Project, user: str) -> None:
    """The verify command lies where nothing is done about it; then the way out is named, or closed."""
    with prepared(project, user) as scene:
        assert scene.lies()
        refused(scene, "--no-guard")
        if not attempt(READ_ONLY, Means.LANDLOCK):
            refused(scene, landlocks=NO_MOUNTS)
        if can_mount():
            seen_through(scene)


@pytest.mark.chaos
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("ground", GROUNDS.values(), ids=list(GROUNDS))
@pytest.mark.parametrize("project", PROJECTS.values(), ids=list(PROJECTS))
def test_broken_code_is_never_verified_in_one_shared_tree(
    project: Project, ground: Ground, user: str
) -> None:
    """The checkout is the story's own tree there, so that all ways lead to it, at every level."""
    ground.require()
    with prepared(project, user) as scene:
        ran = scene.run_in_one_tree(ground)
        assert statuses(ran) == {FINE: "done", BROKEN: "failed"}, (ran.out, ran.err)
        assert ran.data["enforcement"] == ground.level
