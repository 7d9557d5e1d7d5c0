"""What events do to one story: the part of the fold that knows nothing of the run around it."""

from collections.abc import Mapping
from typing import TypeAlias, assert_never

from msgspec.structs import replace

from runner.core.events import agents as ag
from runner.core.events import base as base_events
from runner.core.events import candidates as cd
from runner.core.events import cluster, steering
from runner.core.events import drafts as df
from runner.core.events import events as ev
from runner.core.events import landing as ld
from runner.core.events import work_items as wi
from runner.core.events.folds.agent_fold import after_wait, with_agent
from runner.core.events.folds.candidate_fold import after_candidate
from runner.core.events.folds.cluster_fold import after_placing
from runner.core.events.folds.draft_fold import last_conversation, with_draft
from runner.core.events.folds.workspace_fold import without_path, workspace_at_the_end, workspace_opened
from runner.core.limits.context_zone import Zone
from runner.core.limits.kill_switches import TAKEN_OVER
from runner.core.limits.spiral import failure_digest
from runner.core.model import (
    IMPLEMENT,
    Conversation,
    Decision,
    KillSwitch,
    Memory,
    Outage,
    Outcome,
    SessionKind,
    SessionRecord,
    Status,
    Step,
    StepHistory,
    StepProgress,
    StoryId,
    StorySnapshot,
    Usage,
)

HANDED_BACK = "I have worked on this myself since your last session. Look at what changed, then continue."

_Directing: TypeAlias = (
    ev.PlaceFound
    | ev.StepFinished
    | ev.DecisionAsked
    | ev.DecisionAnswered
    | ev.DecisionApplied
    | ev.StoryRequeued
    | ev.Remembered
)


_OfSeveral: TypeAlias = ld.LandingBody | base_events.BaseBody | steering.SteeringBody
_OfAPart: TypeAlias = cd.CandidateBody | df.DraftBody | cluster.ClusterBody | ag.AgentBody | wi.WorkItemBody


def story_after(story: StorySnapshot, body: ev.Body, at: float) -> StorySnapshot:  # noqa: C901, PLR0911, PLR0912  one arm per event
    """Return the story after one of its events; events of the run leave it as it is."""
    match body:
        case ev.StoryQueued():
            return replace(story, status=Status.QUEUED)
        case ev.StoryStarted():
            return _story_started(story, at)
        case ev.WorkspacePlanned():
            planned = replace(story.workspace, branch=body.branch, path=body.path, opening=True)
            return replace(story, workspace=planned)
        case ev.WorkspaceOpened():
            return workspace_opened(story, body)
        case ev.WorkspaceClosed():
            return without_path(story) if body.removed else story
        case ev.SessionStarted():
            return _session_started(story, body, at)
        case ev.SessionEnded():
            return _session_ended(story, body, at)
        case ev.CheckpointPlanned():
            return replace(story, progress=replace(story.progress, checkpoint_planned_at=at))
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
            return _directed(story, body, at)
        case ev.OutputSeen():
            return replace(story, last_line=body.line, tools=max(story.tools, body.tools), zone=body.zone)
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
            # Last, since most events are those above and a union is slow to ask.
            return _after_part(story, body, at)


def _after_part(story: StorySnapshot, body: _OfAPart | _OfSeveral, at: float) -> StorySnapshot:
    """Return the story after an event of a part that has its own module of events."""
    if isinstance(body, _OfSeveral):
        return story  # they concern several stories, so the fold of the run applies them
    if isinstance(body, cd.CandidateBody):
        return after_candidate(story, body)
    if isinstance(body, df.DraftBody):
        known = with_draft(story, body)
        return _reviewed(known) if isinstance(body, df.ReviewTaken) else known
    if isinstance(body, cluster.ClusterBody):
        return after_placing(story, body)
    if isinstance(body, ag.AgentBody):
        return with_agent(story, body, at)
    item = body.item if isinstance(body, wi.WorkItemKept) else story.work_items.get(body.marker, "")
    return replace(story, work_items={**story.work_items, body.marker: item})


def _directed(story: StorySnapshot, body: _Directing, at: float) -> StorySnapshot:  # noqa: PLR0911  one arm per event
    """Apply what a flow and the user do to a story."""
    match body:
        case ev.PlaceFound():
            return _placed(story, body)
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


def _placed(story: StorySnapshot, body: ev.PlaceFound) -> StorySnapshot:
    place = Step(number=body.step_number, name=body.step_name)
    progress = story.progress
    if body.retries is not None:
        counted = min(1 + body.retries, story.max_attempts)  # one attempt is left in any case
        progress = replace(progress, attempt=max(progress.attempt, counted))
    return replace(
        story,
        place=place,
        step=place,
        placed=True,
        confidence=body.confidence,
        docs=body.docs or story.docs,
        cycle=story.cycle if body.cycle is None else body.cycle,
        finished_steps=tuple(one for one in story.finished_steps if one not in body.again),
        skipped_steps=tuple(one for one in story.skipped_steps if one not in body.again),
        progress=progress,
    )


def _looped(
    story: StorySnapshot, body: ev.SpiralSeen | ev.StallSeen | ev.SelectionMade | ev.LoopEnded
) -> StorySnapshot:
    """Apply what the loop found out about a story's sessions."""
    match body:
        case ev.SpiralSeen():
            spirals = story.spirals + 1
            if not body.retries:
                return replace(story, spirals=spirals)
            words = (
                f"The previous session repeated itself without progress: {body.reason}. Try another approach."
            )
            before = story.step_history
            history = StepHistory(
                sessions=before.sessions, last_failure=f"{words}\n\n{before.last_failure}".rstrip()
            )
            again = step_again(story, attempt=story.progress.attempt)
            return replace(again, spirals=spirals, reason=body.reason, step_history=history)
        case ev.StallSeen():
            return replace(story, stalls=story.stalls + 1)
        case ev.SelectionMade():
            return replace(story, mode=body.mode, confidence=body.confidence, selected=body.confidence)
        case ev.LoopEnded():
            ending = KillSwitch(name=body.name, detail=body.detail, hint=body.hint)
            return replace(story, ending=ending, progress=replace(story.progress, implemented=False))
        case _:
            assert_never(body)


def _story_started(story: StorySnapshot, at: float) -> StorySnapshot:
    return replace(
        after_wait(story, at),
        status=Status.RUNNING,
        started_at=story.started_at or at,
        running_since=at,
        progress=replace(story.progress, attempt=max(1, story.progress.attempt)),
    )


def _checkpointed(story: StorySnapshot, body: ev.Checkpointed) -> StorySnapshot:
    *before, newest = story.sessions or (None,)
    # A checkpoint follows the session whose work it holds, before any other starts.
    held = () if newest is None else (*before, replace(newest, files_changed=body.files))
    return replace(
        story,
        sessions=held,
        workspace=replace(
            story.workspace,
            commit=body.commit,
            commits=body.commits,
            unchanged=body.unchanged,
            markers=body.markers,
        ),
        progress=replace(story.progress, checkpointed=True, checkpoint_planned_at=None),
        step_history=replace(story.step_history, checkpoints=(*story.step_history.checkpoints, body.commit)),
    )


def _attempt_failed(story: StorySnapshot, body: ev.AttemptFailed) -> StorySnapshot:
    before = without_conversation(story) if body.fresh else story
    history = replace(
        before.step_history,
        last_failure=body.output,
        failures=(*story.step_history.failures, failure_digest(body.reason, body.output)),
    )
    return replace(step_again(story, attempt=body.attempt + 1), reason=body.reason, step_history=history)


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
        model=body.model,
        mode=body.mode,
        escalated=body.escalated,
        agents_per_wave=body.agents_per_wave,
        conversation=body.conversation,
        selected=body.selected,
    )
    story = replace(
        after_wait(story, at), step=step, sessions=(*story.sessions, session), last_line="", tools=0, zone=""
    )
    if session.kind is not SessionKind.WORK:
        return story
    named = Conversation(id=body.conversation, agent=body.agent) if body.conversation else None
    return replace(
        story,
        progress=replace(story.progress, checkpointed=False),
        step_history=replace(story.step_history, conversation=named),
        settled=False,
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
            notes=body.notes,
            zone=body.zone,
        )
        if session.id == body.session_id
        else session
        for session in story.sessions
    )
    kinds = {session.kind for session in story.sessions if session.id == body.session_id}
    worked, well = SessionKind.WORK in kinds, outcome is Outcome.OK
    story = replace(story, sessions=sessions, last_line=body.last_line or story.last_line)
    progress, history = story.progress, story.step_history
    if not worked:
        passed = progress.verified + (well and SessionKind.VERIFY in kinds)
        return replace(story, progress=replace(progress, verified=passed))
    served = outcome in {Outcome.OK, Outcome.PARTIAL, Outcome.ASKS}
    # A conversation that led nowhere would only continue to lead nowhere, and one that is full forgets.
    full = body.zone == Zone.DANGER or (body.zone == Zone.CAUTION and outcome is Outcome.PARTIAL)
    broken_off = full and outcome is Outcome.PARTIAL
    lost = full or outcome in {Outcome.STUCK, Outcome.STALLED}
    return replace(
        story,
        progress=replace(progress, implemented=progress.implemented or well),
        step_history=replace(
            history,
            # Where the context ends says nothing about the work, so such sessions have a limit of their own.
            sessions=history.sessions + (not broken_off),
            breaks=history.breaks + broken_off,
            conversation=None if lost else history.conversation,
        ),
        outage=Outage() if served else story.outage,
        loop_sessions=story.loop_sessions + 1,
        # A choice holds for one session.
        mode="",
        selected=None,
    )


def requeued(story: StorySnapshot) -> StorySnapshot:
    """Return the story ready to run again, in a new loop; a session sees what the user did by hand."""
    if story.kill_switch is not None and story.kill_switch.detail == TAKEN_OVER:
        history = replace(story.step_history, note=story.step_history.note or HANDED_BACK)
        story = replace(step_again(story), step_history=history)
    return replace(
        story,
        status=Status.WAITING if story.depends_on else Status.QUEUED,
        reason="",
        next="",
        ended_at=None,
        waiting_since=_last_seen(story),
        kill_switch=None,
        blocked_by=(),
        step_history=replace(story.step_history, sessions=0),
        loop_sessions=0,
        before_loop=len(story.sessions),
        # What a crash cut off still ends as it was about to; a final result is lifted by the resume.
        ending=None if story.status.final else story.ending,
        refusal=None if story.status.final else story.refusal,
        # A candidate that continues is judged again.
        candidates=tuple(
            one for one in story.candidates if one.number != story.candidate or not story.status.final
        ),
        # After a failure all of its agents are asked again, the preferred one first.
        handed_to="" if story.status is Status.FAILED else story.handed_to,
        away={} if story.status is Status.FAILED else story.away,
    )


def _reviewed(story: StorySnapshot) -> StorySnapshot:
    """Return a story that others have commented on, ready for another attempt in its conversation.

    It has one step, whatever flow the story has gone through.
    """
    decided = story.decided if story.decision is None else (*story.decided, story.decision)
    again = replace(
        step_again(story),
        flow="quick",
        place=IMPLEMENT,
        step=IMPLEMENT,
        step_history=StepHistory(conversation=last_conversation(story)),
        decision=None,
        decided=decided,
    )
    return requeued(again)


def _last_seen(story: StorySnapshot) -> float | None:
    """Return when a story that continues has stopped working, as far as is known; None before its start."""
    if story.started_at is None:
        return None
    instants = (instant for session in story.sessions for instant in (session.started_at, session.ended_at))
    return story.ended_at or max(filter(None, (story.running_since, *instants)), default=story.started_at)


def step_again(story: StorySnapshot, *, attempt: int | None = None) -> StorySnapshot:
    """Return the story at the beginning of an attempt at its step: the first one, unless it is given."""
    first = 1 if story.progress.attempt else 0
    progress = StepProgress(attempt=first if attempt is None else attempt)
    return replace(story, progress=progress, outage=Outage())


def tried_again(story: StorySnapshot) -> StorySnapshot:
    """Return a failed story with a new set of attempts at its step.

    If it failed because its workspace could not be opened, the work of a session that succeeded was
    never judged. It is judged then; the session is not repeated.
    """
    again, worked = step_again(story), story.progress
    if not story.workspace.refused or not worked.implemented:
        return again
    return replace(again, progress=replace(worked, attempt=again.progress.attempt))


def without_conversation(story: StorySnapshot) -> StorySnapshot:
    """Return the story without a conversation that its next session could resume."""
    return replace(story, step_history=replace(story.step_history, conversation=None))


def _step_finished(story: StorySnapshot, body: ev.StepFinished) -> StorySnapshot:
    place = Step(number=body.next_number, name=body.next_name)
    passed = (body.step_number,)
    if body.ahead:
        return replace(story, skipped_steps=story.skipped_steps + passed)
    return replace(
        step_again(story),
        place=place,
        step=place,
        step_history=StepHistory(),
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
    story = step_again(story) if body.retry else story
    if body.moved:  # where it is in its flow is determined again, from what its worktree holds
        story = replace(story, workspace=replace(story.workspace, apart=True), placed=False)
    if acted.question.get("kind") == "confidence":
        story = replace(story, confidence=1.0, settled=True)
    return replace(story, decision=None, decided=(*story.decided, acted))


def _finished(story: StorySnapshot, body: ev.StoryFinished, at: float) -> StorySnapshot:
    return replace(
        after_wait(story, at),
        status=Status(body.verdict),
        workspace=workspace_at_the_end(story.workspace, body),
        reason=body.reason,
        next=body.next,
        ended_at=at,
        progress=replace(story.progress, attempt=min(story.progress.attempt, story.max_attempts)),
        kill_switch=_switch(body.kill_switch),
        ending=None,
        blocked_by=tuple(StoryId(name) for name in body.blocked_by),
    )


def _switch(fields: Mapping[str, str] | None) -> KillSwitch | None:
    if not fields:
        return None
    return KillSwitch(name=fields["name"], detail=fields.get("detail", ""), hint=fields.get("hint", ""))
