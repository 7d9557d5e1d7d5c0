"""What requests from outside change in a run."""

from collections.abc import Mapping
from typing import Any, assert_never

from msgspec.structs import replace

from runner.core.events import steering
from runner.core.events.folds.story_fold import requeued, step_again, tried_again, without_conversation
from runner.core.model import DEFAULT_ATTEMPTS, RunSnapshot, Status, StoryId, StorySnapshot
from runner.core.progress.repositories import HOME

DIGESTS = "digests"
"""The option of a run that says of each story which work it is."""


def steered(run: RunSnapshot, body: steering.SteeringBody) -> RunSnapshot:
    """Return the run after a request was acted upon."""
    match body:
        case steering.AdmissionPaused() | steering.AdmissionContinued():
            return replace(run, paused=isinstance(body, steering.AdmissionPaused))
        case steering.RequestAnswered():
            return run
        case steering.StoriesAdded():
            new = {StoryId(entry["id"]): planned_story(entry, run.options) for entry in body.stories}
            known = _with_digests(run, body.digests)
            return replace(known, stories={**run.stories, **new})
        case steering.StoryEdited():
            return _edited(run, body)
        case steering.StoryRetried():
            return _retried(run, body)
        case _:
            assert_never(body)


def planned_story(entry: Mapping[str, Any], options: Mapping[str, Any]) -> StorySnapshot:
    """Return a story before its start, from its entry in the plan and the options of its run."""
    depends_on = tuple(StoryId(item) for item in entry["depends_on"])
    return StorySnapshot(
        id=StoryId(entry["id"]),
        title=entry["title"],
        status=Status.WAITING if depends_on else Status.QUEUED,
        depends_on=depends_on,
        repo=entry.get("repo", HOME),
        flow=entry.get("flow", "quick"),
        allow_no_change=entry.get("allow_no_change", False),
        estimate=entry.get("estimate"),
        max_attempts=entry.get("max_attempts") or options.get("max_attempts") or DEFAULT_ATTEMPTS,
    )


def _with_digests(run: RunSnapshot, new: Mapping[str, str]) -> RunSnapshot:
    before = run.options.get(DIGESTS)
    digests = {**(before if isinstance(before, Mapping) else {}), **new}
    return replace(run, options={**run.options, DIGESTS: digests})


def _edited(run: RunSnapshot, body: steering.StoryEdited) -> RunSnapshot:
    story = run.stories.get(body.story_id)
    if story is None:
        return run
    edited = replace(story, title=str(body.story.get("title") or story.title))
    known = _with_digests(run, {body.story_id: body.digest})
    return replace(known, stories={**run.stories, story.id: edited})


def _retried(run: RunSnapshot, body: steering.StoryRetried) -> RunSnapshot:
    story = run.stories.get(body.story_id)
    if story is None:
        return run
    again = _from_the_base(story) if body.fresh else _with_new_attempts(story, noted=bool(body.note))
    again = replace(again, step_history=replace(again.step_history, note=body.note))
    unblocked = (run.stories[StoryId(name)] for name in body.unblocked if name in run.stories)
    changed = {each.id: requeued(each) for each in (again, *unblocked)}
    return replace(run, stories={**run.stories, **changed})


def _with_new_attempts(story: StorySnapshot, *, noted: bool) -> StorySnapshot:
    """Return the story with a new set of attempts; one that was stopped continues where it was.

    A note is for a session to read, so there is one in any case.
    """
    if story.status is not Status.STOPPED:
        return without_conversation(tried_again(story))
    return step_again(story) if noted else story


def _from_the_base(story: StorySnapshot) -> StorySnapshot:
    """Return the story as if it had not begun; what its sessions have spent stays known."""
    sessions = len(story.sessions)
    return StorySnapshot(
        id=story.id,
        title=story.title,
        status=story.status,
        depends_on=story.depends_on,
        repo=story.repo,
        flow=story.flow,
        allow_no_change=story.allow_no_change,
        estimate=story.estimate,
        max_attempts=story.max_attempts,
        memories=story.memories,
        decided=story.decided,
        waits=story.waits,
        sessions=story.sessions,
        before_candidate=sessions,
        started_at=story.started_at,
        ended_at=story.ended_at,
        waited=story.waited,
        running_since=story.running_since,
    )
