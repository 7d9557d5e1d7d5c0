"""What the ways out mean for a run, by the setting `ways-out`: it is refused, or warned of them."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from isolation.git.repository import Repository
from runner.core.errors import RunnerError
from runner.core.model import Story
from runner.core.settings import Settings
from runner.core.text.words import count
from runner.plan.ways_out.search import find_ways_out
from runner.plan.ways_out.way_out import WayOut

REFUSE, IGNORE = "refuse", "ignore"
NOT_LOOKED_FOR = (
    "a verify command may use files of the main checkout instead of the story's; ways-out 'ignore' does not "
    "look for such ways out"
)
HINT = "do what each line says; or add `--ways-out warn` to run in spite of it."


class WaysOutError(RunnerError):
    """Verify commands would use the main checkout, so that their result would mean nothing."""

    code = "ways-out"


def require_no_way_out(
    repository: Repository, settings: Settings, root: Path, stories: Sequence[Story], *, because: str
) -> tuple[WayOut, ...]:
    """Return the ways out that a run is warned of; raise if it is refused because of them.

    `because` says why sessions can see the checkout.
    """
    found = find_ways_out(repository, settings, root, stories=stories, environ=os.environ)
    if refusing := refused(found, settings, stories):
        ways = count(len(refusing), "way")
        lines = "".join(f"\n  {way.line}" for way in refusing)
        raise WaysOutError(
            "verify commands would use the main checkout instead of the story's worktree, "
            f"in {ways} ({because}):{lines}",
            hint=HINT,
        )
    return found


def refused(found: Iterable[WayOut], settings: Settings, stories: Sequence[Story]) -> tuple[WayOut, ...]:
    """Return the ways out for which a run is refused: without a verify command nothing can be wrong."""
    verified = bool(settings.verify) or any(story.verify for story in stories)
    return tuple(way for way in found if way.certain and verified and settings.ways_out == REFUSE)
