"""The loop of one story: asks before and after each session whether it goes on.

`core.loop` decides; this driver gathers what it decides on and gives the answer the form that is
recorded. What it is told comes through small protocols, so that each can be something else.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

import trio
from msgspec import Struct
from msgspec.structs import replace

from isolation.git.repository import offload
from isolation.model import Workspace
from runner.core import choose
from runner.core.events import agent_events as ae
from runner.core.events import events as ev
from runner.core.limits.budget import Amount
from runner.core.limits.kill_switches import (
    STOPPED_BY_USER,
    After,
    AfterFacts,
    LoopFacts,
    Switch,
    after_session,
    before_session,
    parks,
)
from runner.core.limits.outage import OutageFacts, Pause, Refusal, after_outage
from runner.core.limits.spiral import failure_digest, same_failure, undone_and_redone
from runner.core.model import MAX_RETRIES, KillSwitch, Outcome, Story, StorySnapshot, Tier, Usage
from runner.core.text.instants import clock
from runner.story.context.context import RunContext
from runner.story.context.stop import Level
from runner.story.session.selector import Selector, selector_for
from runner.story.session.session import SessionVerdict

LOOK_AT_PAUSE = 15.0
_BY_HAND = (
    "see to it that `{}` works here by hand (its sign-in, its key, the model), then "
    "`autopilot-multi resume --retry-failed`."
)
_ONCE_WELL = "once the service of `{}` is well again: `autopilot-multi resume --retry-failed`."


class ResourceEvaluator(Protocol):
    """Judges the machine."""

    def __call__(self) -> Tier:
        """Give the tier of now."""


class PeerCounter(Protocol):
    """Counts the agent sessions on this machine that are not ours."""

    def __call__(self) -> int | None:
        """Give the newest count; None is unknown."""


class Abort(Protocol):
    """Knows whether a person asked to stop."""

    def __call__(self) -> bool:
        """Tell whether nothing new may start for this story."""


class SessionRunner(Protocol):
    """Runs one session to its end, and says whether that was the story's end too."""

    async def __call__(self, allowance: Amount) -> ev.StoryFinished | None:
        """Run it; it should spend no more than its allowance."""


class Senses(Struct, frozen=True, kw_only=True):
    """What the loop is told from outside."""

    selector: Selector
    tier: ResourceEvaluator
    peers: PeerCounter
    aborted: Abort


class StoryLoop:
    """One story's loop; the run's snapshot is its memory."""

    def __init__(
        self,
        *,
        story: Story,
        tools: RunContext,
        agent: str = "",
        senses: Senses | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._story = story
        self._agent = agent
        self._tools = tools
        self._chance = chance
        self._senses = senses or _senses(story, tools)

    @property
    def _now(self) -> StorySnapshot:
        return self._tools.recorder.snapshot.stories[self._story.id]

    def objection(self) -> KillSwitch | None:
        """Tell why no further work session may start, as far as that is known without asking anybody."""
        return before_session(self._facts())

    async def admit(self, workspace: Workspace) -> KillSwitch | choose.Question | Amount:
        """Give what the next session may spend, or the reason why it must not start.

        A question is one that a person must answer first. Waits while the agent's service is to be left
        alone, and while the budget is in others' hands.
        """
        await self._agent_or_stop()
        found = self.objection() or await self._doubt(workspace)
        if found is not None:
            return found
        while True:
            part = self._tools.budget.take(self._story.id)
            if part is not None:
                return part
            await self._budget_or_stop()
            found = self.objection()
            if found is not None:
                return found

    async def iterate(
        self, workspace: Workspace, run_session: SessionRunner
    ) -> KillSwitch | choose.Question | ev.StoryFinished | None:
        """Run one session, if it may start; what it had set aside comes back with its end."""
        admitted = await self.admit(workspace)
        if not isinstance(admitted, Amount):
            return admitted
        try:
            return await run_session(admitted)
        finally:
            self._tools.budget.give_back(self._story.id)

    def halted(self) -> KillSwitch | None:
        """Tell why not even a verify command may start any more."""
        if self._senses.aborted():
            return Switch.USER_ABORT.tripped(STOPPED_BY_USER)
        cohort = self._cohort()
        return Switch.COHORT.tripped(cohort) if cohort else None

    def ended(self, verdict: SessionVerdict) -> tuple[ev.Body, ...]:
        """Judge a work session that ran to its end; nothing to record means that the loop goes on."""
        if verdict.outcome in {Outcome.STOPPED, Outcome.STALLED}:
            return ()
        summary, effect = verdict.result.summary, verdict.result.effectiveness
        spiralled = summary.get("spiral", 0) > 0
        more = verdict.outcome is not Outcome.OK
        facts = AfterFacts(
            spiral="the session reported a spiral" if spiralled else "",
            spirals_before=self._tools.recorder.snapshot.cohort_spirals,
            failed_agents=summary.get("failed"),
            planned=effect.get("planned_issues"),
            carryover=effect.get("carryover"),
            aborted=more and self._senses.aborted(),
        )
        return self._recorded(facts, after_session(facts))

    def let_down(self, verdict: SessionVerdict) -> tuple[ev.Body, ...]:
        """Judge a session whose agent was let down by its service: nothing means that it was not."""
        said, now = verdict.said, self._now
        if verdict.outcome is not Outcome.FAILED or said is None or said.fault is None:
            return ()
        facts = OutageFacts(
            fault=said.fault,
            at=self._tools.recorder.now(),
            outages=now.outages,
            since=now.outage_since,
            until=said.until,
            chance=self._chance(),
            resumed=self._resumed(),
        )
        paused = partial(ae.AgentPaused, story_id=self._story.id, agent=self._agent, reason=said.words)
        match after_outage(facts):
            case Pause(until=until, everyone=everyone, fresh=fresh):
                return (paused(until=until, everyone=everyone, fresh=fresh),)
            case Refusal(because=because):
                words = f"{said.words} ({because})" if because else said.words
                hint = (_ONCE_WELL if because else _BY_HAND).format(self._agent)
                return (ae.AgentRefused(story_id=self._story.id, agent=self._agent, reason=words, hint=hint),)
            case None:
                return ()

    def _resumed(self) -> bool:
        """Tell whether the newest session went on with a conversation of an earlier one."""
        *earlier, last = self._now.sessions
        return any(session.conversation == last.conversation for session in earlier if last.conversation)

    def failed(self, failure: ev.AttemptFailed) -> tuple[ev.Body, ...]:
        """Judge a failed attempt: the same failure again and again is a spiral.

        A plain command repeats itself by nature, and the last attempt is not retried in any case.
        """
        digests = (*self._now.failures, failure_digest(failure.reason, failure.output))
        if self._story.command or failure.attempt > MAX_RETRIES or not same_failure(digests):
            return (failure,)
        return failure, *self._spiral(f"the same failure {len(digests)} times: {failure.reason}")

    async def look_at_trees(self) -> tuple[ev.Body, ...]:
        """Judge what the checkpoints of this step hold: a change undone and redone is a spiral."""
        now = self._now
        commits = tuple(commit for commit in (now.base, *now.checkpoints) if commit)
        if self._story.command or len(now.checkpoints) <= 2:  # noqa: PLR2004  changed, undone, changed again
            return ()
        trees = await offload(self._tools.repository.trees, commits)
        return self._spiral("the same change was undone and made again") if undone_and_redone(trees) else ()

    def _spiral(self, words: str) -> tuple[ev.Body, ...]:
        facts = AfterFacts(spiral=words, spirals_before=self._tools.recorder.snapshot.cohort_spirals)
        return self._recorded(facts, after_session(facts))

    def _recorded(self, facts: AfterFacts, after: After) -> tuple[ev.Body, ...]:
        story_id = self._story.id
        bodies: list[ev.Body] = []
        if facts.spiral:
            bodies.append(ev.SpiralSeen(story_id=story_id, reason=facts.spiral, retries=after.retries))
        found = after.switch
        if found is not None:
            bodies.append(
                ev.LoopEnded(story_id=story_id, name=found.name, detail=found.detail, hint=found.hint)
            )
            if after.ends_cohort:
                detail = f"{story_id}: {found.detail}"
                bodies.append(ev.AdmissionEnded(name=str(Switch.SPIRAL), detail=detail, hint=found.hint))
        return tuple(bodies)

    async def _doubt(self, workspace: Workspace) -> KillSwitch | choose.Question | None:
        """Ask the selector; too little confidence ends the loop, or asks a person before it began."""
        now, settings = self._now, self._tools.settings
        if now.settled:
            return None
        selection = await self._senses.selector.select(now, workspace)
        facts = replace(self._facts(), confidence=selection.confidence)
        found = before_session(facts)
        if found is None or not parks(found, facts):
            return found
        return choose.low_confidence(
            confidence=selection.confidence,
            threshold=settings.confidence_threshold,
            candidates=[f"{now.place.number} ({now.place.name})"],
            rationale=[selection.rationale],
        )

    async def _agent_or_stop(self) -> None:
        """Wait until the agent's service may be asked again, the time is over, or a person asks to stop."""
        recorder, told = self._tools.recorder, 0.0
        while True:
            until = max(self._now.resume_at, recorder.snapshot.pauses.get(self._agent, 0.0))
            wait = min(until - recorder.now(), self._tools.deadline - trio.current_time())
            if wait <= 0 or self._senses.aborted():
                return
            if until != told:
                told, line = until, f"waits for {self._agent} until {clock(until)}"
                shown = self._now.last_line
                recorder.show(ev.OutputSeen(story_id=self._story.id, line=shown if line in shown else line))
            recorder.touch()  # a wait that was announced is no silence
            with trio.move_on_after(min(wait, LOOK_AT_PAUSE)):
                await self._tools.control.wait_for(self._story.id, Level.FINISH)

    async def _budget_or_stop(self) -> None:
        """Wait until a part of the budget comes back, or a person asks to stop."""
        async with trio.open_nursery() as nursery:

            async def stopped() -> None:
                await self._tools.control.wait_for(self._story.id, Level.FINISH)
                nursery.cancel_scope.cancel()

            nursery.start_soon(stopped)
            await self._tools.budget.changed()
            nursery.cancel_scope.cancel()

    def _cohort(self) -> str:
        # Not told from the run's own switch: the time may have been over before.
        spirals = self._tools.recorder.snapshot.cohort_spirals
        return f"ended with its cohort: {spirals} sessions went in circles" if spirals > 1 else ""

    def _facts(self) -> LoopFacts:
        tools, run, now = self._tools, self._tools.recorder.snapshot, self._now
        settings = tools.settings
        # Adding it all up costs more with each session; without a budget nobody asks.
        spent = run.usage if {settings.token_budget, settings.cost_budget} != {None} else Usage()
        own = now.usage if {settings.story_token_budget, settings.story_cost_budget} != {None} else Usage()
        return LoopFacts(
            aborted=self._senses.aborted(),
            cohort=self._cohort(),
            sessions_used=now.session_limit_used,
            max_sessions=settings.max_sessions,
            overdue=trio.current_time() >= tools.deadline,
            max_hours=settings.max_hours,
            tokens_used=spent.tokens,
            token_budget=settings.token_budget,
            cost_used=spent.cost_usd,
            cost_budget=settings.cost_budget,
            story_tokens_used=own.tokens,
            story_token_budget=settings.story_token_budget,
            story_cost_used=own.cost_usd,
            story_cost_budget=settings.story_cost_budget,
            tier=self._senses.tier(),
            peers=self._senses.peers(),
            peer_limit=settings.peer_abort,
            confidence_threshold=settings.confidence_threshold,
            iteration=now.loop_sessions + 1,
        )


def _senses(story: Story, tools: RunContext) -> Senses:
    return Senses(
        selector=selector_for(tools),
        tier=lambda: tools.recorder.snapshot.tier,
        peers=lambda: tools.latest.sample.peers,
        aborted=lambda: tools.control.level(story.id) >= Level.FINISH,
    )
