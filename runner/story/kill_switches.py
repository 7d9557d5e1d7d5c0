"""Whether the next session of a story may start: gathers what `core` judges by, and waits where it must.

The switches are judged twice before a session: when it is prepared, and once more in the transaction that
records its start, since others may have spent or spiralled meanwhile. They are judged again after a wait.
"""

import trio

from isolation.model import Workspace
from runner.core import choose
from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.limits.budget import Amount, Kind, spent, within
from runner.core.limits.kill_switches import (
    LoopFacts,
    Switch,
    before_session,
    parks,
    story_time,
)
from runner.core.limits.outage import remaining
from runner.core.model import KillSwitch
from runner.core.text.instants import clock
from runner.story.context.context import StoryContext
from runner.story.context.hand_over import hand_on
from runner.story.session.selector import Selection, ask_selector

PAUSE_SECONDS = 15.0
"""How often a wait for an agent's service is shown again, and counts as a sign of life."""


def before_work(context: StoryContext, *, confidence: float | None = None) -> KillSwitch | None:
    """Return the kill-switch that keeps the next work session from starting, as far as it is known."""
    return before_session(_facts(context, confidence))


def before_verify(context: StoryContext) -> KillSwitch | None:
    """Return the kill-switch that keeps even a verify command from starting."""
    if context.aborted:
        return Switch.USER_ABORT.tripped(context.aborted)
    cohort = _cohort(context.log.snapshot.cohort_spirals, context.settings.spiral_limit)
    if cohort:
        return Switch.COHORT.tripped(cohort)
    overdue = story_time(context.now.loop_seconds / 60, context.story_minutes)
    return Switch.STORY_TIME.tripped(overdue) if overdue else None


async def admit(context: StoryContext, workspace: Workspace) -> KillSwitch | choose.Question | Amount:
    """Return what the next work session may spend, or why it must not start.

    A question must be answered first. Waits for an agent's service that has paused, and for a part of the
    budget while other sessions hold it; `before_work` has been judged just before.
    """
    found: KillSwitch | choose.Question | None = None
    if await _service_or_abort(context):
        found = before_work(context)
    if found is None and not context.now.settled:
        found = await _doubt(context, workspace)
    return await reserve(context, *_kind(context)) if found is None else found


async def reserve(context: StoryContext, kind: Kind, usual: Amount) -> KillSwitch | Amount:
    """Return what a session of this kind may spend; waits for a part of the budget while others hold it."""
    found, waits = None, False
    while found is None:
        part = context.run.budget.take(context.story.id, kind, usual)
        if isinstance(part, Amount):
            return _of_story(part, context)
        if part.switch is not None:
            return part.switch
        if not waits:
            waits = True
            await context.log.record(ag.BudgetAwaited(story_id=context.story.id, reason=part.reason))
            # Recording took time: a part may have come back meanwhile, and would not be announced again.
            continue
        await _budget_or_abort(context)
        found = before_work(context)
    return found


def _of_story(part: Amount, context: StoryContext) -> Amount:
    """Return what a session may spend of its part, by the budget of its story."""
    settings = context.settings
    own = Amount(tokens=settings.story_token_budget, cost=settings.story_cost_budget)
    return part if own == Amount() else within(part, own, spent(context.now.usage))


def _kind(context: StoryContext) -> tuple[Kind, Amount]:
    """Return what kind of session is next, and what its agent usually spends."""
    worker, now = context.worker, context.now
    traits = worker.agent.traits
    kind = Kind(agent=worker.agent.name, model=worker.model, step=now.place.name)
    return kind, Amount(tokens=traits.usual_tokens, cost=traits.usual_cost)


async def _doubt(context: StoryContext, workspace: Workspace) -> KillSwitch | choose.Question | None:
    """Return what low confidence leads to: it ends the loop, or asks the user before the loop began."""
    settings, now = context.settings, context.now
    if settings.selector:
        selection = await ask_selector(settings.selector, context, workspace)
    elif now.confidence >= settings.threshold:
        return None
    else:
        selection = Selection(confidence=now.confidence)
    facts = _facts(context, selection.confidence)
    found = before_session(facts)
    if found is None or not parks(found, facts):
        return found
    return choose.low_confidence(
        confidence=selection.confidence,
        threshold=settings.threshold,
        candidates=[now.place],
        rationale=[selection.rationale],
        why="the selector points there" if settings.selector else "the folders point there",
    )


async def _service_or_abort(context: StoryContext) -> bool:
    """Wait until the agent's service may be used again, the run's time is over, or the user aborts.

    Return whether there was anything to wait for.
    """
    log, shown = context.log, 0.0
    while True:
        if await hand_on(context):
            return True
        now, agent = context.now, context.worker.agent.name
        until = max(now.outage.resume_at, log.snapshot.pauses.get(agent, 0.0))
        if not until:
            return False
        wait = min(remaining(until, log.now()), context.run.deadline - trio.current_time())
        if wait <= 0 or context.aborted:
            return True
        if until != shown:
            shown, line = until, f"waits for {agent} until {clock(until)}"
            last = now.last_line
            log.show(ev.OutputSeen(story_id=now.id, line=last if line in last else line))
        log.touch()  # an announced wait does not count as silence
        with trio.move_on_after(min(wait, PAUSE_SECONDS)):
            await context.abort()


async def _budget_or_abort(context: StoryContext) -> None:
    """Wait until a part of the budget returns, or the user aborts."""
    async with trio.open_nursery() as nursery:

        async def aborted() -> None:
            await context.abort()
            nursery.cancel_scope.cancel()

        nursery.start_soon(aborted)
        await context.run.budget.changed()
        nursery.cancel_scope.cancel()


def _cohort(spirals: int, limit: int) -> str:
    # By the number of spirals, not by the run's own switch: the time may have been over before.
    return f"ended with its cohort: {spirals} sessions went in circles" if spirals >= limit else ""


def _facts(context: StoryContext, confidence: float | None) -> LoopFacts:
    run, now, settings = context.log.snapshot, context.now, context.settings
    # Adding up all usage costs more with each session, and only a budget needs it.
    limit = context.run.budget.limit
    used = run.usage if limit != Amount() else None
    own = now.usage if {settings.story_token_budget, settings.story_cost_budget} != {None} else None
    return LoopFacts(
        aborted=context.aborted,
        cohort=_cohort(run.cohort_spirals, settings.spiral_limit),
        loop_sessions=now.loop_sessions,
        step_sessions=now.step_history.sessions,
        step_breaks=now.step_history.breaks,
        max_sessions=settings.max_sessions,
        overdue=trio.current_time() >= context.run.deadline,
        max_hours=settings.max_hours,
        story_minutes_used=now.loop_seconds / 60,
        story_minutes=context.story_minutes,
        # Other jobs may have spent everything before this one has spent anything.
        tokens_used=(used.tokens or 0) if used else None,
        token_budget=None if limit.tokens is None else int(limit.tokens),
        cost_used=(used.cost_usd or 0.0) if used else None,
        cost_budget=limit.cost,
        story_tokens_used=own.tokens if own else None,
        story_token_budget=settings.story_token_budget,
        story_cost_used=own.cost_usd if own else None,
        story_cost_budget=settings.story_cost_budget,
        tier=run.tier,
        peers=context.run.latest.sample.peers,
        peer_limit=settings.peer_abort,
        confidence=confidence,
        confidence_threshold=settings.threshold,
    )
