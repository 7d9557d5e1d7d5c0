"""What events do to one story: the part of the fold that knows nothing of the run around it."""

from collections.abc import Mapping
from typing import TypeAlias, assert_never

from msgspec.structs import replace

from runner.core.events import events as ev
from runner.core.limits.spiral import failure_digest
from runner.core.model import (
    MAX_RETRIES,
    Conversation,
    Decision,
    KillSwitch,
    Memory,
    Outcome,
    SessionKind,
    SessionRecord,
    Status,
    Step,
    StoryId,
    StorySnapshot,
    Usage,
)
from runner.core.text.instants import clock

_Guiding: TypeAlias = (
    ev.PlaceFound
    | ev.StepFinished
    | ev.DecisionAsked
    | ev.DecisionAnswered
    | ev.DecisionApplied
    | ev.StoryRequeued
    | ev.Remembered
)


def story_after(story: StorySnapshot, body: ev.Body, at: float) -> StorySnapshot:  # noqa: C901, PLR0911, PLR0912  one arm an event
    """Give the story after one of its events; those of the run leave it as it is."""
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
            return replace(story, branch=body.branch, workspace=body.path, opening=True)
        case ev.WorkspaceOpened():
            return _workspace_opened(story, body)
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
        case ev.SpiralSeen() | ev.StallSeen() | ev.SelectionMade() | ev.LoopEnded():
            return _looped(story, body)
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
            return replace(story, last_line=body.line, tools=max(story.tools, body.tools))
        case ev.ConversationSeen() | ev.AgentPaused() | ev.AgentRefused():
            return _with_agent(story, body, at)
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
            return requeued(story)
        case ev.Remembered():
            memory = Memory(at=at, topic=body.topic, text=body.text)
            return replace(story, memories=(*story.memories, memory))
        case _:
            assert_never(body)


def _looped(
    story: StorySnapshot, body: ev.SpiralSeen | ev.StallSeen | ev.SelectionMade | ev.LoopEnded
) -> StorySnapshot:
    """Follow what the loop found out about a story's sessions."""
    match body:
        case ev.SpiralSeen():
            spirals = story.spirals + 1
            if not body.retries:
                return replace(story, spirals=spirals)
            words = f"The session before this one went round in circles: {body.reason}. Take another way."
            told = f"{words}\n\n{story.last_failure}".rstrip()
            again = replace(afresh(story), attempt=story.attempt, last_failure=told, reason=body.reason)
            return replace(again, spirals=spirals, failures=(), checkpoints=(), conversation=None)
        case ev.StallSeen():
            return replace(story, stalls=story.stalls + 1)
        case ev.SelectionMade():
            return replace(story, mode=body.mode, confidence=body.confidence)
        case ev.LoopEnded():
            ending = KillSwitch(name=body.name, detail=body.detail, hint=body.hint)
            return replace(story, ending=ending, implemented=False)
        case _:
            assert_never(body)


def _workspace_opened(story: StorySnapshot, body: ev.WorkspaceOpened) -> StorySnapshot:
    return replace(
        story,
        branch=body.branch,
        workspace=body.path,
        base=story.base or body.base,
        head=story.head or body.head,
        opening=False,
    )


def _checkpointed(story: StorySnapshot, body: ev.Checkpointed) -> StorySnapshot:
    *before, newest = story.sessions or (None,)
    # A checkpoint follows the session whose work it holds, before any other starts.
    held = () if newest is None else (*before, replace(newest, files_changed=body.files))
    return replace(
        story,
        sessions=held,
        checkpoints=(*story.checkpoints, body.commit),
        commit=body.commit,
        commits=body.commits,
        checkpointed=True,
        checkpoint_planned_at=None,
    )


def _attempt_failed(story: StorySnapshot, body: ev.AttemptFailed) -> StorySnapshot:
    return replace(
        afresh(story),
        attempt=body.attempt + 1,
        last_failure=body.output,
        reason=body.reason,
        failures=(*story.failures, failure_digest(body.reason, body.output)),
    )


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
        conversation=body.conversation,
    )
    works = session.kind is SessionKind.WORK
    named = Conversation(id=body.conversation, agent=body.agent) if body.conversation else None
    return replace(
        story,
        step=step,
        sessions=(*story.sessions, session),
        last_line="",
        tools=0,
        conversation=named if works else story.conversation,
        checkpointed=story.checkpointed and not works,
        settled=story.settled and not works,
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
                input_tokens=body.input_tokens,
                output_tokens=body.output_tokens,
                cost_usd=body.cost_usd,
                cached_tokens=body.cached_tokens,
                estimated=body.cost_estimated,
            ),
            summary=body.summary,
            effectiveness=body.effectiveness,
            peak_memory=body.peak_memory,
            total_waves=body.total_waves,
            waves=body.waves,
            tools=body.tools,
        )
        if session.id == body.session_id
        else session
        for session in story.sessions
    )
    kinds = {session.kind for session in story.sessions if session.id == body.session_id}
    worked, well = SessionKind.WORK in kinds, outcome is Outcome.OK
    served = outcome in {Outcome.OK, Outcome.PARTIAL, Outcome.ASKS}
    # One that got nowhere would only go on getting nowhere.
    lost = worked and outcome in {Outcome.STUCK, Outcome.STALLED}
    return replace(
        story,
        conversation=None if lost else story.conversation,
        outages=0 if worked and served else story.outages,
        outage_since=None if worked and served else story.outage_since,
        sessions=sessions,
        implemented=story.implemented or (worked and well),
        verified=story.verified + (1 if well and not worked else 0),
        session_limit_used=story.session_limit_used + (1 if worked else 0),
        loop_sessions=story.loop_sessions + (1 if worked else 0),
        last_line=body.last_line or story.last_line,
    )


def requeued(story: StorySnapshot) -> StorySnapshot:
    """Let a story go on, with a new loop."""
    return replace(
        story,
        status=Status.WAITING if story.depends_on else Status.QUEUED,
        reason="",
        next="",
        ended_at=None,
        kill_switch=None,
        blocked_by=(),
        session_limit_used=0,
        loop_sessions=0,
        # What a crash cut off ends as it was about to; a verdict is lifted by whoever resumes.
        ending=None if story.status.final else story.ending,
        refusal=None if story.status.final else story.refusal,
    )


def afresh(story: StorySnapshot) -> StorySnapshot:
    """Give the current step its attempts anew."""
    return replace(
        story,
        attempt=1 if story.attempt else 0,
        implemented=False,
        checkpointed=False,
        verified=0,
        checkpoint_planned_at=None,
        outages=0,
        outage_since=None,
        resume_at=0.0,
    )


def _step_finished(story: StorySnapshot, body: ev.StepFinished) -> StorySnapshot:
    place = Step(number=body.next_number, name=body.next_name)
    passed = (body.step_number,)
    return replace(
        afresh(story),
        place=place,
        step=place,
        session_limit_used=0,
        last_failure="",
        reason="",
        failures=(),
        checkpoints=(),
        conversation=None,
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
    story = afresh(story) if body.retry else story
    if acted.question.get("kind") == "confidence":
        story = replace(story, confidence=1.0, settled=True)
    return replace(story, decision=None, decided=(*story.decided, acted))


def _finished(story: StorySnapshot, body: ev.StoryFinished, at: float) -> StorySnapshot:
    return replace(
        story,
        status=Status(body.verdict),
        branch=story.branch or body.branch,
        workspace=None if story.opening else story.workspace,
        opening=False,
        reason=body.reason,
        next=body.next,
        ended_at=at,
        attempt=min(story.attempt, MAX_RETRIES + 1),
        commit=body.commit or story.commit,
        commits=body.commits or story.commits,
        kill_switch=_switch(body.kill_switch),
        ending=None,
        blocked_by=tuple(StoryId(name) for name in body.blocked_by),
    )


def _switch(fields: Mapping[str, str] | None) -> KillSwitch | None:
    if not fields:
        return None
    return KillSwitch(name=fields["name"], detail=fields.get("detail", ""), hint=fields.get("hint", ""))


def _with_agent(
    story: StorySnapshot, body: ev.ConversationSeen | ev.AgentPaused | ev.AgentRefused, at: float
) -> StorySnapshot:
    """Give the story after one of these."""
    match body:
        case ev.ConversationSeen():
            return _named(story, body)
        case ev.AgentPaused():
            return replace(
                story,
                outages=story.outages + 1,
                outage_since=at if story.outage_since is None else story.outage_since,
                resume_at=body.until,
                reason=body.reason,
                last_line=f"waits for {body.agent} until {clock(body.until)}: {body.reason}",
                # The session had no chance, so it is not one of those that the step may have.
                session_limit_used=max(0, story.session_limit_used - 1),
                conversation=None if body.fresh else story.conversation,
            )
        case ev.AgentRefused():
            return replace(story, refusal=(f"{body.agent}: {body.reason}", body.hint))


def _named(story: StorySnapshot, body: ev.ConversationSeen) -> StorySnapshot:
    sessions = tuple(
        replace(session, conversation=body.conversation) if session.id == body.session_id else session
        for session in story.sessions
    )
    agent = next((session.agent for session in sessions if session.id == body.session_id), "")
    return replace(story, sessions=sessions, conversation=Conversation(id=body.conversation, agent=agent))
