"""The end of a run: its last event, its records in the main checkout, and the disk as it should be left."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from trio import to_thread

from isolation.git.commits import named
from isolation.git.repository import Repository
from isolation.worktree.removed.store import expire_removed
from runner.core.events.events import RunEnded, StoryFinished
from runner.core.model import RunId, Status, StorySnapshot
from runner.records.event_log import EventLog
from runner.records.telemetry import records_checkout, write_run
from runner.run.cleanup import sweep
from runner.run.interaction import View
from runner.story.context.context import RunContext

FINISHED = "refs/autopilot/finished"
"""Where the commit of a story stays whose branch something else has moved or deleted."""


async def check_branches(log: EventLog, context: RunContext, *, since: float) -> None:
    """Make sure that the branches of the stories that were done since then still hold what was verified.

    Sessions can move the branches of other stories. A story whose branch was moved is not done: what
    is there now was never verified. Neither is one whose branch is gone, unless
    the checkout has its commit.
    """
    run = log.snapshot
    done = [
        story
        for story in run.stories.values()
        if story.status is Status.DONE and (story.ended_at or 0.0) >= since and not story.workspace.landed
    ]
    places = [(context.at(story.repo).repository, story) for story in done]
    found = await to_thread.run_sync(_all_moved, places, run.run_id)
    if found:
        await log.record(*found)


def _all_moved(
    places: Sequence[tuple[Repository, StorySnapshot]], run_id: RunId
) -> tuple[StoryFinished, ...]:
    """Return what to record about those of these stories whose branch was moved. Blocking."""
    found = (_moved(repository, run_id, story) for repository, story in places)
    return tuple(event for event in found if event is not None)


def _moved(repository: Repository, run_id: RunId, story: StorySnapshot) -> StoryFinished | None:
    """Return what to record about a branch that does not hold the story's commit any more. Blocking."""
    branch, commit = story.workspace.branch, story.workspace.commit
    if branch is None or commit is None or not story.workspace.commits:
        return None
    tip = repository.branch_tip(branch)
    if tip == commit or (tip is None and repository.is_ancestor(commit, "HEAD")):
        return None
    kept = f"{FINISHED}/{run_id}/{branch}"
    repository.run("update-ref", "-m", "autopilot-multi: its branch was moved", kept, commit)
    held = f"{commit[:12]}, which was verified and stays as {kept}"
    if tip is None:
        reason = f"its branch {branch} was deleted after it was done: it held {held}"
        restore = f"git branch {branch} {kept}"
    else:
        changed = repository.changed_paths(commit, tip)
        differs = f"which differs in {named(changed)}" if changed else "with the same files"
        reason = f"its branch {branch} was moved after it was done: from {held}, to {tip[:12]}, {differs}"
        restore = f"git branch --force {branch} {kept}"
    return StoryFinished(
        story_id=story.id,
        verdict=Status.FAILED,
        reason=reason,
        next=restore,
        commit=commit,
        commits=story.workspace.commits,
    )


async def close_run(
    log: EventLog, places: Sequence[tuple[Repository, Path]], view: View, *, exit_code: int
) -> None:
    """Record the end, write the records, and delete what finished worktrees left.

    `places` are the repositories of the run, its own first, each with the folder of its worktrees.
    """
    home = places[0][0]
    async with records_on_error(log, home):
        await log.record(RunEnded(exit_code=exit_code))
    await to_thread.run_sync(write_run, log.snapshot, records_checkout(home.paths))
    for repository, root in places:
        await sweep(root, view.say)
        await to_thread.run_sync(expire_removed, repository)


@asynccontextmanager
async def records_on_error(log: EventLog, repository: Repository) -> AsyncIterator[None]:
    """Write the records as far as they are known when an error ends the block; never hide that error."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            # Not in a thread: the task may be cancelled, and a thread could not be waited for.
            write_run(log.snapshot, records_checkout(repository.paths))
        raise
