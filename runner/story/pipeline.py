"""One story from its workspace to its verdict, step by step, able to go on wherever a killed run left it.

Every act is idempotent and stands between an intent and its acknowledgement in the journal;
what is acknowledged is never repeated. A failure in here is this story's alone.
"""

from functools import partial

import trio

from isolation.claims import globs as claims
from isolation.errors import IsolationError
from isolation.git.commits import named
from isolation.git.repository import offload
from isolation.model import Workspace
from isolation.paths import folds_case
from isolation.worktree.removal import thin_trash
from runner.agents.protocol import Agent
from runner.core.choose import Question
from runner.core.errors import JournalError, RunnerError
from runner.core.events import events as ev
from runner.core.limits.budget import Amount
from runner.core.limits.kill_switches import STOPPED_BY_USER, Switch
from runner.core.model import (
    MAX_RETRIES,
    KillSwitch,
    Outcome,
    RunId,
    Status,
    Story,
    StorySnapshot,
)
from runner.story import results as verdicts
from runner.story.context.context import RunContext
from runner.story.flow_steps import DONE_NUMBER, Stepping, open_stepping
from runner.story.kill_switches import StoryLoop
from runner.story.other_sessions import held_up
from runner.story.session.hooks import hook_log, run_hook
from runner.story.session.session import SessionVerdict
from runner.story.sessions import StorySessions, succeeded
from runner.story.workspace import StoryPlace

MOST_TRASH = 8
"""How many finished worktrees may wait for their deletion; each may be large."""


class Pipeline:
    """Carries one story whose `intent` is recorded; `run` is called once.

    `torn` tells that an earlier intent was never followed by a workspace that was reported as open. Before
    it has its `slot` the story's workspace is made, and nothing else.
    """

    def __init__(
        self, *, story: Story, agent: Agent, tools: RunContext, torn: bool, slot: trio.Event
    ) -> None:
        self._story = story
        self._tools = tools
        self._slot = slot
        self._place = StoryPlace(story=story, tools=tools, torn=torn, slot=slot)
        self._record = tools.recorder.record
        self._repository = tools.repository
        self._sessions = StorySessions(story=story, agent=agent, tools=tools)
        self._loop = StoryLoop(story=story, tools=tools, agent=agent.name)

    @property
    def _now(self) -> StorySnapshot:
        return self._tools.recorder.snapshot.stories[self._story.id]

    @property
    def _run_id(self) -> RunId:
        return self._tools.recorder.snapshot.run_id

    async def run(self) -> None:
        """Open the workspace, do the work, record the verdict, close what may be closed."""
        try:
            async with self._place.open() as opened:
                stepping = await open_stepping(opened.workspace, self._story, self._tools)
                result = await self._carry(opened.workspace, stepping)
                await self._finish(result)
                opened.finished = result.verdict in {Status.DONE, Status.NO_WORK}
                if opened.finished and not self._tools.sharing:
                    await self._hook("before_remove", opened.workspace)
        except JournalError:
            raise
        except (IsolationError, RunnerError) as error:
            await self._slot.wait()
            if not self._now.status.final:
                await self._finish(verdicts.failed(self._story.id, error.message, next_=error.hint))
            if not self._tools.sharing and not self._tools.place_of(self._story.id).exists():
                gone = ev.WorkspaceClosed(story_id=self._story.id, removed=True, reason="its folder is gone")
                await self._record(gone)
            return
        if opened.closing is not None:
            removed, reason = opened.closing.removed, opened.closing.reason
            await self._record(ev.WorkspaceClosed(story_id=self._story.id, removed=removed, reason=reason))
            await offload(partial(thin_trash, most=MOST_TRASH), self._tools.worktree_root)

    async def _finish(self, result: ev.StoryFinished) -> None:
        """Give the verdict, and go on once it is durable.

        Others need not wait for that: whatever led to it is recorded, and a resume comes to it again.
        """
        self._tools.recorder.defer(result)
        await self._record()

    async def _carry(self, workspace: Workspace, stepping: Stepping) -> ev.StoryFinished:
        """Go from wherever the story stands to its verdict."""
        if not self._now.sessions and not await self._hook("after_create", workspace):
            return self._hook_failed("hook after_create")
        if stepping.keeps_file and not self._now.placed:
            await stepping.find_place()
        while True:
            ended = await self._advance(workspace, stepping)
            if ended is not None:
                return ended

    async def _advance(  # noqa: PLR0911  one return a thing to do
        self, workspace: Workspace, stepping: Stepping
    ) -> ev.StoryFinished | None:
        """Do the one thing that comes next; what was begun is finished first."""
        now = self._now
        if now.decision is not None:
            return await stepping.act_on_answer()
        if now.checkpoint_planned_at is not None:
            await self._checkpoint(workspace, now.checkpoint_planned_at)
            return None
        if now.ending is not None:
            return self._stopped(now.ending)
        if now.refusal is not None:
            reason, hint = now.refusal
            return verdicts.failed(self._story.id, reason, next_=hint)
        if now.place.number == DONE_NUMBER:
            return await self._passed(workspace)
        if now.attempt > MAX_RETRIES + 1:
            tries = f"gave up after {MAX_RETRIES + 1} attempts"
            return verdicts.failed(self._story.id, f"{tries}: {now.reason}")
        if not now.implemented:
            return await self._work(workspace, stepping)
        return await self._conclude(workspace, stepping)

    async def _work(self, workspace: Workspace, stepping: Stepping) -> ev.StoryFinished | None:
        """Run one work session, if it may start; a result ends the story, None goes on."""
        found = self._loop.objection()
        if found is not None:
            return self._stopped(found)
        if await held_up(self._story, self._tools, stepping.ask):
            return None
        await self._place.require_there(workspace)
        turn = await self._loop.iterate(workspace, partial(self._session, workspace, stepping))
        if isinstance(turn, KillSwitch):
            return self._stopped(turn)
        if isinstance(turn, Question):
            await stepping.ask(turn)
            return None
        return turn

    async def _session(
        self, workspace: Workspace, stepping: Stepping, allowance: Amount
    ) -> ev.StoryFinished | None:
        if not await self._hook("before_run", workspace):
            return self._hook_failed("hook before_run")
        if not await stepping.begin():
            return None
        verdict = await self._sessions.work(
            workspace,
            stepping.brief(),
            allowance=allowance,
            unless=self._loop.objection,
            then=self._after_work,
        )
        await self._hook("after_run", workspace)
        if isinstance(verdict, KillSwitch):
            return self._stopped(verdict)
        for complaint in filter(None, (verdict.result.complaint, _denied(verdict))):
            await self._record(ev.Noted(story_id=self._story.id, message=complaint))
        return await self._follow_up(verdict, stepping)

    async def _follow_up(self, verdict: SessionVerdict, stepping: Stepping) -> ev.StoryFinished | None:
        """Do what the end of a work session asks for, beyond what was recorded with it."""
        if self._now.ending is not None:
            return None  # the loop ends once the work is committed
        match verdict.outcome:
            case Outcome.STOPPED:
                return self._stopped_by_person()
            case Outcome.STALLED:
                return self._stopped(Switch.STALL.tripped(verdict.detail))
            case Outcome.ASKS:
                await stepping.ask_for_agent(verdict.result.decision or {"question": verdict.detail})
            case Outcome.FAILED if not (_spiralled(verdict) or self._let_down):
                await stepping.attempt_failed(self._now.reason)
            case Outcome.STUCK:
                await stepping.recover(verdict.detail, Outcome.STUCK)
            case Outcome.OK | Outcome.PARTIAL | Outcome.FAILED:
                pass
        return None

    def _after_work(self, verdict: SessionVerdict) -> tuple[ev.Body, ...]:
        """Give what follows from a session's end, to be recorded with it."""
        let_down = self._loop.let_down(verdict)
        if let_down:
            return let_down  # nobody's work failed
        judged = self._loop.ended(verdict)
        ends = any(isinstance(body, ev.LoopEnded) for body in judged)
        if judged and not ends:
            return judged  # it begins anew, so its work is not taken
        if succeeded(verdict):
            return (ev.CheckpointPlanned(story_id=self._story.id), *judged)
        if verdict.outcome is Outcome.FAILED and not ends:
            return self._loop.failed(self._failure(f"session: {verdict.detail}", verdict.output))
        return judged

    @property
    def _let_down(self) -> bool:
        """Tell whether it was the agent's service that failed the newest session."""
        return self._now.refusal is not None or self._now.outages > 0

    def _after_verify(self, command: str, verdict: SessionVerdict) -> tuple[ev.Body, ...]:
        if verdict.outcome is not Outcome.FAILED:
            return ()
        reason = f"verify `{command}`: {verdict.detail}"
        return self._loop.failed(self._failure(reason, f"$ {command}\n{verdict.output}"))

    def _failure(self, reason: str, output: str) -> ev.AttemptFailed:
        attempt = self._now.attempt
        return ev.AttemptFailed(story_id=self._story.id, attempt=attempt, reason=reason, output=output)

    async def _checkpoint(self, workspace: Workspace, at: float) -> None:
        """Commit what the session left; repeating it after a crash finds it done."""
        before = self._now.commit or self._now.head or workspace.head
        made = await offload(self._place.commit, workspace, before, at)
        # The commit itself is durable: a resume that does not know of it finds it.
        self._tools.recorder.defer(
            ev.Checkpointed(story_id=self._story.id, commit=made.tip, commits=made.commits, files=made.files)
        )
        spiral = await self._loop.look_at_trees() if self._now.ending is None else ()
        if spiral:
            await self._record(*spiral)

    async def _conclude(self, workspace: Workspace, stepping: Stepping) -> ev.StoryFinished | None:
        """Judge the committed work by its claim, its artifacts and its commands; then the next step."""
        failure = None
        if self._story.owns or stepping.keeps_file:
            failure = await offload(self._objection, workspace, stepping)
        if failure is not None:
            await self._record(*self._loop.failed(failure))
            await stepping.attempt_failed(failure.reason)
            return None
        if stepping.verifies:
            ended = await self._verify(workspace, stepping)
            if ended is not None or not self._now.implemented:
                return ended
        if not stepping.keeps_file:
            return await self._passed(workspace)  # `quick` is this one step
        await stepping.finish_step()
        return None

    def _objection(self, workspace: Workspace, stepping: Stepping) -> ev.AttemptFailed | None:
        """Say what speaks against the step's being done, before any command is asked."""
        foreign = self._foreign(workspace, stepping)
        if foreign:
            words = "These paths lie outside your claim; undo their changes:\n" + "\n".join(foreign)
            return self._failure(f"changed outside its claim: {named(foreign)}", words)
        missing = stepping.missing_artifacts()
        if missing:
            words = "The step is done when these are there:\n" + "\n".join(missing)
            return self._failure(f"its artifacts are missing: {named(missing)}", words)
        return None

    def _foreign(self, workspace: Workspace, stepping: Stepping) -> tuple[str, ...]:
        """Name what this story changed outside its claim; the state file is the runner's own."""
        if not self._story.owns:
            return ()
        head = self._now.commit or workspace.base
        changed = self._repository.changed_paths(workspace.base, head, workspace.path)
        # As in the proof that claims are disjoint: what it took for one name is one here, too.
        claim = claims.compile(self._story.owns, folding=folds_case(self._repository.top))
        return claim.foreign(path for path in changed if path != stepping.state_name)

    async def _verify(self, workspace: Workspace, stepping: Stepping) -> ev.StoryFinished | None:
        """Run what is left of the verify commands; afterwards `implemented` tells whether all passed."""
        for command in self._sessions.verify_commands[self._now.verified :]:
            await self._place.require_there(workspace)
            verdict = await self._sessions.verify(
                workspace, command, unless=self._loop.halted, then=partial(self._after_verify, command)
            )
            if isinstance(verdict, KillSwitch):
                return self._stopped(verdict)
            match verdict.outcome:
                case Outcome.STOPPED:
                    return self._stopped_by_person()
                case Outcome.STALLED:
                    return self._stopped(Switch.STALL.tripped(f"`{command}`: {verdict.detail}"))
                case Outcome.FAILED:
                    await stepping.attempt_failed(self._now.reason)
                    return None
                case Outcome.OK | Outcome.PARTIAL | Outcome.ASKS | Outcome.STUCK:
                    continue
        return None

    async def _passed(self, workspace: Workspace) -> ev.StoryFinished:
        now = self._now
        commit, commits = now.commit or workspace.base, now.commits
        proof = "verified" if self._sessions.verify_commands else "no verify commands"
        if not now.sessions:
            commit, reason = workspace.head, "its flow was already done"
        elif commits:
            reason = f"{commits} commit{'s' * (commits > 1)}, {proof}"
        elif any(session.reported == "done" for session in now.sessions):
            reason = f"no change was needed, {proof}"
        else:
            return verdicts.no_work(self._story.id, commit=commit)
        if self._place.name and not self._tools.sharing:
            return self._done(workspace, commit, commits, reason)
        return await offload(self._done, workspace, commit, commits, reason)

    def _done(self, workspace: Workspace, commit: str, commits: int, reason: str) -> ev.StoryFinished:
        return verdicts.done(
            self._story.id,
            branch=self._place.name or self._repository.name_of_branch(workspace.branch),
            commit=commit,
            commits=commits,
            reason=reason,
            owned=self._touched(workspace, commit) if self._tools.sharing else (),
        )

    def _touched(self, workspace: Workspace, commit: str) -> tuple[str, ...]:
        """Give the globs of the claim in which something changed, with what it takes back; else all of it."""
        changed = self._repository.changed_paths(workspace.base, commit)
        folding = folds_case(self._repository.top)
        idle = {
            glob
            for glob in self._story.owns
            if not glob.startswith("!")
            and not any(map(claims.compile((glob,), folding=folding).owns, changed))
        }
        kept = tuple(glob for glob in self._story.owns if glob not in idle)
        return kept if any(not glob.startswith("!") for glob in kept) else self._story.owns

    def _stopped_by_person(self) -> ev.StoryFinished:
        return self._stopped(Switch.USER_ABORT.tripped(STOPPED_BY_USER))

    def _stopped(self, found: KillSwitch) -> ev.StoryFinished:
        return verdicts.stopped(self._story.id, self._run_id, found)

    async def _hook(self, name: str, workspace: Workspace) -> bool:
        return await run_hook(name, workspace=workspace, story_id=self._story.id, tools=self._tools)

    def _hook_failed(self, name: str) -> ev.StoryFinished:
        log = hook_log(name, story_id=self._story.id, tools=self._tools)
        return verdicts.failed(self._story.id, f"{name} failed", next_=f"see {log}")


def _spiralled(verdict: SessionVerdict) -> bool:
    """Tell whether the session said so itself; then it was no failed attempt."""
    return verdict.result.summary.get("spiral", 0) > 0


def _denied(verdict: SessionVerdict) -> str:
    """Say which tools the agent was not allowed to use: it may have gone on without them."""
    denied = verdict.said.denied if verdict.said else ()
    if not denied:
        return ""
    return f"its agent was denied {', '.join(denied)}; `permissions` under [agents] says what it may do"
