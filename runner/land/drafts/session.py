"""`pr` and `land --pr` from their request to their end: the lease, then one draft after the other."""

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio
from msgspec import Struct
from trio import to_thread

from isolation.errors import IsolationError
from isolation.git.repository import Repository
from runner.core.errors import RunnerError, UsageError
from runner.core.events import drafts as df
from runner.core.model import RunId, Status, StoryId
from runner.core.settings import Settings
from runner.forge.drafts.hosted import PullRequest
from runner.forge.errors import RefusedError
from runner.land.drafts.known import Office, open_office
from runner.records.journal import Journal
from runner.run.drafts.publisher import Outcome
from runner.run.several.acquisition import acquired

LEASE = "pr-"
"""What the name in the lease begins with while drafts are published."""
Say = Callable[[str], None]
_T = TypeVar("_T")


class Failure(Struct, frozen=True, kw_only=True):
    """Why something was not done for a story."""

    story_id: StoryId
    reason: str
    hint: str = ""


class Published(Struct, frozen=True, kw_only=True):
    """The drafts, in their order, and what failed; `queued` and `waiting` are those of `land --pr`."""

    onto: str
    outcomes: tuple[Outcome, ...] = ()
    failures: tuple[Failure, ...] = ()
    queued: tuple[StoryId, ...] = ()
    waiting: tuple[tuple[StoryId, str], ...] = ()


def show_drafts(directory: Path, settings: Settings, names: Sequence[str], say: Say) -> Published:
    """Find out what `publish_drafts` would do; the forge and the journal are only read."""
    with open_office(Repository.open(directory), settings, say=say) as office:
        return _each(office, office.chosen(names), lambda story_id: office.publisher(story_id).plan(story_id))


def publish_drafts(directory: Path, settings: Settings, names: Sequence[str], say: Say) -> Published:
    """Open or update drafts, each after those that it builds on."""
    repository = Repository.open(directory)
    return trio.run(leased, repository, partial(_publish, repository, settings, names, say))


def _publish(
    repository: Repository, settings: Settings, names: Sequence[str], say: Say, journal: Journal
) -> Published:
    with open_office(repository, settings, journal, say=say) as office:
        return _each(
            office, office.chosen(names), lambda story_id: office.publisher(story_id).publish(story_id)
        )


async def leased(repository: Repository, act: Callable[[Journal], _T]) -> _T:
    """Do something in a thread while no run can be active, with the journal."""
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{secrets.token_hex(4)}"
    async with acquired(repository, RunId(f"{LEASE}{name}")) as journal:
        return await to_thread.run_sync(act, journal)


def _each(office: Office, names: Sequence[StoryId], act: Callable[[StoryId], Outcome]) -> Published:
    """Do it for each story; one that fails stops only those that build on it."""
    outcomes: list[Outcome] = []
    failures: dict[StoryId, Failure] = {}
    for story_id in names:
        needs = office.past.stories[story_id].story.depends_on
        if blocker := next((each for each in needs if each in failures), None):
            failures[story_id] = Failure(story_id=story_id, reason=f"builds on {blocker}, which has no draft")
            continue
        try:
            outcomes.append(act(story_id))
        except (RunnerError, IsolationError) as error:
            failures[story_id] = Failure(story_id=story_id, reason=error.message, hint=error.hint)
    return Published(onto=office.onto, outcomes=tuple(outcomes), failures=tuple(failures.values()))


def queue_drafts(
    directory: Path, settings: Settings, names: Sequence[str], style: str, say: Say, *, dry_run: bool
) -> Published:
    """Publish drafts, mark them as ready, and hand those that stand on the target to the forge's queue."""
    repository = Repository.open(directory)
    if dry_run:
        with open_office(repository, settings, say=say) as office:
            shown = _each(office, _done(office, names), lambda name: office.publisher(name).plan(name))
            return _sorted_out(office, shown)
    act = partial(_queue, repository, settings, names, say, style=style)
    return trio.run(leased, repository, act)


def _queue(
    repository: Repository,
    settings: Settings,
    names: Sequence[str],
    say: Say,
    journal: Journal,
    *,
    style: str,
) -> Published:
    with open_office(repository, settings, journal, say=say) as office:
        published = _each(office, _done(office, names), lambda name: office.publisher(name).publish(name))
        planned = _sorted_out(office, published)
        queued: list[StoryId] = []
        failures = list(published.failures)
        for outcome in published.outcomes:
            story_id = outcome.content.story_id
            if story_id not in planned.queued:
                continue
            try:
                _enqueue(office, outcome, style)
            except (RunnerError, IsolationError) as error:
                failures.append(Failure(story_id=story_id, reason=error.message, hint=error.hint))
            else:
                queued.append(story_id)
        return Published(
            onto=office.onto,
            outcomes=published.outcomes,
            failures=tuple(failures),
            queued=tuple(queued),
            waiting=planned.waiting,
        )


def _enqueue(office: Office, outcome: Outcome, style: str) -> None:
    content = outcome.content
    run_id, number = office.run_of(content.story_id).run_id, outcome.number
    found = _require_open(office, content.branch, content.commit)
    office.record(run_id, df.DraftQueuePlanned(story_id=content.story_id, number=number, style=style))
    try:
        office.forge.enqueue(found, style)
    except RefusedError as error:
        office.record(run_id, df.DraftRefused(story_id=content.story_id, reason=error.message))
        raise
    office.record(run_id, df.DraftQueued(story_id=content.story_id, number=number))


def _require_open(office: Office, branch: str, commit: str) -> PullRequest:
    found = office.forge.find(branch)
    if found is None or not found.is_open or found.commit != commit:
        raise UsageError(
            f"the {office.forge.noun} of {branch} does not show {commit[:12]}, which was verified",
            hint="somebody may have pushed there; look at it, then try again.",
        )
    return found


def _done(office: Office, names: Sequence[str]) -> tuple[StoryId, ...]:
    """Return the stories to land; one that is not done is refused."""
    chosen = office.chosen(names)
    for story_id in chosen:
        status = office.past.stories[story_id].status
        if status is not Status.DONE:
            raise UsageError(
                f"story {story_id} is {status.value}, so it cannot land",
                hint=f"`autopilot-multi show {story_id}` shows why.",
            )
    return chosen


def _sorted_out(office: Office, published: Published) -> Published:
    """Say which drafts can be queued now: one that stands on another waits until that is merged."""
    queued, waiting = [], []
    for outcome in published.outcomes:
        content = outcome.content
        if content.parent is None:
            queued.append(content.story_id)
        else:
            waiting.append((content.story_id, f"stands on {content.parent}; land it when that is merged"))
    return Published(
        onto=office.onto,
        outcomes=published.outcomes,
        failures=published.failures,
        queued=tuple(queued),
        waiting=tuple(waiting),
    )


def complete_drafts(repository: Repository, settings: Settings, run_id: RunId, say: Say) -> Published | None:
    """Do what a killed process had planned for drafts of a run; None if there is nothing."""
    with open_office(repository, settings, say=say) as office:
        left = _left(office, run_id)
    if not left:
        return None
    return trio.run(leased, repository, partial(_complete, repository, settings, run_id, say))


def _complete(
    repository: Repository, settings: Settings, run_id: RunId, say: Say, journal: Journal
) -> Published:
    with open_office(repository, settings, journal, say=say) as office:
        left = _left(office, run_id)
        return _each(office, left, lambda story_id: office.publisher(story_id).publish(story_id))


def _left(office: Office, run_id: RunId) -> tuple[StoryId, ...]:
    return tuple(
        story_id
        for story_id, known in office.past.stories.items()
        if known.worked_in == run_id and office.draft(story_id).planned
    )
