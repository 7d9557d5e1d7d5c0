"""The work of a run's stories as commits that can be merged for trial: branches, and uncommitted files."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from isolation.errors import IsolationError
from isolation.git.forecast.forecaster import OLDEST_GIT, Forecaster
from isolation.git.forecast.scratch import Scratch
from isolation.git.repository import Repository
from isolation.paths import current_branch
from runner.core.forecast.clashes import Forecast
from runner.core.landing.forecast import TARGET, Tip, foresee
from runner.core.model import RunSnapshot, Status, StoryId, StorySnapshot
from runner.core.progress.repositories import HOME

SHARED = "none"
_OPEN = frozenset({Status.RUNNING, Status.PARKED, Status.STOPPED})
"""Stories whose files may be ahead of their branch."""


def can_foresee(repository: Repository) -> bool:
    """Whether this git can merge for trial."""
    return repository.version >= OLDEST_GIT


def tips_of(
    run: RunSnapshot, place: Scratch, *, repo: str = HOME, without: Collection[StoryId] = ()
) -> tuple[Tip, ...]:
    """Return the work of the stories in a repository that have some and may still land."""
    stories = [
        story
        for story in run.stories.values()
        if story.repo == repo
        and story.id not in without
        and (story.status in _OPEN or story.status is Status.DONE)
        if not (story.workspace.merged or story.workspace.landed)
    ]
    branches = _branches(place.repository, stories)
    return tuple(tip for story in stories for tip in _tip(run, story, place, branches))


def _branches(repository: Repository, stories: Collection[StorySnapshot]) -> dict[str, str]:
    names = [f"refs/heads/{story.workspace.branch}" for story in stories if story.workspace.branch]
    if not names:
        return {}
    asked = ("for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", *names)
    lines = repository.run(*asked).stdout.splitlines()
    return {name: commit for commit, _, name in (line.partition(" ") for line in lines)}


def _tip(run: RunSnapshot, story: StorySnapshot, place: Scratch, branches: dict[str, str]) -> Iterator[Tip]:
    workspace = story.workspace
    commit, uncommitted = branches.get(workspace.branch or "") or workspace.commit or "", False
    own = bool(workspace.path) and (run.isolation != SHARED or workspace.apart)
    if own and story.status in _OPEN:
        # The worktree may be gone, or be deleted at this very moment.
        with suppress(IsolationError, OSError):
            commit, uncommitted = place.snapshot(Path(workspace.path or ""))
    if commit and commit != (workspace.base or run.base_of(story.repo)):
        yield Tip(
            id=story.id,
            commit=commit,
            needs=story.depends_on,
            since=run.started_at,
            uncommitted=uncommitted,
        )


def target(repository: Repository) -> tuple[str, str]:
    """Return the branch of the main checkout and its commit, which `land` would take; both empty if none."""
    checkout = repository.main_checkout
    branch = current_branch(checkout) if checkout is not None else ""
    return branch, (repository.branch_tip(branch) or "") if branch else ""


def forecast(
    forecaster: Forecaster, place: Scratch, tips: tuple[Tip, ...], *, onto: str = "", commit: str = ""
) -> Forecast:
    """Return which of these conflict, with each other or with the target at `commit`."""
    named: dict[str, str] = {TARGET: commit} if commit else {}
    named |= {tip.id: tip.commit for tip in tips}
    found = forecaster.clashes(place, named)
    return foresee(tips, {pair: (clash.files, clash.reason) for pair, clash in found.items()}, onto)
