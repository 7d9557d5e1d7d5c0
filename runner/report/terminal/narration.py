"""A run as lines of text, for output without a dashboard: at most one line per event.

Control characters from agents or file names are removed.
"""

from functools import lru_cache
from typing import assert_never

from runner.core.events import agents as ag
from runner.core.events import base as base_events
from runner.core.events import candidates as cd
from runner.core.events import cluster, steering
from runner.core.events import drafts as df
from runner.core.events import events as ev
from runner.core.events import landing as ld
from runner.core.events import work_items as wi
from runner.core.model import Outcome, RunSnapshot, SessionRecord, Status, StoryId
from runner.core.schedule.offers import LAND
from runner.core.text.conflicts import conflict_line
from runner.core.text.instants import clock, span
from runner.core.text.screen import cells, neutral
from runner.core.text.telling import with_line
from runner.core.text.words import count, label, tally, window

_WIDEST_ID = 24
_SHORT = 10


def line_for(event: ev.Event, run: RunSnapshot) -> str | None:
    """Return the line for an event, or None if it is not worth one. `run` is the snapshot after it."""
    text = _message(event, run)
    if text is None:
        return None
    story = getattr(event.body, "story_id", None)
    prefix = "" if story is None else _columns(tuple(run.stories))[story]
    return f"{_clock(int(event.at))} {prefix}{neutral(text)}"


def banner_of(body: ev.PlaceFound) -> list[str]:
    """Return the status of a story that continues, a line each."""
    return [neutral(line) for line in body.banner]


@lru_cache(maxsize=1)
def _clock(second: int) -> str:
    return clock(second)


@lru_cache(maxsize=1)
def _columns(names: tuple[StoryId, ...]) -> dict[StoryId, str]:
    """Return the ids as a column, with the space before what follows."""
    widths = {name: cells(name) for name in names}
    widest = min(_WIDEST_ID, max(widths.values(), default=0))
    return {name: f"{name}{' ' * (widest - width)}  " for name, width in widths.items()}


def _message(event: ev.Event, run: RunSnapshot) -> str | None:  # noqa: C901, PLR0911, PLR0912  one arm per event
    body = event.body
    match body:
        case ev.RunStarted():
            stories = count(len(body.stories), "story", "stories")
            return f"run {run.run_id} started: {stories}, up to {body.max_stories} in parallel"
        case ev.RunResumed():
            return f"run {run.run_id} resumed: {tally(run)}"
        case ev.RunEnded():
            return f"run {run.run_id} ended: {tally(run)} in {span(event.at - run.started_at)}"
        case ev.AdmissionEnded():
            return f"no new stories will start: {body.name}: {body.detail}; {body.hint}".rstrip("; .")
        case ev.WindowChanged():
            return window(body.window, run.max_stories, body.tier, body.reason)
        case base_events.BaseCheckStarted() | base_events.BaseChecked() | base_events.BaseFollowed():
            return _of_base(body, run)
        case ev.StoryStarted():
            return f"started: {run.stories[body.story_id].title}"
        case ev.WorkspaceOpened():
            return f"branch {body.branch} from {body.base[:_SHORT]}"
        case ev.WorkspaceClosed():
            return None if body.removed else f"worktree kept: {body.reason}"
        case ev.SessionStarted():
            return _session_started(run, body)
        case ev.SessionEnded():
            return _session_ended(run, body)
        case ev.Checkpointed():
            return f"committed {body.commit[:_SHORT]} ({count(body.commits, 'commit')})"
        case ev.AttemptFailed():
            why = with_line(body.reason, body.output)
            return f"{_attempt(run, body.story_id, body.attempt)} failed: {why}"
        case ev.SpiralSeen() | ev.StallSeen() | ev.SelectionMade() | ev.LoopEnded():
            return _loop(body)
        case ev.StoryFinished():
            return _finished(body)
        case ev.Noted():
            return f"note: {body.message}"
        case ev.PlaceFound() | ev.StepFinished():
            return _place(body)
        case ev.DecisionAsked() | ev.DecisionAnswered():
            return _decision(body)
        case ev.StoryRequeued():
            return "continues"
        case ev.Remembered():
            return f"{body.topic}: {body.text}"
        case ag.AgentPaused() | ag.AgentRefused() | ag.AgentReplaced():
            return _agent(body)
        case ag.BudgetAwaited():
            return f"waits for budget: {body.reason}"
        case (
            ev.StoryQueued()
            | ev.WorkspacePlanned()
            | ev.CheckpointPlanned()
            | ev.DecisionApplied()
            | ev.OutputSeen()
            | ag.ConversationSeen()
        ):
            return None
        case _:
            return _of_a_part(body, run)


def _of_a_part(
    body: ld.LandingBody
    | cd.CandidateBody
    | steering.SteeringBody
    | df.DraftBody
    | wi.WorkItemBody
    | cluster.ClusterBody,
    run: RunSnapshot,
) -> str | None:
    if isinstance(body, df.DraftBody):
        return _draft(body)
    if isinstance(body, wi.WorkItemBody):
        return f"{body.item} is in the tracker" if isinstance(body, wi.WorkItemKept) else body.act
    if isinstance(body, steering.SteeringBody):
        return _steered(body)
    if isinstance(body, cluster.ClusterBody):  # a loss is noted in words
        return f"on worker {body.worker}" if isinstance(body, cluster.StoryPlaced) else None
    return _landing(body, run) if isinstance(body, ld.LandingBody) else _candidate(body)


def _draft(body: df.DraftBody) -> str | None:
    match body:
        case df.DraftPublished():
            return f"draft {'opened' if body.created else 'updated'}: {body.url}"
        case df.ReviewTaken():
            return f"is tried again after {count(len(body.items), 'comment')} on its draft {body.number}"
        case df.DraftQueued():
            return f"draft {body.number} is in the queue of the forge"
        case _:
            return None


def _steered(body: steering.SteeringBody) -> str | None:
    match body:
        case steering.AdmissionPaused():
            return "paused: no new story starts; `autopilot-multi unpause` continues"
        case steering.AdmissionContinued():
            return "unpaused: stories start again"
        case steering.RequestAnswered():
            return f"refused what was asked of the run: {body.problem}" if body.problem else None
        case steering.StoriesAdded():
            return f"added to the run: {', '.join(str(entry['id']) for entry in body.stories)}"
        case steering.StoryEdited():
            return "its file was edited before it started; the new text counts"
        case steering.StoryRetried():
            start = f" from the base (its old tip is {body.kept})" if body.kept else ""
            return f"is tried again{start or (' from the base' if body.fresh else '')}"
        case _:
            assert_never(body)


def _candidate(body: cd.CandidateBody) -> str | None:
    match body:
        case cd.CandidateEnded():
            size = f" ({count(body.files, 'file')}, {count(body.lines, 'line')})" if body.files else ""
            hidden = " but a hidden verify command fails" if body.hidden == "failed" else ""
            return f"candidate {body.number}: {body.verdict}{hidden}{size}: {body.reason}"
        case cd.CandidateStarted():
            return f"candidate {body.number} begins at the base; the one before is kept as {body.kept}"
        case cd.CandidateChosen():
            return f"candidate {body.number} is the best" if body.kept else None
        case cd.ReviewGiven():
            said = {"accept": "accepts it", "again": "asks for another attempt"}
            because = f": {body.because}" if body.because else ""
            return f"reviewer {body.by} {said.get(body.verdict, 'gives no opinion')}{because}"


def _landing(body: ld.LandingBody, run: RunSnapshot) -> str | None:  # noqa: PLR0911  one arm per event
    match body:
        case ld.ConflictsForeseen():
            return conflict_line(run) or "no conflicts are foreseen any more"
        case ld.Landed():
            return f"landed on {body.onto} at {body.commit[:_SHORT]}: {', '.join(body.stories)}"
        case ld.StoryNotLanded():
            return f"not landed: {body.reason}"
        case ld.LandingRetryPlanned():
            conflicts = f", with conflicts in {', '.join(body.files)}" if body.files else ""
            return f"starts again on {body.onto} ({body.base[:10]}){conflicts}"
        case ld.LandingUndone():
            return f"landing undone: {', '.join(body.stories)}"
        case ld.StoryRestacked():
            return f"restacked onto {body.onto} at {body.commit[:_SHORT]}; its old tip is {body.kept}"
        case ld.StoryNotRestacked():
            return f"not restacked onto {body.onto}: {body.reason}"
        case _:
            return None


def _finished(body: ev.StoryFinished) -> str:
    switch = body.kill_switch or {}
    name = f"{switch['name']}: " if switch else ""
    # How all of them land is said once, at the end of the run.
    command = f"next: {body.next}" if body.next and not body.next.startswith(LAND) else ""
    parts = (body.reason, switch.get("hint", "").rstrip("."), command)
    return f"{label(Status(body.verdict))}: {name}{'; '.join(part for part in parts if part)}"


def _attempt(run: RunSnapshot, story_id: StoryId, number: int) -> str:
    return f"attempt {number} of {run.stories[story_id].max_attempts}"


def _of_base(body: base_events.BaseBody, run: RunSnapshot) -> str | None:
    """Say what the base answers to the project's own commands; those of stories fail there by nature."""
    whose = f" of {run.repo_name(body.repo)}" if run.repos else ""
    if isinstance(body, base_events.BaseFollowed):
        return f"stories{whose} now start from {body.base[:_SHORT]}, where the base branch is by now"
    if isinstance(body, base_events.BaseCheckStarted):
        return f"checking the base{whose}: {body.command}"
    if not body.shared:
        return None
    asked = (body.repo, body.command)
    check = next(check for check in run.base_checks if (check.repo, check.command) == asked)
    took = span((check.ended_at or check.started_at) - check.started_at)
    how = "known from an earlier run" if body.known else f"in {took}"
    return f"the base{whose} {body.answer.replace('-', ' ')}: {body.command} ({body.detail or how})"


def _decision(body: ev.DecisionAsked | ev.DecisionAnswered) -> str:
    if isinstance(body, ev.DecisionAsked):
        return f"needs a decision: {body.question.get('title', '')}"
    return f"decided by {body.by}: {body.letter}"


def _place(body: ev.PlaceFound | ev.StepFinished) -> str:
    if isinstance(body, ev.PlaceFound):
        return body.correction or f"at step {body.step_number} ({body.step_name})"
    if body.ahead:
        return f"step {body.step_number} ({body.step_name}) will be skipped"
    how = "skipped" if body.skipped else "finished"
    return f"step {body.step_number} ({body.step_name}) {how}; next: {body.next_name}"


def _agent(body: ag.AgentPaused | ag.AgentRefused | ag.AgentReplaced) -> str:
    match body:
        case ag.AgentRefused():
            return f"{body.agent} cannot continue: {body.reason}"
        case ag.AgentReplaced():
            return f"{body.by} continues in place of {body.agent}: {body.reason}"
        case ag.AgentPaused(fresh=True):
            return f"{body.agent} starts a new conversation: {body.reason}"
        case ag.AgentPaused():
            waits = f"all sessions of {body.agent} wait" if body.everyone else f"waits for {body.agent}"
            return f"{waits} until {clock(body.until)} (does not count as an attempt): {body.reason}"
        case _:
            assert_never(body)


def _loop(body: ev.SpiralSeen | ev.StallSeen | ev.SelectionMade | ev.LoopEnded) -> str:
    match body:
        case ev.SpiralSeen():
            return f"repeats itself: {body.reason}" + ("; starts over" if body.retries else "")
        case ev.StallSeen():
            return f"no activity for {span(body.seconds)}; the session is stopped after as long again"
        case ev.SelectionMade():
            because = f": {body.rationale}" if body.rationale else ""
            return f"next: {body.mode or 'nothing'}, confidence {body.confidence:.2f}{because}"
        case ev.LoopEnded():
            return f"{body.name}: {body.detail}"
        case _:
            assert_never(body)


def _session_started(run: RunSnapshot, body: ev.SessionStarted) -> str:
    number = _number(run, body.story_id, body.session_id)
    facts = f"{body.step_name}, {_attempt(run, body.story_id, body.attempt)}"
    session = _session(run, body.story_id, body.session_id)
    by = f", escalated to {session.worker}" if session and session.escalated else ""
    return f"session {number} started ({facts}{by})"


def _session_ended(run: RunSnapshot, body: ev.SessionEnded) -> str:
    number = _number(run, body.story_id, body.session_id)
    session = _session(run, body.story_id, body.session_id)
    took = span(session.ended_at - session.started_at) if session and session.ended_at else ""
    outcome = Outcome(body.outcome)
    if outcome is Outcome.OK:
        return f"session {number} succeeded" + (f" in {took}" if took else "")
    detail = body.detail or ("" if body.exit_code is None else f"exit code {body.exit_code}")
    return (
        f"session {number} {outcome.value}"
        + (f" after {took}" if took else "")
        + (f": {detail}" if detail else "")
    )


def _session(run: RunSnapshot, story_id: StoryId, session_id: str) -> SessionRecord | None:
    sessions = run.stories[story_id].sessions
    return next((session for session in sessions if session.id == session_id), None)


def _number(run: RunSnapshot, story_id: StoryId, session_id: str) -> int:
    ids = [session.id for session in run.stories[story_id].sessions]
    return ids.index(session_id) + 1 if session_id in ids else len(ids) + 1
