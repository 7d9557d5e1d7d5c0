"""The review step: a second agent reads verified work in a throwaway checkout of its commit.

Whatever it writes there is gone with the checkout, and the story's branch stays where it was.
"""

from functools import partial

from msgspec import structs
from msgspec.structs import replace
from trio import to_thread

from isolation.git.diffstat import changes, diff
from isolation.model import Workspace
from runner.agents.workers import Worker, Workers
from runner.core.events import candidates as cd
from runner.core.events import events as ev
from runner.core.limits.budget import Amount, Kind
from runner.core.limits.kill_switches import Switch
from runner.core.model import KillSwitch, Outcome, Step, StoryId
from runner.story.context.context import StoryContext
from runner.story.flow.brief import Brief
from runner.story.kill_switches import before_verify, before_work, reserve
from runner.story.other_sessions import session_visible
from runner.story.review.opinion import NONE, Opinion, opinion_of, review_consequences
from runner.story.review.prompt import MOST_LINES, review_prompt
from runner.story.session.session import run_session
from runner.story.sessions import prepare_work, prompt_facts, session_ended
from runner.story.throwaway import throwaway_of

REVIEW = Step(number="review", name="Review")
_MONEY = frozenset(map(str, (Switch.TOKEN_BUDGET, Switch.COST_BUDGET)))


async def review(context: StoryContext, workspace: Workspace) -> KillSwitch | None:
    """Ask the story's reviewer, if it has one; afterwards `implemented` says whether the work may pass.

    A kill-switch ends the story. Without money the work passes unread, which is noted: it is verified.
    """
    reviewer, now = context.workers.reviewer, context.now
    if reviewer is None or now.progress.reviewed or now.workspace.unchanged or not now.workspace.commits:
        return None
    stop = before_verify(context)
    if stop is not None:
        return stop
    poor = before_work(context)
    part: KillSwitch | Amount | None = poor if poor is not None and poor.name in _MONEY else None
    if part is None:
        traits = reviewer.agent.traits
        kind = Kind(agent=reviewer.agent.name, model=reviewer.model, step=REVIEW.name)
        part = await reserve(context, kind, Amount(tokens=traits.usual_tokens, cost=traits.usual_cost))
    if isinstance(part, KillSwitch):
        if part.name not in _MONEY:
            return part
        opinion = Opinion(verdict=NONE, because=f"no session could start: {part.detail}")
        await context.log.record(*review_consequences(opinion, reviewer.name, context.now))
        return None
    try:
        return await _read(context, workspace, reviewer, part)
    finally:
        context.run.budget.give_back(context.story.id)


async def _read(
    context: StoryContext, workspace: Workspace, reviewer: Worker, allowance: Amount
) -> KillSwitch | None:
    """Run the session of the reviewer, and record its end with what follows."""
    run, log, commit = context.run, context.log, context.now.workspace.commit or workspace.head
    as_reader = structs.replace(
        context, workers=Workers(first=reviewer), story=structs.replace(context.story, command=None)
    )
    place = StoryId(f"_review-{context.story.id}")
    async with throwaway_of(run, place, commit, ports=context.ports) as made:
        checkout = replace(made, base=workspace.base)
        brief = await to_thread.run_sync(_brief, as_reader, checkout, commit)
        prepared = await prepare_work(as_reader, checkout, brief, allowance)
        order = prepared.order
        async with (
            run.gate.entered(alone=False, unless=context.abort),
            session_visible(order.session_id, context) as presence,
        ):
            refused = await log.record_unless(partial(before_verify, context), prepared.started)
            if refused is not None:
                return refused
            await presence.seen()
            ended = await run_session(order, run)
            presence.end()
        opinion = opinion_of(ended)
        if await to_thread.run_sync(_moved_back, context, workspace, commit):
            opinion = Opinion(verdict=NONE, because="it moved the story's branch, which was moved back")
        stopped = ended.outcome is Outcome.STOPPED
        bodies: tuple[ev.Body | cd.CandidateBody, ...] = ()
        if not stopped:
            bodies = review_consequences(opinion, reviewer.name, context.now)
        await log.record(session_ended(order, ended, context.settings), *bodies)
    if not stopped:
        return None
    if ended.overdue:
        return Switch.STORY_TIME.tripped(ended.detail)
    return Switch.USER_ABORT.tripped(context.aborted or ended.detail)


def _brief(context: StoryContext, checkout: Workspace, commit: str) -> Brief:
    """Return what the reviewer gets to know. Blocking."""
    plain = Brief(step=REVIEW, prompt="", command=None, state_file="", docs="", answers=(), verified=False)
    repository, base = context.repository, checkout.base
    changed = changes(repository, base, commit)
    text = review_prompt(
        context.story,
        context.verify,
        changed,
        diff(repository, base, commit, changed, most_lines=MOST_LINES),
        base=base,
        result=str(prompt_facts(context, checkout, plain).result_file),
    )
    return replace(plain, whole=text)


def _moved_back(context: StoryContext, workspace: Workspace, commit: str) -> bool:
    """Move the story's branch back to the work that was verified, if the reviewer has moved it. Blocking."""
    repository = context.repository
    tip = repository.branch_tip(workspace.branch)
    if tip == commit:
        return False
    old = (tip,) if tip is not None else ()
    why = "autopilot-multi: a reviewer changes nothing"
    repository.run("update-ref", "-m", why, f"refs/heads/{workspace.branch}", commit, *old)
    return True
