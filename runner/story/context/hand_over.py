"""Several agents of one story in order of preference: which one works, and when the next one takes over.

A story changes hands by an event, never by itself: while a session runs, its agent must not depend on what
other stories learn about it.
"""

from runner.core.events import agents as ag
from runner.core.limits.outage import NEXT, remaining, soonest
from runner.core.text.instants import clock
from runner.story.context.context import StoryContext


def next_agent(context: StoryContext) -> str:
    """Return which other agent of the story could work now; those after the current one come first."""
    if context.workers.later or not context.workers.others:
        return ""
    names = [worker.agent.name for worker in context.workers.order]
    current, free_at, now = context.worker.agent.name, _free_at(context), context.log.now()
    position = names.index(current) if current in names else 0
    others = (*names[position + 1 :], *names[:position])
    return next((name for name in others if not remaining(free_at[name], now)), "")


async def hand_on(context: StoryContext) -> bool:
    """Hand the story to another of its agents if that one is free much sooner; return whether it was."""
    names = [worker.agent.name for worker in context.workers.order]
    current, free_at, now = context.worker.agent.name, _free_at(context), context.log.now()
    if len(names) == 1 or current not in names or context.settings.on_limit != NEXT:
        return False
    by = soonest(names, current, {name: remaining(until, now) for name, until in free_at.items()})
    if by == current:
        return False
    until = free_at[current]
    words = f"{current} cannot work before {clock(until)}"
    story_id = context.story.id
    await context.log.record(
        ag.AgentReplaced(story_id=story_id, agent=current, by=by, reason=words, until=until)
    )
    return True


def _free_at(context: StoryContext) -> dict[str, float]:
    """Return from when each of the story's agents can work; infinite for one that never can."""
    now, pauses = context.now, context.log.snapshot.pauses
    names = [worker.agent.name for worker in context.workers.order]
    found = {name: max(pauses.get(name, 0.0), now.away.get(name, 0.0)) for name in names}
    current = context.worker.agent.name
    found[current] = max(found.get(current, 0.0), now.outage.resume_at)
    return found
