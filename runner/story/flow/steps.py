"""How a story goes through its flow: its current step, what the step needs, what the user must decide.

The journal says where the story is, and the state file in its workspace follows. Folders win over both when
a run opens a story for the first time. A question parks the story; the answer is acted upon once, when the
story continues.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from trio import to_thread

from isolation.model import Workspace
from runner.core import choose
from runner.core.agent_question import from_result
from runner.core.events import events as ev
from runner.core.flow import QUICK, EndReason, FlowStep, state_paths, step, transition
from runner.core.limits.context_zone import reached_context_limit
from runner.core.limits.kill_switches import Switch
from runner.core.limits.stuck import Recovery, indicates_corruption, question_digest, recovery
from runner.core.model import (
    FLOW_DONE,
    Decision,
    Outcome,
    SessionKind,
    SessionRecord,
    Status,
    Step,
    StorySnapshot,
)
from runner.core.text.telling import with_line
from runner.core.text.words import count
from runner.records.history import Past
from runner.story import results
from runner.story.context.context import StoryContext
from runner.story.flow.answers import EARLIER, Effect, effect_of, settles, words_for, words_for_session
from runner.story.flow.brief import Brief, last_session
from runner.story.flow.decisions import recommended
from runner.story.flow.memories import DECISION, remembered
from runner.story.session.contract import StateFacts

if TYPE_CHECKING:
    from runner.flows.state.transitions import Overflow
    from runner.flows.story_state import StoryState
    from runner.story.flow.tracker_gate import TrackerGate

DONE_NUMBER = FLOW_DONE.number


class FlowSteps:
    """One story's way through its flow."""

    def __init__(
        self, context: StoryContext, workspace: Workspace, state: "StoryState | None" = None
    ) -> None:
        self._context = context
        self._story = context.story
        self._log = context.log
        self._record = context.log.record
        self._workspace = workspace
        if state is None and context.story.flow != QUICK.name:
            state = _open_state(context, workspace)
        self._state = state
        self._flow = self._state.flow if self._state else QUICK

    @property
    def keeps_file(self) -> bool:
        """Whether the flow has a state file; the progress of `quick` is in the journal alone."""
        return self._state is not None

    def keeps(self, path: str) -> bool:
        """Whether a path is that of the story's state file, which the runner writes."""
        return self._state is not None and path in state_paths(self._flow.docs)

    @property
    def _now(self) -> StorySnapshot:
        return self._context.now

    @property
    def _past(self) -> Past:
        return self._context.run.past.get(self._story.id, Past())

    @property
    def _work_steps(self) -> tuple[FlowStep, ...]:
        return tuple(one for one in self._flow.steps if one.kind is SessionKind.WORK)

    @property
    def _skipped(self) -> set[str]:
        """The steps that the user skipped, in this run or before it."""
        return {*self._now.skipped_steps, *(self._state.skipped_steps if self._state else ())}

    @property
    def worked(self) -> bool:
        """Whether a session of the story has worked in this run."""
        return any(one.kind is SessionKind.WORK for one in self._now.sessions)

    @property
    def judged(self) -> bool:
        """Whether the last step of the flow ran, so that the verify commands have judged the story."""
        return self.worked and self._work_steps[-1].number not in self._skipped

    @property
    def is_last(self) -> bool:
        """Whether no work step follows the current one."""
        return self._following() is FLOW_DONE

    @property
    def verifies(self) -> bool:
        """Whether the verify commands judge this step: it implements, is the last, or they follow it."""
        place = self._now.place
        numbers = [one.number for one in self._flow.steps]
        after = numbers.index(place.number) + 1 if place.number in numbers else len(numbers)
        checked = [one.kind for one in self._flow.steps[after : after + 1]] == [SessionKind.VERIFY]
        return checked or self.is_last or place.name.startswith("Implement")

    def brief(self) -> Brief:
        """Return what the session for the current step gets to know."""
        place = self._now.place
        found = step(self._flow, place.number)
        state = self._state
        return Brief(
            step=place,
            prompt=state.step_prompt(place.number) if state else "",
            command=found.command if found else None,
            state_file=str(state.path) if state else "",
            docs=state.flow.docs if state else "",
            answers=self._answers(),
            verified=self.verifies,
            last=last_session(self._now, self._past),
            facts=self._facts(found),
            # Asked every second while the session runs, which may be writing the state file at that moment.
            artifacts=partial(state.artifact_files, place.number, state.cycle()) if state else None,
        )

    def _answers(self) -> tuple[str, ...]:
        """Return what was decided in this run and in earlier ones, in the words for a session."""
        decided = (*self._past.answers, *self._now.decided)
        return tuple(dict.fromkeys(words for words in map(words_for_session, decided) if words))

    def _facts(self, found: FlowStep | None) -> StateFacts | None:
        if self._state is None:
            return None
        from runner.story.flow.briefing import state_facts

        by_agent = found is not None and found.tracker and self._gate(self._state).left_to_agent()
        return state_facts(self._state, found, by_agent=by_agent)

    async def find_step(self) -> None:
        """Find the step to continue with, whenever the story is opened; a question parks the story."""
        now = self._now
        if self._state is None:
            if self._past.reason and not (now.sessions or now.decided or now.decision):
                await self.ask(choose.story_failed(title=self._story.title, reason=self._past.reason))
            return
        from runner.story.flow.entry import enter

        question = await enter(self._context, self._state, self._past)
        if question is not None:
            await self.ask(question)

    async def give_up(self) -> ev.StoryFinished | None:
        """End a story whose attempts are used up; one that follows a flow asks the user what to do."""
        now = self._now
        if self._state is None:
            gave_up = f"gave up after {count(now.max_attempts, 'attempt')}: {now.reason}"
            return results.failed(self._story.id, gave_up)
        reason = with_line(now.reason, now.step_history.last_failure)
        sub_step = await to_thread.run_sync(self._state.sub_step)
        await self.ask(
            choose.skill_failed(
                number=now.place.number, name=now.place.name, sub_step=sub_step, reason=reason
            )
        )
        return None

    async def begin(self) -> bool:
        """Write into the state file that the current step is in progress, with its retries.

        False when a question about its tracker comes first.
        """
        if self._state is None:
            return True
        now = self._now
        here = step(self._flow, now.place.number)
        question = await self._gate(self._state).question(here) if here else None
        if question is not None:
            await self.ask(question)
            return False
        await self._keep(
            await to_thread.run_sync(partial(self._state.begin, now.place, retries=now.retry_count))
        )
        return True

    async def attempt_failed(self, reason: str) -> None:
        """Count a failed attempt in the state file; the story is at the next one already."""
        state, now = self._state, self._now
        if state is None or now.place.number == DONE_NUMBER:
            return
        failed = partial(state.failed, reason, attempt=now.progress.attempt - 1, attempts=now.max_attempts)
        await self._keep(await to_thread.run_sync(failed))
        if indicates_corruption(reason) or state.damages:
            note = "what was saved of this step is corrupt, so it starts at its first sub-step again"
            await self._record(ev.Noted(story_id=self._story.id, message=note))
            await self._keep(await to_thread.run_sync(state.restart))
        await self._note_damages()

    async def _note_damages(self) -> None:
        """Write into the log what was found damaged in the state file, or cannot be trusted."""
        state = self._state
        if state is not None and (said := (*state.damages, *state.oddities)):
            state.damages = state.oddities = ()
            await self._record(*(ev.Noted(story_id=self._story.id, message=text) for text in said))

    def missing_artifacts(self) -> tuple[str, ...]:
        """Return the artifacts that the step should have left and that are missing."""
        return self._state.missing_artifacts(self._now.place.number) if self._state else ()

    async def finish_step(self) -> None:
        """Take the next step; at a session boundary the user is asked first."""
        if self._state is None:
            return
        place, following = self._now.place, self._following()
        lines = await to_thread.run_sync(self._state.summary, place.number)
        summary = (*lines, f"Commits: {self._now.workspace.commits}")
        moved = transition(self._flow, place.number, summary=summary, skipped=self._skipped)
        asks = moved.question is not None and not self._context.settings.cross_boundaries
        outcome = self._outcome()
        here = step(self._flow, place.number)
        if here is not None and here.tracker and await self._keeps_items(self._state, here):
            return
        overflow = await to_thread.run_sync(
            partial(self._state.completed, following, at_boundary=moved.question is not None, outcome=outcome)
        )
        await self._record(
            self._step_finished(following), *self._memories(overflow), *self._last_commit(following)
        )
        await self._note_damages()
        if asks and moved.question is not None and following is not FLOW_DONE:
            await self.ask(moved.question)

    async def _keeps_items(self, state: "StoryState", here: FlowStep) -> bool:
        """Whether something comes before the next step: a question about the tracker, or ids to commit."""
        settled = await self._gate(state).keep(here)
        if isinstance(settled, choose.Question):
            await self.ask(settled)
        elif settled:
            await self._record(ev.CheckpointPlanned(story_id=self._story.id))
        return bool(settled)

    def _outcome(self) -> str:
        """Return the step's outcome in one line: what its session noted, else which attempt it was."""
        worked = [one for one in self._now.sessions if one.kind is SessionKind.WORK]
        notes = worked[-1].notes if worked else ""
        return notes or f"attempt {self._now.progress.attempt}"

    def own_files(self, *, parked: bool) -> tuple[str, ...]:
        """Return the paths in which only the runner has changed something since the last checkpoint.

        That is the state file, and all documents unless a session of the step has left something there.
        """
        if self._state is None:
            return ()
        now = self._now
        begun = bool(now.sessions) and now.sessions[-1].step.number == now.place.number
        return state_paths(self._flow.docs) if begun and not parked else (self._flow.docs,)

    async def session_partial(self, session: SessionRecord) -> None:
        """Record that a session saved its work and ended because its context was full, if that is why."""
        if self._state is not None and reached_context_limit(session):
            notes = session.notes or session.detail
            await self._keep(await to_thread.run_sync(self._state.ended, EndReason.CONTEXT_LIMIT, notes))

    async def leave(self, result: ev.StoryFinished) -> None:
        """Record in the state file how the story ended for now."""
        state, now = self._state, self._now
        if state is None or not now.sessions or result.verdict in {Status.DONE, Status.NO_WORK}:
            return
        asked = now.decision.question.get("kind") if now.decision is not None else None
        if asked == choose.QuestionKind.BOUNDARY:
            return  # the boundary has recorded it
        failed = result.verdict == Status.FAILED or asked == choose.QuestionKind.FAILURE
        reason: str = EndReason.FAILED if failed else EndReason.PAUSED
        switch = (result.kill_switch or {}).get("name", "")
        if switch and switch != Switch.USER_ABORT:
            reason = switch
        await self._keep(await to_thread.run_sync(state.ended, reason, result.reason))
        await self._note_damages()

    def _last_commit(self, following: Step) -> tuple[ev.Body, ...]:
        """Plan the commit of the final state file when the flow is complete."""
        if following is FLOW_DONE and self.keeps_file:
            return (ev.CheckpointPlanned(story_id=self._story.id),)
        return ()

    def _following(self) -> Step:
        numbers = [one.number for one in self._work_steps]
        place = self._now.place.number
        after = numbers.index(place) + 1 if place in numbers else len(numbers)
        ahead = [one for one in self._work_steps[after:] if one.number not in self._skipped]
        return Step(number=ahead[0].number, name=ahead[0].name) if ahead else FLOW_DONE

    def _step_finished(self, following: Step, *, skipped: bool = False) -> ev.StepFinished:
        place = self._now.place
        return ev.StepFinished(
            story_id=self._story.id,
            step_number=place.number,
            step_name=place.name,
            next_number=following.number,
            next_name=following.name,
            skipped=skipped,
        )

    async def ask_for_agent(self, decision: Mapping[str, Any]) -> None:
        """Ask what an agent wrote into its result."""
        reading = from_result(decision)
        digest = question_digest(reading.question.title)
        if any(digest == question_digest(str(old.question.get("title", ""))) for old in self._now.decided):
            await self.recover("the same question was asked again after it was answered", Outcome.ASKS)
            return
        notes = [ev.Noted(story_id=self._story.id, message=note) for note in reading.notes]
        if notes:
            await self._record(*notes)
        await self.ask(reading.question)

    async def recover(self, reason: str, outcome: Outcome) -> None:
        """Recover from a session without progress: read the state again, try again, then ask the user."""
        place = self._now.place
        failures = -1
        for session in reversed(self._now.sessions):
            if session.step.number != place.number or session.outcome is not outcome:
                break
            failures += 1
        if outcome is Outcome.ASKS:
            failures -= 1  # the first one was a question like any other
        noted = ev.Noted(
            story_id=self._story.id, message=f"step {place.number} ({place.name}) is stuck: {reason}"
        )
        await self._record(noted)
        match recovery(failures):
            case Recovery.RE_READ:
                await self.find_step()
            case Recovery.RETRY:
                return
            case Recovery.ASK:
                details = (f"Reason: {reason}", f"Sessions of this step: {failures + 1}")
                sub_step = await to_thread.run_sync(self._state.sub_step) if self._state else ""
                await self.ask(
                    choose.recovery(skill=place.name, step=place.number, sub_step=sub_step, details=details)
                )

    async def ask(self, question: choose.Question) -> None:
        """Ask the user; unattended, the recommended answer is taken immediately if the settings say so."""
        asked = ev.DecisionAsked(
            story_id=self._story.id,
            decision_id=f"{self._story.id}-{len(self._now.decided) + 1}",
            question=choose.to_json(question),
        )
        await self._record(asked)
        earlier = self._earlier_answer(question)
        if earlier is not None:
            await self._record(
                ev.DecisionAnswered(
                    story_id=self._story.id, decision_id=asked.decision_id, letter=earlier, by=EARLIER
                )
            )
        elif self._context.settings.decide_default == "recommended":
            answered = recommended(self._context.log.snapshot, self._story.id)
            if answered is not None:
                await self._record(answered)

    def _earlier_answer(self, question: choose.Question) -> str | None:
        """Return what the user answered to this in an earlier run; None if it is a new question."""
        past = self._past
        if any(one.question.get("title") == question.title for one in self._now.decided):
            return None  # it has been used, and did not help
        for decision in reversed(past.answers):
            if settles(decision, question, applied=decision not in past.pending):
                return decision.letter
        return None

    async def act_on_answer(self) -> ev.StoryFinished | None:
        """Do what the user chose; until then the story is parked."""
        decision = self._now.decision
        if decision is None:
            return None
        question = choose.from_json(decision.question)
        if not decision.letter:
            return results.parked(self._story.id, question.title)
        effect = effect_of(question, decision.letter)
        if effect is Effect.PAUSE:
            missing = await to_thread.run_sync(self._missing, question.until)
            if missing:
                return results.paused(self._story.id, self._log.snapshot.run_id, missing)
        return await self._carry_out(effect, decision, question)

    async def _carry_out(
        self, effect: Effect, decision: Decision, question: choose.Question
    ) -> ev.StoryFinished | None:
        state, words = self._state, words_for(question, decision.letter)
        memories: tuple[ev.Body, ...]
        if state is None:
            memories = (ev.Remembered(story_id=self._story.id, topic=DECISION, text=words),)
        else:
            memories = self._memories(await to_thread.run_sync(state.decided, words))
        applied = ev.DecisionApplied(
            story_id=self._story.id,
            decision_id=decision.id,
            retry=effect is Effect.RETRY,
            moved=effect is Effect.MOVE,
        )
        match effect:
            case Effect.CONTINUE | Effect.PAUSE | Effect.MOVE:
                memories += await self._chosen_step(question, decision.letter)
            case Effect.RETRY:
                if state is not None:
                    await to_thread.run_sync(state.retried)
            case Effect.SKIP:
                following = self._following()
                if state is not None:
                    memories += self._memories(await to_thread.run_sync(state.skipped, following))
                skipped = self._step_finished(following, skipped=True)
                memories = (skipped, *memories, *self._last_commit(following))
            case Effect.ABORT:
                await self._record(applied, *memories)
                return results.failed(self._story.id, f"aborted by decision: {words}")
            case _:
                assert_never(effect)
        await self._record(applied, *memories)
        return None

    async def _chosen_step(self, question: choose.Question, letter: str) -> tuple[ev.Body, ...]:
        """Return the events that take the story to the step that the user chose; none if it is there."""
        number = question.option(letter).step
        found = step(self._flow, number) if number and number != self._now.place.number else None
        if found is None or self._state is None:
            return ()
        place = Step(number=found.number, name=found.name)
        await self._keep(await to_thread.run_sync(self._state.go_to, place))
        chosen = f"at step {found.number} ({found.name}), as you decided"
        return (
            ev.PlaceFound(
                story_id=self._story.id,
                step_number=found.number,
                step_name=found.name,
                confidence=1.0,
                correction=chosen,
                retries=0,
            ),
        )

    def _missing(self, artifacts: tuple[str, ...]) -> tuple[str, ...]:
        from runner.flows.scan import is_there

        return tuple(text for text in artifacts if not is_there(self._workspace.path, text))

    def _gate(self, state: "StoryState") -> "TrackerGate":
        from runner.story.flow.tracker_gate import TrackerGate

        return TrackerGate(self._context, self._workspace, state)

    async def _keep(self, overflow: "Overflow") -> None:
        memories = self._memories(overflow)
        if memories:
            await self._record(*memories)

    def _memories(self, overflow: "Overflow") -> tuple[ev.Remembered, ...]:
        """Return what the dialect has no section for, to be kept in the journal."""
        return remembered(self._story.id, overflow)


async def open_flow(context: StoryContext, workspace: Workspace) -> FlowSteps:
    """Begin a story's way through its flow; reads its state file, if the flow has one."""
    if context.story.flow == QUICK.name:
        return FlowSteps(context, workspace)
    return await to_thread.run_sync(FlowSteps, context, workspace)


def _open_state(context: StoryContext, workspace: Workspace) -> "StoryState":
    """Open the state file of a story that follows a flow; imported here, since most stories do not."""
    from runner.flows.places import find_docs
    from runner.flows.story_state import StoryState

    story, repository = context.story, context.repository

    def changed() -> tuple[str, ...]:
        # A shared tree has no branch of the story checked out, and never kept a state file anywhere else.
        if context.run.shared_tree:
            return ()
        return repository.changed_paths(workspace.base, workspace.head, workspace.path)

    return StoryState(
        story_id=story.id,
        flow_name=story.flow,
        dialect=story.dialect or context.settings.dialect,
        workspace=workspace.path,
        docs=context.now.docs or find_docs(workspace.path, context.settings.docs_folder, story.id, changed),
        exchange=context.exchange(workspace),
        top=repository.top,
    )
