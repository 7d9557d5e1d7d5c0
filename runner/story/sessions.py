"""The sessions of one story: their environment, prompt, files and place in the journal.

A session's end and what follows from it are recorded together, so that a resume never finds
an end without its consequence.
"""

import os
from collections.abc import Callable
from pathlib import Path

import trio
from msgspec import Struct
from msgspec.structs import replace

from isolation.git.repository import offload
from isolation.guard import commit_folders
from isolation.model import Confinement, SessionSpec, Workspace
from isolation.paths import autopilot_dir, story_dir
from runner.agents.command import CommandAgent
from runner.agents.protocol import Agent, AgentJob
from runner.core.events import events as ev
from runner.core.limits.budget import Amount
from runner.core.limits.prices import priced
from runner.core.limits.stuck import Stuck
from runner.core.model import VERIFY, KillSwitch, Outcome, SessionKind, Step, Story, StorySnapshot, Usage
from runner.core.schedule.tiers import agents_per_wave
from runner.plan.settings.prompt_template import load_template
from runner.story.context.context import RunContext
from runner.story.flow_steps import Brief
from runner.story.other_sessions import session_visible
from runner.story.session.artifacts import ArtifactWatch
from runner.story.session.environment import environment_of
from runner.story.session.prompt import PromptFacts, render
from runner.story.session.session import SessionOrder, SessionVerdict
from runner.story.session.shared_tree import run_watched

Consequences = Callable[[SessionVerdict], tuple[ev.Body, ...]]
Objection = Callable[[], KillSwitch | None]


class StorySessions:
    """Runs work and verify sessions for one story, each under its own number, log and files."""

    def __init__(self, *, story: Story, agent: Agent, tools: RunContext) -> None:
        self._story = story
        self._agent = agent
        self._tools = tools
        run_id = tools.recorder.snapshot.run_id
        self._logs = story_dir(tools.repository.common_dir, run_id, story.id)

    @property
    def verify_commands(self) -> tuple[str, ...]:
        """Give the commands that decide about this story: its own, else the run's."""
        return self._story.verify or self._tools.settings.verify

    async def work(
        self, workspace: Workspace, brief: Brief, *, allowance: Amount, unless: Objection, then: Consequences
    ) -> SessionVerdict | KillSwitch:
        """Let the agent work on the current step; it is told what it may spend.

        It does not begin when there is something against it by the time that all is prepared.
        """
        now, step = self._now, brief.step
        name = self._name(step)
        exchange = self._tools.exchange(workspace.path, self._story.id)
        result_file = exchange / f"{name}.result.json"
        facts, prompt = self._facts(brief, result_file), exchange / f"{name}.prompt.md"
        story, agent = self._story, self._agent
        if brief.command is not None:  # the flow's own command for this step
            story, agent = replace(story, command=brief.command), CommandAgent()
        ground = await offload(self._prepare, workspace, prompt, facts, agent)
        job = AgentJob(
            story=story,
            workspace=workspace.path,
            session_id=self._session_id(name),
            model=self._tools.settings.model,
            prompt=prompt,
            conversation=self._to_resume(agent),
            git_dirs=ground.git_dirs,
            folders=ground.folders,
            verify=facts.verify,
            cost=allowance.cost,
        )
        launch = agent.launch(job)
        environment = self._environment(workspace, step) | {
            "AUTOPILOT_STATE_FILE": brief.state_file,
            "AUTOPILOT_RESULT_FILE": str(result_file),
            "AUTOPILOT_PROMPT_FILE": str(prompt),
            "AUTOPILOT_MODE": now.mode or self._story.mode,
            **_spending(allowance),
            **launch.env,
        }
        spec = SessionSpec(
            argv=launch.argv,
            cwd=workspace.path,
            env=environment,
            prompt=prompt,
            confinement=ground.confinement,
        )
        watch = ArtifactWatch(brief.artifacts, began_at=trio.current_time()).look if brief.artifacts else None
        hearing = _Listener(
            agent=agent, conversation=launch.conversation, used=self._used_in(launch.conversation)
        )
        return await self._run(
            spec,
            name,
            step,
            SessionKind.WORK,
            then,
            unless=unless,
            listener=hearing,
            result_file=result_file,
            progress=watch,
        )

    def _facts(self, brief: Brief, result_file: Path) -> PromptFacts:
        now = self._now
        return PromptFacts(
            story=self._story,
            step=brief.step,
            step_prompt=brief.prompt,
            answers=brief.answers,
            attempt=now.attempt,
            verify=self.verify_commands if brief.verified else (),
            result_file=result_file,
            last_failure=now.last_failure,
            interrupted=bool(now.sessions) and now.sessions[-1].outcome is None,
            shared=self._tools.sharing is not None,
        )

    def _to_resume(self, agent: Agent) -> str:
        """Name the conversation that the session goes on with; empty for a new one."""
        known = self._now.conversation
        return known.id if known is not None and known.agent == agent.name else ""

    def _used_in(self, conversation: str) -> Usage:
        """Add up what earlier sessions of a conversation are known to have used."""
        used = Usage()
        for session in self._now.sessions:
            if conversation and session.conversation == conversation:
                used += session.usage
        return used

    async def verify(
        self, workspace: Workspace, command: str, *, unless: Objection, then: Consequences
    ) -> SessionVerdict | KillSwitch:
        """Run one verify command in the workspace."""
        place = self._now.place
        step = VERIFY if self._now.flow == "quick" else Step(number=place.number, name=f"Verify {place.name}")
        environment = self._environment(workspace, step)
        spec = SessionSpec(
            argv=("sh", "-c", command),
            cwd=workspace.path,
            env=environment,
            prompt=Path(os.devnull),
            confinement=await offload(self._tools.confinement, workspace),
        )
        return await self._run(spec, self._name(VERIFY), step, SessionKind.VERIFY, then, unless=unless)

    async def _run(
        self,
        spec: SessionSpec,
        name: str,
        step: Step,
        kind: SessionKind,
        then: Consequences,
        *,
        unless: Objection,
        listener: "_Listener | None" = None,
        result_file: Path | None = None,
        progress: Callable[[float, float], Stuck | None] | None = None,
    ) -> SessionVerdict | KillSwitch:
        tools, settings = self._tools, self._tools.settings
        log = self._logs / f"{name}.log"
        session_id = self._session_id(name)
        started = ev.SessionStarted(
            story_id=self._story.id,
            session_id=session_id,
            kind=kind,
            step_number=step.number,
            step_name=step.name,
            attempt=self._now.attempt,
            agent=listener.agent.name if listener else "verify",
            log=log.relative_to(autopilot_dir(tools.repository.common_dir)).as_posix(),
            agents_per_wave=self._agents_per_wave(),
            conversation=listener.conversation if listener else "",
        )
        order = replace(
            self._order(spec, log, listener),
            result_file=result_file,
            progress=progress,
            session_id=session_id,
        )
        mode = self._now.mode or self._story.mode
        async with session_visible(session_id, replace(self._story, mode=mode), tools) as presence:
            found = await tools.recorder.record_unless(unless, started)
            if found is not None:
                return found
            await presence.seen()
            verdict = await run_watched(order, tools)
            presence.end()
            usage = priced(_told(verdict), settings.model, settings.prices)
            await tools.recorder.record(_ended(self._story, session_id, verdict, usage), *then(verdict))
        return verdict

    def _order(self, spec: SessionSpec, log: Path, listener: "_Listener | None") -> SessionOrder:
        settings = self._tools.settings
        order = SessionOrder(
            story_id=self._story.id,
            spec=spec,
            log=log,
            log_cap=settings.log_cap_mb << 20,
            grace=settings.grace_seconds,
            stall_seconds=settings.stall_seconds,
            look_seconds=settings.inactivity_timeout / 4,
        )
        if listener is None:
            return order
        quiet = listener.agent.traits.quiet_seconds
        return replace(
            order,
            agent=listener.agent,
            conversation=listener.conversation,
            used_before=listener.used,
            # Two windows of silence end a session, so one must hold half of what is still healthy.
            stall_seconds=max(settings.stall_seconds, quiet / 2),
        )

    def _prepare(self, workspace: Workspace, prompt: Path, facts: PromptFacts, agent: Agent) -> "_Ground":
        """Do all that a work session needs of the disk, in one go."""
        tools, sharing = self._tools, self._tools.sharing
        self._logs.mkdir(parents=True, exist_ok=True)
        self._write_prompt(prompt, facts)
        plain = isinstance(agent, CommandAgent)
        return _Ground(
            # In a shared tree a session makes no commit.
            git_dirs=() if plain or sharing else commit_folders(tools.repository, workspace),
            # A worktree is all open.
            folders=sharing.folders(workspace.path, self._story.id)
            if sharing and agent.traits.own_sandbox
            else (),
            confinement=tools.confinement(workspace),
        )

    def _write_prompt(self, path: Path, facts: PromptFacts) -> None:
        """Write the prompt, and clear the place of the result."""
        own = self._tools.settings.prompt_template
        text = render(facts, load_template(self._tools.repository.top / own if own else None))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        # Names repeat from run to run, and a workspace that was kept holds what the last one left.
        facts.result_file.unlink(missing_ok=True)

    @property
    def _now(self) -> StorySnapshot:
        return self._tools.recorder.snapshot.stories[self._story.id]

    def _name(self, step: Step) -> str:
        words = step.name.lower().replace(" ", "-").replace("/", "-")
        return f"{len(self._now.sessions) + 1:02}-{words}-{self._now.attempt}"

    def _session_id(self, name: str) -> str:
        return f"{self._tools.recorder.snapshot.run_id}/{self._story.id}/{name}"

    def _agents_per_wave(self) -> int:
        return agents_per_wave(self._tools.recorder.snapshot.tier, self._tools.settings)

    def _environment(self, workspace: Workspace, step: Step) -> dict[str, str]:
        return environment_of(self._now, workspace, self._tools.recorder.snapshot, step=step) | {
            "AUTOPILOT_AGENTS_PER_WAVE": str(self._agents_per_wave()),
            "AUTOPILOT_OWNS": "\n".join(self._story.owns),
        }


class _Ground(Struct, frozen=True, kw_only=True):
    """What of the disk a session may write to, as far as it must be told."""

    git_dirs: tuple[Path, ...]
    folders: tuple[Path, ...]
    confinement: Confinement | None


class _Listener(Struct, frozen=True, kw_only=True):
    """Who reads a session's output, in which conversation it talks, and what that has used before."""

    agent: Agent
    conversation: str
    used: Usage


def _told(verdict: SessionVerdict) -> Usage:
    """Join what the result file and the output say of usage; the file was written on purpose."""
    written, heard = verdict.result.usage, verdict.usage
    names = ("input_tokens", "output_tokens", "cost_usd")
    given = {name: value for name in names if (value := getattr(written, name)) is not None}
    return replace(heard, **given)


def _ended(story: Story, session_id: str, verdict: SessionVerdict, usage: Usage) -> ev.SessionEnded:
    return ev.SessionEnded(
        story_id=story.id,
        session_id=session_id,
        outcome=verdict.outcome,
        exit_code=verdict.exit_code,
        detail=verdict.detail,
        reported=verdict.result.status,
        last_line=verdict.last_line,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
        summary=verdict.result.summary,
        effectiveness=verdict.result.effectiveness,
        peak_memory=verdict.peak_memory,
        total_waves=verdict.result.total_waves,
        waves=verdict.result.waves,
        cached_tokens=usage.cached_tokens,
        cost_estimated=usage.estimated,
        tools=verdict.tools,
    )


def _spending(allowance: Amount) -> dict[str, str]:
    """Tell a session what is set aside for it, where there is a budget."""
    told = {}
    if allowance.tokens is not None:
        told["AUTOPILOT_TOKEN_ALLOWANCE"] = f"{allowance.tokens:.0f}"
    if allowance.cost is not None:
        told["AUTOPILOT_COST_ALLOWANCE"] = f"{allowance.cost:.4f}"
    return told


def succeeded(verdict: SessionVerdict) -> bool:
    """Tell whether a session left work that is worth a checkpoint."""
    return verdict.outcome in {Outcome.OK, Outcome.PARTIAL}
