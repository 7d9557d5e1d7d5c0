"""The one fold from events to state: dashboard, `status`, `resume` and the report all use it.

Events of different stories commute; within one story their order is the journal's.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from runner.core.events import agents as ag
from runner.core.events import base as base_events
from runner.core.events import events as ev
from runner.core.events import landing as ld
from runner.core.events import steering
from runner.core.events.folds.landing_fold import landings_after
from runner.core.events.folds.left_out_fold import after_landing
from runner.core.events.folds.steering_fold import planned_story, steered
from runner.core.events.folds.story_fold import requeued, story_after, tried_again, without_conversation
from runner.core.limits.kill_switches import ORDERLY, Switch
from runner.core.model import (
    KillSwitch,
    Note,
    RunId,
    RunSnapshot,
    Status,
    StoryId,
    StorySnapshot,
    Tier,
)
from runner.core.progress.base import BaseCheck
from runner.core.progress.repositories import HOME, repositories_of

EXIT_DONE, EXIT_USER_ERROR, EXIT_SYSTEM, EXIT_UNPRODUCTIVE, EXIT_SOME_FAILED, EXIT_WAITING = range(6)

_OF_THE_RUN = {
    *(ev.RunStarted, ev.RunResumed, ev.RunEnded, ev.AdmissionEnded, ev.WindowChanged, ev.Noted),
    *(base_events.BaseCheckStarted, base_events.BaseChecked, base_events.BaseFollowed),
    *(ld.LandingPlanned, ld.BatchStarted, ld.BatchEnded, ld.MergeConflicted, ld.TrainRebuilt),
    *(ld.LandingVerified, ld.Landed, ld.LandingEnded, ld.StoryNotLanded, ld.LandingAbandoned),
    *(ld.LandingRetryPlanned, ld.LandingUndoPlanned, ld.LandingUndone, ld.ConflictsForeseen),
    *(ld.StoryRestackPlanned, ld.StoryRestacked, ld.StoryNotRestacked),
    *(steering.RequestAnswered, steering.AdmissionPaused, steering.AdmissionContinued),
    *(steering.StoriesAdded, steering.StoryEdited, steering.StoryRetried),
    ag.AgentPaused,  # a story's, but a limit is the run's
}


def fold(run_id: RunId, events: Iterable[ev.Event]) -> RunSnapshot:
    """Fold a run's events, oldest first, into its snapshot.

    The same as `apply` for each, but without a new run snapshot for every event of a story.
    """
    snapshot = RunSnapshot(run_id=run_id, started_at=0.0)
    stories: dict[StoryId, StorySnapshot] = {}
    spirals = 0
    for event in events:
        body = event.body
        # Looked up: `isinstance` would ask all of these classes, which takes longer than what follows.
        if type(body) in _OF_THE_RUN:
            before = replace(snapshot, stories=stories, cohort_spirals=spirals)
            snapshot = apply(before, event)
            stories, spirals = dict(snapshot.stories), snapshot.cohort_spirals
        elif (name := ev.story_of(body)) is not None and (story := stories.get(name)) is not None:
            stories[story.id] = story_after(story, body, event.at)
            spirals += isinstance(body, ev.SpiralSeen)
    return replace(snapshot, stories=stories, cohort_spirals=spirals)


def apply(run: RunSnapshot, event: ev.Event) -> RunSnapshot:  # noqa: C901, PLR0911  one arm per event
    """Return the snapshot after one more event."""
    body = event.body
    if isinstance(body, ld.LandingBody):
        after = after_landing(run, body)
        return replace(after, landings=landings_after(run.landings, body, event.at))
    if isinstance(body, steering.SteeringBody):
        return steered(run, body)
    match body:
        case ev.RunStarted():
            return _started(run, body, event.at)
        case ev.RunResumed():
            return _resumed(run, body)
        case ev.RunEnded():
            return replace(run, ended_at=event.at, exit_code=body.exit_code)
        case ev.AdmissionEnded():
            switch = KillSwitch(name=body.name, detail=body.detail, hint=body.hint)
            return replace(run, kill_switch=run.kill_switch or switch)
        case ev.WindowChanged():
            return replace(run, window=body.window, tier=Tier(body.tier), tier_reason=body.reason)
        case ev.Noted():
            note = Note(at=event.at, story_id=body.story_id, message=body.message)
            return replace(run, notes=(*run.notes, note))
        case base_events.BaseCheckStarted() | base_events.BaseChecked():
            return replace(run, base_checks=_base_checks_after(run.base_checks, body, event.at))
        case base_events.BaseFollowed():
            return _followed(run, body)
        case _:
            story = run.stories.get(body.story_id)
            if story is None:
                return run
            spirals = run.cohort_spirals + isinstance(body, ev.SpiralSeen)
            stories = {**run.stories, story.id: story_after(story, body, event.at)}
            pauses = _pauses_after(run.pauses, body) if isinstance(body, ag.AgentPaused) else run.pauses
            return replace(run, stories=stories, cohort_spirals=spirals, pauses=pauses)


def _pauses_after(pauses: Mapping[str, float], body: ag.AgentPaused) -> Mapping[str, float]:
    """Return until when agents are at their limit; a pause is never shortened."""
    if not body.everyone:
        return pauses
    return {**pauses, body.agent: max(body.until, pauses.get(body.agent, 0.0))}


def _base_checks_after(
    checks: tuple[BaseCheck, ...], body: base_events.BaseCheckStarted | base_events.BaseChecked, at: float
) -> tuple[BaseCheck, ...]:
    """Return what is known of the bases; a command that is asked again replaces its earlier answer."""
    asked = (body.repo, body.command)
    began = next((check for check in checks if (check.repo, check.command) == asked), None)
    others = tuple(check for check in checks if check is not began)
    new = BaseCheck(command=body.command, shared=body.shared, started_at=at, repo=body.repo)
    if isinstance(body, base_events.BaseCheckStarted):
        return *others, replace(new, log=body.log)
    began = began or new
    answered = replace(
        began,
        ended_at=at,
        answer=body.answer,
        exit_code=body.exit_code,
        detail=body.detail,
        output=body.output,
        known=body.known,
    )
    return *others, answered


def _followed(run: RunSnapshot, body: base_events.BaseFollowed) -> RunSnapshot:
    """Return the run with the newer base of a repository."""
    known = run.repos.get(body.repo)
    repos = run.repos if known is None else {**run.repos, body.repo: replace(known, followed=body.base)}
    return replace(run, repos=repos, followed=body.base if body.repo == HOME else run.followed)


def exit_code(run: RunSnapshot) -> int:
    """Return the exit code of a finished run, unless a signal ended it."""
    statuses = [_counted(story) for story in run.stories.values() if not _held_back(run, story)]
    if run.kill_switch is not None:
        return EXIT_USER_ERROR if run.kill_switch.name == Switch.BASE else EXIT_SYSTEM
    if any(status in {Status.FAILED, Status.SKIPPED} for status in statuses):
        return EXIT_SOME_FAILED if Status.DONE in statuses else EXIT_UNPRODUCTIVE
    if Status.PARKED in statuses:
        return EXIT_WAITING
    if Status.STOPPED in statuses:
        return EXIT_WAITING if _ended_orderly(run) else EXIT_SYSTEM
    if statuses and Status.DONE not in statuses:
        return EXIT_UNPRODUCTIVE
    return EXIT_SOME_FAILED if Status.NO_WORK in statuses else EXIT_DONE


def _ended_orderly(run: RunSnapshot) -> bool:
    """Whether every stopped story reached a limit that is no error, so that it only waits for a resume."""
    stopped = (story for story in run.stories.values() if story.status is Status.STOPPED)
    return all(story.kill_switch is not None and story.kill_switch.name in ORDERLY for story in stopped)


def _counted(story: StorySnapshot) -> Status:
    """Return the status that counts for the exit code: no change is a success where the story says so."""
    fine = story.status is Status.NO_WORK and story.allow_no_change
    return Status.DONE if fine else story.status


def _started(run: RunSnapshot, body: ev.RunStarted, at: float) -> RunSnapshot:
    stories = {StoryId(entry["id"]): planned_story(entry, body.options) for entry in body.stories}
    return replace(
        run,
        started_at=at,
        base=body.base,
        isolation=body.isolation,
        enforcement=body.enforcement,
        max_stories=body.max_stories,
        window=body.max_stories,
        options=body.options,
        stories=stories,
        repos=repositories_of(body.repos),
    )


def _resumed(run: RunSnapshot, body: ev.RunResumed) -> RunSnapshot:
    stories = dict(run.stories)
    for name in body.requeued:
        story = stories.get(StoryId(name))
        if story is None:
            continue
        # A story that had used up its attempts gets a new set; an interrupted one keeps its progress.
        again = without_conversation(tried_again(story)) if story.status is Status.FAILED else story
        stories[story.id] = requeued(again)
    # A resume of an ended run starts the count over; one after a crash does not.
    spirals = 0 if run.ended else run.cohort_spirals
    return replace(
        run,
        stories=stories,
        ended_at=None,
        exit_code=None,
        kill_switch=None,
        cohort_spirals=spirals,
        paused=False,
    )


def _held_back(run: RunSnapshot, story: StorySnapshot) -> bool:
    """Return whether a skipped story only waits for stories that may still continue, so it has not failed."""
    if story.status is not Status.SKIPPED or not story.blocked_by:
        return False
    blockers = [run.stories[name] for name in story.blocked_by if name in run.stories]
    return all(
        blocker.status in {Status.PARKED, Status.STOPPED} or _held_back(run, blocker) for blocker in blockers
    )
