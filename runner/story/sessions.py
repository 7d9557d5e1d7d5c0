"""The sessions of one story, prepared: their environment, prompt, files and the event of their start."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import trio
from msgspec import Struct
from msgspec.structs import replace

from isolation.files import threads
from isolation.files.plain import make_plain_folder, make_room, write_plain
from isolation.guard.guard import commit_folders
from isolation.model import Confinement, SessionSpec, Workspace
from isolation.paths import autopilot_dir
from isolation.patterns import pattern
from runner.agents.command import CommandAgent
from runner.agents.protocol import Agent, AgentJob, Launch
from runner.agents.workers import Worker
from runner.core.base.check import STEP
from runner.core.drafts import review
from runner.core.events import events as ev
from runner.core.left_out.evidence import words_for_session
from runner.core.limits.budget import Amount
from runner.core.limits.context_zone import DOCS
from runner.core.limits.prices import priced
from runner.core.limits.stuck import Stuck
from runner.core.model import VERIFY, Outcome, SessionKind, Status, Step, Story, StorySnapshot, Usage
from runner.core.schedule.tiers import agents_per_wave
from runner.core.settings import Settings
from runner.core.text.names import one_line
from runner.plan.settings.prompt_template import load_template
from runner.story.context.context import StoryContext
from runner.story.earlier_work import summary_of_work
from runner.story.flow.brief import Brief
from runner.story.session.context_watch import ContextOrder
from runner.story.session.environment import environment_of, program, session_seal, user_environment
from runner.story.session.progress import ProgressLooks
from runner.story.session.prompt import PromptFacts, render
from runner.story.session.session import SessionOrder, SessionVerdict, TimeLimit

_CONVERSATION = pattern(r"[A-Za-z0-9][\w./:@+-]{0,199}")


class PreparedSession(Struct, frozen=True, kw_only=True):
    """A session that can start: its order, and the event that is recorded just before."""

    order: SessionOrder
    started: ev.SessionStarted


async def prepare_work(
    context: StoryContext, workspace: Workspace, brief: Brief, allowance: Amount
) -> PreparedSession:
    """Prepare a session in which the agent works on the current step; it learns what it may spend."""
    story, settings, now = _story_for(context, brief), context.settings, context.now
    worker = _worker_for(context, brief)
    agent, name = worker.agent, _name(now, brief.step)
    cwd, files = context.inside(workspace.path, workspace), _exchanged(context.exchange(workspace), name)
    conversation = "" if brief.whole else _conversation(now, agent)
    facts = await _work_facts(context, workspace, brief, fresh=not conversation)
    prompt = facts.result_file.with_name(files.prompt.name)  # as the session sees it
    access = await threads.run(_prepare_disk, context, workspace, files, facts, agent)
    job = AgentJob(
        story=story,
        workspace=cwd,
        session_id=_session_id(context, name),
        model=worker.model,
        prompt=prompt,
        conversation=_resumable(conversation),
        git_dirs=access.git_dirs,
        folders=access.folders,
        verify=facts.verify,
        program=facts.program if facts.state_file else "",
        cost=allowance.cost,
    )
    launch = await _launch(agent, job, files.prompt)
    environment = _environment(context, now, workspace, brief.step, cwd, agent=agent) | {
        "AUTOPILOT_SESSION_ID": job.session_id,
        "AUTOPILOT_STATE_FILE": str(facts.state_file or ""),
        "AUTOPILOT_DOCS": brief.docs,
        "AUTOPILOT_RESULT_FILE": str(facts.result_file),
        "AUTOPILOT_CONTEXT_FILE": facts.context_file,
        "AUTOPILOT_PROMPT_FILE": str(prompt),
        "AUTOPILOT_MODE": context.mode,
        "AUTOPILOT_MULTI": facts.program,
        **_spending(allowance),
        **launch.env,
    }
    spec = SessionSpec(
        argv=launch.argv, cwd=cwd, env=environment, prompt=files.prompt, confinement=access.confinement
    )
    # Two windows of silence end a session, so one must hold half of what is still healthy.
    stall_seconds = max(settings.stall_seconds, agent.traits.quiet_seconds / 2)
    order = replace(
        _order(context, name, spec, workspace, agent),
        stall_seconds=stall_seconds,
        agent=agent,
        model=worker.model,
        conversation=launch.conversation,
        used_before=_used_in(launch.conversation, now),
        result_file=files.result,
        limit=_story_limit(context),
        progress=_progress(context, workspace, brief),
        context=_context_order(context, workspace, brief, files, launch) if facts.context_file else None,
    )
    kind = SessionKind.REVIEW if brief.whole else SessionKind.WORK
    started = _started(context, order, brief.step, kind)
    escalated = brief.command is None and worker.name != context.workers.first.name
    return PreparedSession(order=order, started=replace(started, model=worker.model, escalated=escalated))


async def _launch(agent: Agent, job: AgentJob, prompt: Path) -> Launch:
    """Return how to start an agent, once the files that it needs are next to the prompt."""
    launch = agent.launch(job)
    for name, data in launch.files.items():
        await threads.run(write_plain, prompt.with_name(name), data)
    return launch


async def _work_facts(
    context: StoryContext, workspace: Workspace, brief: Brief, *, fresh: bool
) -> PromptFacts:
    """Return what the prompt is made of; one for a fresh conversation says what was done before."""
    facts = prompt_facts(context, workspace, brief)
    if not fresh or brief.whole or isinstance(_worker_for(context, brief).agent, CommandAgent):
        return facts
    return replace(facts, earlier_work=await threads.run(summary_of_work, context, workspace))


def _conversation(now: StorySnapshot, agent: Agent) -> str:
    """Return the conversation that the next session resumes; empty for a new one."""
    known = now.step_history.conversation
    return known.id if known is not None and known.agent == agent.name else ""


def _progress(
    context: StoryContext, workspace: Workspace, brief: Brief
) -> Callable[[float, float, tuple[Path, ...]], Stuck | None] | None:
    """Return what judges whether a session gets anywhere; a step without artifacts has nothing to watch."""
    if brief.artifacts is None:
        return None
    # What the verify commands judge may take long to find out, without a file to show for it.
    judged = brief.verified and context.verify
    looks = ProgressLooks(
        brief.artifacts,
        workspace=workspace.path,
        limit=None if judged else context.settings.stuck_minutes * 60,
        began_at=trio.current_time(),
    )
    return looks.look


def _context_order(
    context: StoryContext, workspace: Workspace, brief: Brief, files: "_Exchanged", launch: Launch
) -> ContextOrder:
    """Return what the watch of a session's context needs."""
    now, conversation = context.now, launch.conversation
    before = [one.tools or 0 for one in now.sessions if conversation and one.conversation == conversation]
    return ContextOrder(
        settings=context.settings.context,
        notice=files.notice,
        result_file=context.inside(files.result, workspace),
        written=files.result,
        state_file=Path(brief.state_file),
        # In a shared tree a session makes no commit, and the user may.
        workspace=None if context.run.shared_tree else workspace.path,
        docs=(DOCS, brief.docs),
        tools_before=sum(before),
    )


def _story_for(context: StoryContext, brief: Brief) -> Story:
    return context.story if brief.command is None else replace(context.story, command=brief.command)


def _worker_for(context: StoryContext, brief: Brief) -> Worker:
    """Return who works: the worker of the attempt, or the flow's own command for this step."""
    if brief.command is None:
        return context.worker
    return Worker(agent=CommandAgent(), model=context.settings.model)


async def prepare_verify(context: StoryContext, workspace: Workspace, command: str) -> PreparedSession:
    """Prepare one verify command in the workspace."""
    now = context.now
    step = VERIFY
    if now.flow != "quick":
        step = Step(number=now.place.number, name=f"Verify {now.place.name}")
    spec = await threads.run(_verify_spec, context, workspace, command, now, step)
    limits = [limit for limit in (_story_limit(context), _verify_limit(context)) if limit is not None]
    limit = min(limits, key=lambda one: one.seconds, default=None)
    order = replace(_order(context, _name(now, VERIFY), spec, workspace), limit=limit)
    return PreparedSession(order=order, started=_started(context, order, step, SessionKind.VERIFY))


def prepare_base_check(
    context: StoryContext, workspace: Workspace, command: str, number: int
) -> SessionOrder:
    """Return the order for a verify command on the untouched base, as a story would run it. Blocking."""
    before = StorySnapshot(id=context.story.id, title=context.story.title, status=Status.QUEUED)
    spec = _verify_spec(context, workspace, command, before, STEP)
    order = _order(context, f"{number:02}-verify", spec, workspace)
    return replace(order, session_id="", limit=_verify_limit(context))


def _verify_spec(
    context: StoryContext, workspace: Workspace, command: str, now: StorySnapshot, step: Step
) -> SessionSpec:
    cwd = context.inside(workspace.path, workspace)
    return SessionSpec(
        argv=("sh", "-c", command),
        cwd=cwd,
        env=_environment(context, now, workspace, step, cwd),
        prompt=Path(os.devnull),
        confinement=context.confinement(workspace),
    )


def _verify_limit(context: StoryContext) -> TimeLimit | None:
    minutes = context.verify_minutes
    if minutes is None:
        return None
    words = f"exceeded its limit of {minutes:g} min"
    return TimeLimit(seconds=minutes * 60, outcome=Outcome.FAILED, words=words)


def _story_limit(context: StoryContext) -> TimeLimit | None:
    """Return what is left of the story's time."""
    minutes = context.story_minutes
    if minutes is None:
        return None
    left = max(0.0, minutes * 60 - context.now.loop_seconds)
    words = f"the story has worked for its limit of {minutes:g} min"
    return TimeLimit(seconds=left, outcome=Outcome.STOPPED, words=words)


def session_ended(order: SessionOrder, verdict: SessionVerdict, settings: Settings) -> ev.SessionEnded:
    """Return the event of a session's end, with what it cost."""
    result = verdict.result
    usage = priced(_usage(verdict), order.model, settings.prices)
    return ev.SessionEnded(
        story_id=order.story_id,
        session_id=order.session_id,
        outcome=verdict.outcome,
        exit_code=verdict.exit_code,
        detail=verdict.detail,
        reported=result.status,
        last_line=verdict.last_line,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
        summary=result.summary,
        effectiveness=result.effectiveness,
        peak_memory=verdict.peak_memory,
        total_waves=result.total_waves,
        waves=result.waves,
        cached_tokens=usage.cached_tokens,
        cost_estimated=usage.estimated,
        tools=verdict.tools,
        notes=one_line(result.notes),
        zone=verdict.zone or "",
    )


def prompt_facts(context: StoryContext, workspace: Workspace, brief: Brief) -> PromptFacts:
    """Return what the prompt of the next work session is made of, with paths as the session sees them."""
    now, agent = context.now, _worker_for(context, brief).agent
    seen = _exchanged(context.inside(context.exchange(workspace), workspace), _name(now, brief.step))
    # Only a flow has a state file from which another session can continue.
    watched = bool(brief.state_file) and agent.traits.says_end
    most = agents_per_wave(context.log.snapshot.tier, context.settings)
    return PromptFacts(
        story=context.story,
        step=brief.step,
        step_prompt=brief.prompt,
        answers=brief.answers,
        attempt=now.progress.attempt,
        attempts=now.max_attempts,
        verify=context.verify if brief.verified else (),
        result_file=seen.result,
        program=program(context.run.environ),
        last_failure=now.step_history.last_failure,
        not_landed=_not_landed(context),
        note=now.step_history.note,
        reviewed=review.words_for_session(now.workspace.draft),
        last=brief.last,
        state=brief.facts,
        state_file=context.inside(Path(brief.state_file), workspace) if brief.state_file else None,
        agents=None if isinstance(agent, CommandAgent) else most,
        context_file=str(seen.notice) if watched else "",
        shared=context.shares_tree,
        whole=brief.whole,
    )


def _not_landed(context: StoryContext) -> str:
    """Return why the story is tried again although it was done; empty if that is not so."""
    left, stories = context.now.workspace.left_out, context.log.snapshot.stories
    return (
        "" if left is None else words_for_session(left, {story.id: story.title for story in stories.values()})
    )


def _order(
    context: StoryContext, name: str, spec: SessionSpec, workspace: Workspace, agent: Agent | None = None
) -> SessionOrder:
    settings = context.settings
    return SessionOrder(
        story_id=context.story.id,
        session_id=_session_id(context, name),
        spec=spec,
        log=context.folder / f"{name}.log",
        log_cap=settings.log_cap_mb << 20,
        grace=settings.grace_seconds,
        stall_seconds=settings.stall_seconds,
        seal=session_seal(context, agent),
        places=(workspace.path,),
        look_seconds=settings.inactivity_timeout / 4,
    )


def _started(context: StoryContext, order: SessionOrder, step: Step, kind: SessionKind) -> ev.SessionStarted:
    records = autopilot_dir(context.run.home.common_dir)
    works = kind is SessionKind.WORK
    return ev.SessionStarted(
        story_id=order.story_id,
        session_id=order.session_id,
        kind=kind,
        step_number=step.number,
        step_name=step.name,
        attempt=context.now.progress.attempt,
        agent=order.agent.name if order.agent else "verify",
        log=order.log.relative_to(records).as_posix(),
        agents_per_wave=agents_per_wave(context.log.snapshot.tier, context.settings),
        conversation=order.conversation,
        mode=context.mode,
        selected=context.now.selected if works else None,
    )


class _Exchanged(NamedTuple):
    """The files that are exchanged with a session."""

    prompt: Path
    result: Path
    notice: Path


def _exchanged(folder: Path, name: str) -> _Exchanged:
    names = (f"{name}.prompt.md", f"{name}.result.json", f"{name}.context.md")
    return _Exchanged(*(folder / name for name in names))


class _DiskAccess(Struct, frozen=True, kw_only=True):
    """What a session may write to, as far as its program must be started with it."""

    git_dirs: tuple[Path, ...]
    folders: tuple[Path, ...]
    confinement: Confinement | None


def prompt_text(context: StoryContext, facts: PromptFacts) -> str:
    """Return the prompt by the template of the run, unless it is given whole. Blocking."""
    if facts.whole:
        return facts.whole
    own = context.settings.prompt_template
    return render(facts, load_template(context.repository.top / own if own else None))


def _prepare_disk(
    context: StoryContext, workspace: Workspace, files: _Exchanged, facts: PromptFacts, agent: Agent
) -> _DiskAccess:
    """Do all that a work session needs of the disk, in one thread."""
    shared_tree = context.run.shared_tree
    context.folder.mkdir(parents=True, exist_ok=True)
    _write_prompt(context, workspace, files, facts)
    plain = isinstance(agent, CommandAgent)
    # In a shared tree a session makes no commit.
    folders = () if plain or shared_tree else commit_folders(context.repository, workspace)
    return _DiskAccess(
        git_dirs=tuple(context.inside(folder, workspace) for folder in folders),
        # All of a worktree is open.
        folders=shared_tree.folders(workspace.path, context.story.id)
        if shared_tree and agent.traits.own_sandbox
        else (),
        confinement=context.confinement(workspace),
    )


def _write_prompt(context: StoryContext, workspace: Workspace, files: _Exchanged, facts: PromptFacts) -> None:
    """Write the prompt, and make room for the result."""
    text = prompt_text(context, facts)
    # An earlier session may have left a link at each of these paths.
    if context.shares_tree:
        files.prompt.parent.mkdir(parents=True, exist_ok=True)
    else:
        make_plain_folder(workspace.path, files.prompt.parent)
    write_plain(files.prompt, text.encode(errors="surrogateescape"))
    # Names repeat from run to run, and a workspace that was kept holds what the last one left.
    make_room(files.result)
    make_room(files.notice)


def _used_in(conversation: str, now: StorySnapshot) -> Usage:
    """Add up what earlier sessions of a conversation are known to have used."""
    used = Usage()
    for session in now.sessions:
        if conversation and session.conversation == conversation:
            used += session.usage
    return used


def _name(now: StorySnapshot, step: Step) -> str:
    words = step.name.lower().replace(" ", "-").replace("/", "-")
    return f"{len(now.sessions) + 1:02}-{words}-{now.progress.attempt}"


def _resumable(conversation: str) -> str:
    """Return an id that an agent has reported, unless its program would read it as one of its options."""
    return conversation if _CONVERSATION.fullmatch(conversation) else ""


def _session_id(context: StoryContext, name: str) -> str:
    return f"{context.log.snapshot.run_id}/{context.story.id}/{name}"


def _environment(
    context: StoryContext,
    now: StorySnapshot,
    workspace: Workspace,
    step: Step,
    cwd: Path,
    *,
    agent: Agent | None = None,
) -> dict[str, str]:
    run, user = context.log.snapshot, user_environment(context, agent)
    leased = context.run.ports.variables(workspace.path, context.story.id)
    return environment_of(user, now, workspace, run.run_id, step=step, cwd=cwd, leased=leased) | {
        "AUTOPILOT_AGENTS_PER_WAVE": str(agents_per_wave(run.tier, context.settings)),
        "AUTOPILOT_OWNS": "\n".join(context.story.owns),
        **context.run.write_guard.variables,
    }


def _usage(verdict: SessionVerdict) -> Usage:
    """Join what the result file and the output report as usage; the file was written on purpose."""
    written = verdict.result.usage
    names = ("input_tokens", "output_tokens", "cost_usd")
    given = {name: value for name in names if (value := getattr(written, name)) is not None}
    return replace(verdict.usage, **given) if given else verdict.usage


def _spending(allowance: Amount) -> dict[str, str]:
    """Return the variables that tell a session what it may spend, if the run has a budget."""
    variables = {}
    if allowance.tokens is not None:
        variables["AUTOPILOT_TOKEN_ALLOWANCE"] = f"{allowance.tokens:.0f}"
    if allowance.cost is not None:
        variables["AUTOPILOT_COST_ALLOWANCE"] = f"{allowance.cost:.4f}"
    return variables
