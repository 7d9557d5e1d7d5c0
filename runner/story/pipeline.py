"""The walk of one story, from its workspace to its result; it continues wherever a killed run left it.

Every act is idempotent and lies between an intent and its acknowledgment in the journal; what is
acknowledged is never repeated. A failure in here fails this story alone.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from msgspec import structs

from isolation.errors import IsolationError, UncommittableError
from isolation.files import threads
from isolation.model import Workspace
from isolation.worktree.removal import thin_trash
from runner.core.choose import Question
from runner.core.errors import JournalError, RunnerError
from runner.core.events import events as ev
from runner.core.flow import QUICK
from runner.core.limits.budget import Amount
from runner.core.limits.kill_switches import TAKEN_OVER, Switch
from runner.core.model import KillSwitch, Outcome, Status, StorySnapshot
from runner.core.schedule.exclusivity import runs_alone
from runner.story import results
from runner.story.candidates.candidates import Candidates
from runner.story.consequences import (
    EndFacts,
    complaints,
    consequences,
    failed_attempt,
    said_to_spiral,
    undone_change,
    unresolved,
    verify_consequences,
)
from runner.story.context.context import StoryContext, apart
from runner.story.context.hand_over import next_agent
from runner.story.context.judged import record_judged
from runner.story.faults import crashed, ended_by
from runner.story.flow.asked_in_words import with_question
from runner.story.flow.flaws import flaw_of
from runner.story.flow.steps import DONE_NUMBER, FlowSteps, open_flow
from runner.story.kill_switches import admit, before_verify, before_work
from runner.story.other_sessions import Others, check_others, note_deviation, session_visible
from runner.story.review.review import review
from runner.story.session.hooks import hook_failed, run_hook
from runner.story.session.session import SessionVerdict
from runner.story.session.shared_tree import run_watched
from runner.story.session.verify_place import VerifyPlace, verify_place
from runner.story.sessions import PreparedSession, prepare_verify, prepare_work, session_ended
from runner.story.slot import Slot
from runner.story.workspace import StoryWorkspace, intent

MOST_TRASH = 8
"""How many finished worktrees may wait for their deletion; each may be large."""

CHECKED_COMMITS = 2
"""A change that was undone and made again takes more commits of one step than this."""


class Pipeline:
    """Carries one story whose `intent` is recorded; `run` is called once.

    `interrupted` says that an earlier intent was never followed by a workspace that was recorded as open.
    Before the story has its slot, its workspace is made, and nothing else; it may be cancelled until then.
    """

    def __init__(self, context: StoryContext, *, interrupted: bool, slot: Slot) -> None:
        self._context = context
        self._story = context.story
        self._log = context.log
        self._slot = slot
        self._interrupted = interrupted
        self._story_workspace = StoryWorkspace(context, interrupted=interrupted)
        self._candidates = Candidates(context)

    @property
    def _now(self) -> StorySnapshot:
        """The state of the story after all that was published."""
        return self._log.snapshot.stories[self._story.id]

    async def run(self) -> None:
        """Carry the story to its result; a bug in here becomes its result and cancels no other story."""
        try:
            with self._slot.scope:
                await self._go_apart()
                while await self._carry():
                    await self._go_apart()
        except JournalError:
            raise
        except Exception as error:  # noqa: BLE001  one story's bug must not cancel its siblings
            await self._crashed(error)
        finally:
            self._slot.left.send_nowait(self._story.id)

    async def _crashed(self, error: Exception) -> None:
        """Record a bug as the story's result, or as a note if it already has one."""
        report = await threads.run(self._context.run.write_crash, error)
        result = crashed(error, self._story.id, self._log.snapshot.run_id, report)
        if self._now.status.final:
            await self._note((f"{result.reason} (see {report})",))
        else:
            await self._log.record(result)

    async def _go_apart(self) -> None:
        """Prepare a worktree for a story that is to leave the shared tree."""
        if not self._now.workspace.apart or self._context.run.shared_tree is None:
            return
        self._context = await threads.run(apart, self._context)
        self._candidates = Candidates(self._context)
        self._story_workspace = StoryWorkspace(self._context, interrupted=self._interrupted)
        await self._log.record(intent(self._story, self._context.run))

    async def _carry(self) -> bool:
        """Open the workspace, do the work, record the result, and close what may be closed.

        Return whether the story continues in another workspace.
        """
        context, story_id = self._context, self._story.id
        try:
            if self._candidates.between and await self._set_aside():
                return False
            async with await self._story_workspace.open() as opened:
                await self._slot.granted.wait()
                self._story = self._slot.story
                context = self._context = structs.replace(self._context, story=self._story)
                workspace = await self._story_workspace.begin(opened)
                result = await self._walk(workspace, await open_flow(context, workspace))
                result = await self._candidates.judged(result, workspace) if result is not None else None
                if result is None:
                    return True
                await self._finish(result)
                opened.finished = result.verdict in {Status.DONE, Status.NO_WORK}
                if opened.finished and not context.run.shared_tree:
                    await run_hook("before_remove", self._context, workspace)
        except JournalError:
            raise
        except (IsolationError, RunnerError) as error:
            await self._slot.granted.wait()  # a story fails when it is its turn, not while it is prepared
            if not self._now.status.final:
                await self._finish(ended_by(error, story_id, self._log.snapshot.run_id))
            if not context.run.shared_tree and not context.run.workspace_path(story_id).exists():
                reason = "its folder is gone"
                await self._log.record(ev.WorkspaceClosed(story_id=story_id, removed=True, reason=reason))
            return False
        if opened.closing is not None:
            removed, reason = opened.closing.removed, opened.closing.reason
            await self._log.record(ev.WorkspaceClosed(story_id=story_id, removed=removed, reason=reason))
            if not opened.closing.reused:
                thin = partial(thin_trash, most=MOST_TRASH)
                await threads.run(thin, context.repository, context.run.worktree_root)
        return False

    async def _set_aside(self) -> bool:
        """Set a candidate aside and plan the workspace of the next one; True if an earlier one has won."""
        await self._slot.granted.wait()
        result = await self._candidates.set_aside()
        if result is not None:
            await self._finish(result)
            return True
        self._story_workspace = StoryWorkspace(self._context, interrupted=False)
        await self._log.record(intent(self._story, self._context.run))
        return False

    async def _finish(self, result: ev.StoryFinished) -> None:
        """Publish the result, and continue once it is durable.

        Others need not wait for that: all that led to it is recorded, so a resume arrives at it again.
        """
        self._log.defer(result)
        await self._log.record()

    async def _walk(self, workspace: Workspace, flow: FlowSteps) -> ev.StoryFinished | None:
        """Go from wherever the story is to its result; None once it leaves the shared tree."""
        if not self._now.own_sessions and (how := await run_hook("after_create", self._context, workspace)):
            return hook_failed("after_create", how, self._context)
        progress = self._now.progress
        if not progress.implemented and progress.checkpoint_planned_at is None:
            await flow.find_step()  # what was begun is completed first
        while self._context.run.shared_tree is None or not self._now.workspace.apart:
            result = await self._advance(workspace, flow)
            if result is not None:
                await flow.leave(result)
                await self._commit_own_edits(workspace, flow, result)
                return result
        return None

    async def _advance(  # noqa: PLR0911  one return per thing to do
        self, workspace: Workspace, flow: FlowSteps
    ) -> ev.StoryFinished | None:
        """Do the one thing that comes next; what was begun is completed first."""
        now = self._now
        if now.progress.checkpoint_planned_at is not None:
            await self._checkpoint(workspace, flow, now.progress.checkpoint_planned_at)
            return None
        if now.decision is not None:
            await note_deviation(self._context)
            return await flow.act_on_answer()
        if now.ending is not None:
            return self._stopped(now.ending)
        if now.refusal is not None:
            return self._refused(*now.refusal)
        if now.place.number == DONE_NUMBER:
            return await (self._passed(workspace) if flow.judged else self._unjudged(workspace, flow))
        if now.progress.attempt > now.max_attempts:
            return await flow.give_up()
        if not now.progress.implemented:
            return await self._work(workspace, flow)
        if self._context.aborted == TAKEN_OVER:  # also if nothing but its result is left
            return self._stopped(Switch.USER_ABORT.tripped(TAKEN_OVER))
        return await self._conclude(workspace, flow)

    async def _work(self, workspace: Workspace, flow: FlowSteps) -> ev.StoryFinished | None:
        """Run one work session if it may start; a result ends the story, None continues it."""
        allowance = await self._admit(workspace, flow)
        if not isinstance(allowance, Amount):
            return allowance
        try:
            if how := await run_hook("before_run", self._context, workspace):
                return hook_failed("before_run", how, self._context)
            if not await flow.begin():
                return None
            prepared = await prepare_work(self._context, workspace, flow.brief(), allowance)
            ended = await self._run_session(prepared)
            await self._story_workspace.release_locks()
            await run_hook("after_run", self._context, workspace)
            if isinstance(ended, KillSwitch):
                return self._stopped(ended)
            await self._note(complaints(ended))
            return await self._follow_up(ended, flow)
        finally:
            self._context.run.budget.give_back(self._story.id)

    async def _admit(self, workspace: Workspace, flow: FlowSteps) -> Amount | ev.StoryFinished | None:
        """Return what the next work session may spend; else a result, or None to start over."""
        context = self._context
        stop = before_work(context)
        if stop is not None:
            return self._stopped(stop)
        found: Others | Question | KillSwitch | Amount = await check_others(context)
        if found is Others.CLEAR:
            await self._story_workspace.require_there(workspace)
            found = await admit(context, workspace)
        if isinstance(found, Amount) and context.now.mode:
            # The mode that the selector has just chosen may tolerate fewer others than the one before.
            others = await check_others(context)
            if others is not Others.CLEAR:
                context.run.budget.give_back(self._story.id)
                found = others
        if isinstance(found, Question):
            await flow.ask(found)
        if isinstance(found, KillSwitch):
            return self._stopped(found)
        return found if isinstance(found, Amount) else None

    async def _run_session(
        self, prepared: PreparedSession, *, verify: str = "", without: tuple[str, ...] = ()
    ) -> SessionVerdict | KillSwitch:
        """Run a prepared session, or a verify command `without` some files, if no kill-switch is on by now.

        Its end and the consequences are recorded in one transaction.
        """
        context, order = self._context, prepared.order
        # Judged once more inside the transaction: what others recorded since it was prepared counts.
        unless = partial(before_verify if verify else before_work, context)
        async with self._turn(verify), session_visible(order.session_id, context) as presence:
            refused = await self._log.record_unless(unless, prepared.started)
            if refused is not None:
                return refused
            await presence.seen()  # other runs must be able to see it before it works
            ended = await run_watched(
                structs.replace(order, beside=self._story_workspace.beside), context.run
            )
            await self._story_workspace.survive(order.spec.cwd, worked=not verify)
            presence.end()  # the entry is withdrawn while the end is recorded
            ended = await with_question(ended, order, context)
            judge = partial(consequences, ended)
            if verify:
                judge = partial(verify_consequences, ended, verify, without=without)
            end = session_ended(order, ended, context.settings)
            await record_judged(self._log, lambda: judge(self._end_facts()), end)
        return ended

    async def _note(self, messages: tuple[str, ...]) -> None:
        notes = [ev.Noted(story_id=self._story.id, message=message) for message in messages]
        if notes:
            await self._log.record(*notes)

    @asynccontextmanager
    async def _turn(self, verify: str) -> AsyncIterator[None]:
        """Wait until the session may run beside those of other stories; an abort ends the wait."""
        context = self._context
        gate, alone = context.run.gate, not verify and runs_alone(context.mode)
        if not gate.is_open(alone=alone):
            who = f"mode {context.mode} runs alone" if alone else "another session runs alone"
            self._log.show(ev.OutputSeen(story_id=self._story.id, line=f"waits for other sessions: {who}"))
        async with gate.entered(alone=alone, unless=context.abort):
            yield

    async def _follow_up(self, ended: SessionVerdict, flow: FlowSteps) -> ev.StoryFinished | None:
        """Do what the end of a work session asks for, beyond what was recorded with it."""
        now = self._now
        if now.ending is not None:
            return None  # the loop ends once the work is committed
        match ended.outcome:
            case Outcome.STOPPED:
                return self._stopped(self._asked_to_stop(ended))
            case Outcome.STALLED:
                return self._stopped(Switch.STALL.tripped(ended.detail))
            case Outcome.ASKS:
                await flow.ask_for_agent(ended.result.decision or {"question": ended.detail})
            case Outcome.FAILED:
                service_failed = now.refusal is not None or now.outage.count > 0
                if not service_failed and not said_to_spiral(ended):
                    await flow.attempt_failed(now.reason)
            case Outcome.STUCK:
                await flow.recover(ended.detail, Outcome.STUCK)
            case Outcome.PARTIAL:
                await flow.session_partial(now.sessions[-1])
            case Outcome.OK:
                pass
        return None

    def _end_facts(self) -> EndFacts:
        context = self._context
        return EndFacts(
            story=self._story,
            now=self._now,
            agent=context.worker.agent.name,
            cohort_spirals=context.log.snapshot.cohort_spirals,
            aborted=context.aborted,
            at=self._log.now(),
            chance=random.random(),  # noqa: S311  spreads retries, keeps no secret
            next_agent=next_agent(context),
            spiral_limit=context.settings.spiral_limit,
        )

    async def _checkpoint(self, workspace: Workspace, flow: FlowSteps, at: float) -> None:
        """Commit what the session left; repeating it after a crash finds it done."""
        now = self._now
        since = now.workspace.commit or now.workspace.head or workspace.head
        await self._story_workspace.after_checkouts()
        try:
            made = await threads.run(self._story_workspace.commit, workspace, since, at)
        except UncommittableError as error:
            if now.place.number == DONE_NUMBER:
                raise  # no session follows that could put it right
            await self._reject(error.message, error.words, flow)
            return
        # The commit itself is durable: a resume that does not know of it finds it.
        self._log.defer(
            ev.Checkpointed(
                story_id=now.id,
                commit=made.tip,
                commits=made.commits,
                files=made.files,
                unchanged=made.unchanged,
                markers=made.markers,
            )
        )
        now = self._now
        if (
            now.ending is not None
            or self._story.command
            or len(now.step_history.checkpoints) <= CHECKED_COMMITS
        ):
            return
        commits = tuple(commit for commit in (now.workspace.base, *now.step_history.checkpoints) if commit)
        trees = await threads.run(self._context.repository.trees, commits)
        if undone_change(trees, self._end_facts()):
            await record_judged(self._log, lambda: undone_change(trees, self._end_facts()))

    async def _commit_own_edits(
        self, workspace: Workspace, flow: FlowSteps, result: ev.StoryFinished
    ) -> None:
        """Commit what the runner itself wrote since the last checkpoint: the branch tells the truth."""
        paths = flow.own_files(parked=result.verdict == Status.PARKED)
        if not paths:
            return
        now, at = self._now, self._log.now()
        tip = await threads.run(self._story_workspace.commit_own, workspace, paths, at)
        if tip is None:
            return
        files = now.sessions[-1].files_changed if now.sessions else None
        commits = now.workspace.commits + 1
        self._log.defer(ev.Checkpointed(story_id=now.id, commit=tip, commits=commits, files=files))

    async def _conclude(self, workspace: Workspace, flow: FlowSteps) -> ev.StoryFinished | None:
        """Judge the committed work by its claim, its artifacts and its commands; then take the next step."""
        flaw = unresolved(self._now.workspace.markers)
        if flaw is None and (self._story.owns or flow.keeps_file):
            flaw = await threads.run(flaw_of, self._context, self._story_workspace, workspace, flow)
        if flaw is not None:
            await self._reject(*flaw, flow)
            return None
        if flow.verifies:
            result = await self._verify(workspace, flow)
            if result is not None or not self._now.progress.implemented:
                return result
        if flow.is_last:
            stop = await review(self._context, workspace)
            if stop is not None:
                return self._stopped(stop)
            if not self._now.progress.implemented:
                await flow.attempt_failed(self._now.reason)
                return None
        if not flow.keeps_file:
            return await self._passed(workspace)  # `quick` is this one step
        await flow.finish_step()
        return None

    async def _reject(self, reason: str, words: str, flow: FlowSteps) -> None:
        """Record a failed attempt, with the message for its next session."""
        await self._log.record(*failed_attempt(reason, words, self._end_facts()))
        await flow.attempt_failed(reason)

    async def _verify(self, workspace: Workspace, flow: FlowSteps) -> ev.StoryFinished | None:
        """Run the verify commands that are left; afterwards `implemented` says whether all passed."""
        if not self._context.verify:
            return None
        await self._story_workspace.require_there(workspace)
        async with verify_place(self._context, workspace) as place:
            if not place.flaw:
                return await self._verify_in(place, flow)
            await self._reject(place.flaw, place.flaw, flow)
            return None

    async def _verify_in(self, place: VerifyPlace, flow: FlowSteps) -> ev.StoryFinished | None:
        for number, command in enumerate(self._context.verify[place.passed :]):
            if number:  # the command before may have cut the tree off
                await self._story_workspace.require_there(place.workspace)
            prepared = await prepare_verify(self._context, place.workspace, command)
            ended = await self._run_session(prepared, verify=command, without=place.without)
            if isinstance(ended, KillSwitch):
                return self._stopped(ended)
            match ended.outcome:
                case Outcome.STOPPED:
                    return self._stopped(self._asked_to_stop(ended))
                case Outcome.STALLED:
                    return self._stopped(Switch.STALL.tripped(f"`{command}`: {ended.detail}"))
                case Outcome.FAILED:
                    if self._now.refusal is not None:
                        return self._refused(*self._now.refusal)
                    await flow.attempt_failed(self._now.reason)
                    return None
                case Outcome.OK | Outcome.PARTIAL | Outcome.ASKS | Outcome.STUCK:
                    continue
        return None

    def _refused(self, reason: str, hint: str) -> ev.StoryFinished:
        return results.failed(self._story.id, reason, next_=hint)

    async def _unjudged(self, workspace: Workspace, flow: FlowSteps) -> ev.StoryFinished:
        """Return the result of a flow whose end no verify command has judged; no work without a session."""
        result = await self._verify(workspace, flow)
        if result is not None:
            return result
        why = "its last step was skipped" if flow.worked else "its flow was already done"
        if self._now.progress.verified < len(self._context.verify):
            return results.failed(self._story.id, f"{why}, but {self._now.reason}")
        if flow.worked:
            return await self._passed(workspace)
        return results.no_work(self._story.id, commit=workspace.head, reason=f"{why}, {self._proof}")

    @property
    def _proof(self) -> str:
        return self._context.run.proof if self._context.verify else "no verify commands"

    async def _passed(self, workspace: Workspace) -> ev.StoryFinished:
        context, now, proof = self._context, self._now, self._proof
        commit, commits = now.workspace.commit or workspace.base, now.workspace.commits
        if commits and not now.workspace.unchanged:
            squashed = await self._squashed(workspace, commit, commits) if context.settings.squash else None
            reason = results.with_commits(commits, proof, squashed=squashed is not None)
            commit, commits = (squashed, 1) if squashed is not None else (commit, commits)
        else:
            reason = results.without_change(commits, proof, fine=self._story.allow_no_change)
            return results.no_work(now.id, commit=commit, reason=reason)
        return results.done(now.id, commit=commit, commits=commits, reason=reason)

    async def _squashed(self, workspace: Workspace, commit: str, commits: int) -> str | None:
        """Return the one commit that the story's commits have become; None if they stay as they are."""
        if commits == 1 or self._now.flow != QUICK.name:
            return None
        made = await threads.run(self._story_workspace.squash, workspace, commit)
        if made is None:
            message = "its commits were not squashed, since its branch contains merges or has moved"
            await self._log.record(ev.Noted(story_id=self._story.id, message=message))
        return made

    def _asked_to_stop(self, ended: SessionVerdict) -> KillSwitch:
        """Return what ended a session: the story's time limit, or what the user did."""
        if ended.overdue:
            return Switch.STORY_TIME.tripped(ended.detail)
        return Switch.USER_ABORT.tripped(self._context.aborted or ended.detail)

    def _stopped(self, found: KillSwitch) -> ev.StoryFinished:
        return results.stopped(self._story.id, self._log.snapshot.run_id, found)
