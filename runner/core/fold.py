"""The one fold from events to state: dashboard, `status`, `resume` and the report all use it.

Events of different stories commute; within one story their order is the journal's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

from runner.core import events as ev
from runner.core.model import (
    MAX_RETRIES,
    Decision,
    KillSwitch,
    Memory,
    Note,
    Outcome,
    RunId,
    RunSnapshot,
    SessionKind,
    SessionRecord,
    Status,
    Step,
    StoryId,
    StorySnapshot,
    Tier,
    Usage,
)

EXIT_DONE, EXIT_USER_ERROR, EXIT_SYSTEM, EXIT_UNPRODUCTIVE, EXIT_SOME_FAILED, EXIT_DECISIONS = range(6)


_Guiding: TypeAlias = (
    ev.PlaceFound
    | ev.StepFinished
    | ev.DecisionAsked
    | ev.DecisionAnswered
    | ev.DecisionApplied
    | ev.StoryRequeued
    | ev.Remembered
)


def fold(run_id: RunId, events: Iterable[ev.Event]) -> RunSnapshot:
    """Fold a run's events, oldest first, into its snapshot."""
    snapshot = RunSnapshot(run_id=run_id, started_at=0.0)
    for event in events:
        snapshot = apply(snapshot, event)
    return snapshot


def apply(run: RunSnapshot, event: ev.Event) -> RunSnapshot:  # noqa: PLR0911  one arm an event
    """Give the snapshot after one more event."""
    body = event.body
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
        case _:
            story = run.stories.get(body.story_id)
            if story is None:
                return run
            return replace(run, stories={**run.stories, story.id: _story(story, body, event.at)})


def exit_code(run: RunSnapshot) -> int:
    """Give the exit code that a finished run deserves; signals are the command line's matter."""
    statuses = [story.status for story in run.stories.values() if not _held_back(run, story)]
    if run.kill_switch is not None:
        return EXIT_SYSTEM
    if any(status in {Status.FAILED, Status.SKIPPED} for status in statuses):
        return EXIT_SOME_FAILED if Status.DONE in statuses else EXIT_UNPRODUCTIVE
    if Status.PARKED in statuses:
        return EXIT_DECISIONS
    if Status.STOPPED in statuses:
        return EXIT_SYSTEM
    if statuses and Status.DONE not in statuses:
        return EXIT_UNPRODUCTIVE
    return EXIT_DONE


def _started(run: RunSnapshot, body: ev.RunStarted, at: float) -> RunSnapshot:
    stories = {}
    for entry in body.stories:
        depends_on = tuple(StoryId(item) for item in entry["depends_on"])
        stories[StoryId(entry["id"])] = StorySnapshot(
            id=StoryId(entry["id"]),
            title=entry["title"],
            status=Status.WAITING if depends_on else Status.QUEUED,
            depends_on=depends_on,
            flow=entry.get("flow", "quick"),
        )
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
    )


def _resumed(run: RunSnapshot, body: ev.RunResumed) -> RunSnapshot:
    stories = dict(run.stories)
    for name in body.requeued:
        story = stories.get(StoryId(name))
        if story is None:
            continue
        # A story that had spent its attempts gets a new set; an interrupted one keeps its place.
        stories[story.id] = _requeued(_afresh(story) if story.status is Status.FAILED else story)
    return replace(run, stories=stories, ended_at=None, exit_code=None, kill_switch=None)


def _story(story: StorySnapshot, body: ev.Body, at: float) -> StorySnapshot:  # noqa: C901, PLR0911, PLR0912  one arm an event
    match body:
        case ev.StoryQueued():
            return replace(story, status=Status.QUEUED)
        case ev.StoryStarted():
            return replace(
                story,
                status=Status.RUNNING,
                started_at=story.started_at or at,
                attempt=max(1, story.attempt),
            )
        case ev.WorkspacePlanned():
            return replace(story, branch=body.branch, workspace=body.path, torn=True)
        case ev.WorkspaceOpened():
            return replace(
                story, branch=body.branch, workspace=body.path, base=story.base or body.base, torn=False
            )
        case ev.WorkspaceClosed():
            return replace(story, workspace=None if body.removed else story.workspace)
        case ev.SessionStarted():
            return _session_started(story, body, at)
        case ev.SessionEnded():
            return _session_ended(story, body, at)
        case ev.CheckpointPlanned():
            return replace(story, checkpoint_planned_at=at)
        case ev.Checkpointed():
            return _checkpointed(story, body)
        case ev.AttemptFailed():
            return _attempt_failed(story, body)
        case ev.StoryFinished():
            return _finished(story, body, at)
        case (
            ev.PlaceFound()
            | ev.StepFinished()
            | ev.DecisionAsked()
            | ev.DecisionAnswered()
            | ev.DecisionApplied()
            | ev.StoryRequeued()
            | ev.Remembered()
        ):
            return _guided(story, body, at)
        case ev.OutputSeen():
            return replace(story, last_line=body.line)
        case (
            ev.RunStarted()
            | ev.RunResumed()
            | ev.RunEnded()
            | ev.AdmissionEnded()
            | ev.WindowChanged()
            | ev.Noted()
        ):
            return story
        case _:
            assert_never(body)


def _guided(story: StorySnapshot, body: _Guiding, at: float) -> StorySnapshot:  # noqa: PLR0911  one arm an event
    """Follow what a flow and a person do to a story."""
    match body:
        case ev.PlaceFound():
            place = Step(number=body.step_number, name=body.step_name)
            return replace(story, place=place, step=place, placed=True, confidence=body.confidence)
        case ev.StepFinished():
            return _step_finished(story, body)
        case ev.DecisionAsked():
            asked = Decision(id=body.decision_id, question=body.question, asked_at=at)
            return replace(story, decision=asked)
        case ev.DecisionAnswered():
            return _answered(story, body)
        case ev.DecisionApplied():
            return _applied(story, body)
        case ev.StoryRequeued():
            return _requeued(story)
        case ev.Remembered():
            memory = Memory(at=at, topic=body.topic, text=body.text)
            return replace(story, memories=(*story.memories, memory))
        case _:
            assert_never(body)


def _checkpointed(story: StorySnapshot, body: ev.Checkpointed) -> StorySnapshot:
    return replace(
        story,
        commit=body.commit,
        commits=body.commits,
        checkpointed=True,
        checkpoint_planned_at=None,
    )


def _attempt_failed(story: StorySnapshot, body: ev.AttemptFailed) -> StorySnapshot:
    return replace(_afresh(story), attempt=body.attempt + 1, last_failure=body.output, reason=body.reason)


def _session_started(story: StorySnapshot, body: ev.SessionStarted, at: float) -> StorySnapshot:
    step = Step(number=body.step_number, name=body.step_name)
    session = SessionRecord(
        id=body.session_id,
        kind=SessionKind(body.kind),
        step=step,
        attempt=body.attempt,
        started_at=at,
        log=body.log,
        agent=body.agent,
        agents_per_wave=body.agents_per_wave,
    )
    checkpointed = story.checkpointed and session.kind is SessionKind.VERIFY
    return replace(
        story, step=step, sessions=(*story.sessions, session), last_line="", checkpointed=checkpointed
    )


def _session_ended(story: StorySnapshot, body: ev.SessionEnded, at: float) -> StorySnapshot:
    outcome = Outcome(body.outcome)
    sessions = tuple(
        replace(
            session,
            ended_at=at,
            outcome=outcome,
            exit_code=body.exit_code,
            detail=body.detail,
            reported=body.reported,
            usage=Usage(
                input_tokens=body.input_tokens, output_tokens=body.output_tokens, cost_usd=body.cost_usd
            ),
            summary=body.summary,
            effectiveness=body.effectiveness,
        )
        if session.id == body.session_id
        else session
        for session in story.sessions
    )
    kinds = {session.kind for session in story.sessions if session.id == body.session_id}
    worked, well = SessionKind.WORK in kinds, outcome is Outcome.OK
    return replace(
        story,
        sessions=sessions,
        implemented=story.implemented or (worked and well),
        verified=story.verified + (1 if well and not worked else 0),
        session_limit_used=story.session_limit_used + (1 if worked else 0),
        last_line=body.last_line or story.last_line,
    )


def _requeued(story: StorySnapshot) -> StorySnapshot:
    return replace(
        story,
        status=Status.WAITING if story.depends_on else Status.QUEUED,
        reason="",
        next="",
        ended_at=None,
        kill_switch=None,
        blocked_by=(),
        session_limit_used=0,
    )


def _afresh(story: StorySnapshot) -> StorySnapshot:
    """Give the current step its attempts anew."""
    return replace(
        story,
        attempt=1 if story.attempt else 0,
        implemented=False,
        checkpointed=False,
        verified=0,
        checkpoint_planned_at=None,
    )


def _step_finished(story: StorySnapshot, body: ev.StepFinished) -> StorySnapshot:
    place = Step(number=body.next_number, name=body.next_name)
    passed = (body.step_number,)
    return replace(
        _afresh(story),
        place=place,
        step=place,
        session_limit_used=0,
        last_failure="",
        reason="",
        finished_steps=story.finished_steps + (() if body.skipped else passed),
        skipped_steps=story.skipped_steps + (passed if body.skipped else ()),
    )


def _answered(story: StorySnapshot, body: ev.DecisionAnswered) -> StorySnapshot:
    open_ = story.decision
    if open_ is None or open_.id != body.decision_id or open_.letter:
        return story  # an answer counts once
    return replace(story, decision=replace(open_, letter=body.letter, by=body.by))


def _applied(story: StorySnapshot, body: ev.DecisionApplied) -> StorySnapshot:
    acted = story.decision
    if acted is None or acted.id != body.decision_id:
        return story
    story = _afresh(story) if body.retry else story
    return replace(story, decision=None, decided=(*story.decided, acted))


def _finished(story: StorySnapshot, body: ev.StoryFinished, at: float) -> StorySnapshot:
    return replace(
        story,
        status=Status(body.verdict),
        branch=story.branch or body.branch,
        workspace=None if story.torn else story.workspace,
        torn=False,
        reason=body.reason,
        next=body.next,
        ended_at=at,
        attempt=min(story.attempt, MAX_RETRIES + 1),
        commit=body.commit or story.commit,
        commits=body.commits or story.commits,
        kill_switch=_switch(body.kill_switch),
        blocked_by=tuple(StoryId(name) for name in body.blocked_by),
    )


def _switch(fields: Mapping[str, str] | None) -> KillSwitch | None:
    if not fields:
        return None
    return KillSwitch(name=fields["name"], detail=fields.get("detail", ""), hint=fields.get("hint", ""))


def _held_back(run: RunSnapshot, story: StorySnapshot) -> bool:
    """Tell whether a skipped story only waits for others that may still go on, so that it is no failure."""
    if story.status is not Status.SKIPPED or not story.blocked_by:
        return False
    blockers = [run.stories[name] for name in story.blocked_by if name in run.stories]
    return all(
        blocker.status in {Status.PARKED, Status.STOPPED} or _held_back(run, blocker) for blocker in blockers
    )
