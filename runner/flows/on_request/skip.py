"""Skips a step of a story because the user asks for it: the state file says so, on the story's branch.

The skip is in the file, not only in the journal, so that it holds in every clone until the step is rolled
back. Only the state file is committed; what else is uncommitted in the worktree stays as it is.
"""

import re
from datetime import UTC, datetime

from msgspec import Struct

from isolation.git.repository import Repository
from isolation.patterns import pattern
from runner.core import choose
from runner.core.errors import RunnerError
from runner.core.events import events as ev
from runner.core.flow import BASELINE, DONE, QUICK, Flow, FlowStep, artifact_parts, in_cycle
from runner.core.model import FLOW_DONE, RunSnapshot, SessionKind, Step, StorySnapshot
from runner.flows.on_request.checkouts import Checkout
from runner.flows.on_request.story_branch import StoryBranch, open_branch
from runner.flows.state.model import StateFile, StepRef, StepStatus
from runner.flows.state.transitions import correct, mark_skipped, skip_by_user

_OVER = frozenset({StepStatus.COMPLETED, StepStatus.SKIPPED})
_FOLDER = pattern(r"[^*?\[]*/")


class SkipError(RunnerError):
    """A step cannot be skipped; nothing was changed."""

    code = "skip"


class Skip(Struct, frozen=True, kw_only=True):
    """What a skip would do; nothing has happened yet.

    `current`: it is the step at which the story is, which then continues at `following`. `users` are the
    later steps that use what the step leaves.
    """

    on: StoryBranch
    state: StateFile
    step: FlowStep
    current: bool
    following: Step
    users: tuple[FlowStep, ...]


def make_plan(
    repository: Repository, checkout: Checkout, run: RunSnapshot, story: StorySnapshot, wanted: str | None
) -> Skip:
    """Plan to skip a step of a story, by default the current one; raise if that makes no sense."""
    on = open_branch(repository, checkout, run, story, SkipError, clean=False)
    if on.state is None or story.flow == QUICK.name:
        raise SkipError(
            f"story {story.id} has no state file, so none of its steps can be skipped",
            hint="only stories that follow a flow have one, from their first session on",
        )
    here = _current(on, on.state)
    place = here if wanted is None else on.find_step(wanted)
    if place >= len(on.flow.steps):
        raise SkipError(
            f"story {story.id} has finished its flow: nothing is left to skip",
            hint=f"`autopilot-multi rollback {story.id} STEP` returns to a step",
        )
    step = on.flow.steps[place]
    if place < here or step.number in on.state.skipped_steps:
        how = "already skips" if step.number in on.state.skipped_steps else "is past"
        raise SkipError(
            f"story {story.id} {how} step {step.number} ({step.name})",
            hint=f"`autopilot-multi rollback {story.id} {step.number}` returns to it",
        )
    if step.kind is not SessionKind.WORK:
        raise SkipError(
            f"step {step.number} ({step.name}) runs the verify commands, which cannot be skipped",
            hint="change the story's `verify` instead",
        )
    return Skip(
        on=on,
        state=on.state,
        step=step,
        current=place == here,
        following=_following(on.flow, place, on.state),
        users=_users(on.flow, place),
    )


def question(plan: Skip) -> choose.Question:
    """Return the question to ask first: what would be missing, and for which later steps."""
    artifacts = [in_cycle(artifact_parts(text)[0], plan.on.cycle) for text in plan.step.artifacts]
    users = [f"{one.name} ({one.number})" for one in plan.users]
    return choose.skip(number=plan.step.number, name=plan.step.name, artifacts=artifacts, users=users)


def carry_out(plan: Skip, *, at: float) -> str:
    """Write the skip into the state file and commit that; return the branch's tip."""
    on, step = plan.on, plan.step
    ref, when = StepRef(step=step.number, name=step.name), datetime.fromtimestamp(at, UTC)
    if not plan.current:
        after = mark_skipped(plan.state, ref, at=when).state
    elif plan.state.step == step.number:
        after = skip_by_user(plan.state, None, at=when).state
    else:  # the file is at the step before, which is over
        there = correct(plan.state, ref, StepStatus.NOT_STARTED).state
        after = skip_by_user(there, None, at=when).state
    on.save(after)
    words = f"{step.number} {step.name}"
    return on.commit_state(f"Skip step {step.number} ({step.name})", f"Autopilot-Skip: {words}", at=at)


def events(plan: Skip, commit: str, commits: int) -> tuple[ev.Body, ...]:
    """Return the events for the journal: the answer and the new position, or the skip of a later step."""
    story, step = plan.on.story, plan.step
    skipped = ev.StepFinished(
        story_id=story.id,
        step_number=step.number,
        step_name=step.name,
        next_number=plan.following.number,
        next_name=plan.following.name,
        skipped=True,
        ahead=not plan.current,
    )
    if not plan.current:
        return (skipped,)
    decision = f"{story.id}-skip-{len(story.decided) + 1}"
    return (
        ev.DecisionAsked(story_id=story.id, decision_id=decision, question=choose.to_json(question(plan))),
        ev.DecisionAnswered(story_id=story.id, decision_id=decision, letter="A", by="skip"),
        ev.DecisionApplied(story_id=story.id, decision_id=decision),
        skipped,
        ev.StoryFinished(
            story_id=story.id,
            verdict="stopped",
            reason=f"step {step.number} ({step.name}) was skipped",
            next=f"autopilot-multi resume {plan.on.run_id}",
            commit=commit,
            commits=commits,
        ),
    )


def _current(on: StoryBranch, state: StateFile) -> int:
    """Return the place of the step that would run next; one past the last at the end of the flow."""
    if state.step == DONE:
        return len(on.flow.steps)
    place = on.find_step(state.step)
    over = state.status in _OVER
    ahead = on.flow.steps[place + over :]
    left = [one for one in ahead if one.number not in state.skipped_steps and one.kind is SessionKind.WORK]
    return on.flow.steps.index(left[0]) if left else len(on.flow.steps)


def _following(flow: Flow, place: int, state: StateFile) -> Step:
    for one in flow.steps[place + 1 :]:
        if one.number not in state.skipped_steps and one.kind is SessionKind.WORK:
            return Step(number=one.number, name=one.name)
    return FLOW_DONE


def _users(flow: Flow, place: int) -> tuple[FlowStep, ...]:
    """Return the later steps whose prompt or command names an artifact of a step, or its folder."""
    globs = [artifact_parts(text)[0] for text in flow.steps[place].artifacts]
    folders = {found[0] for glob in globs if (found := _FOLDER.match(glob))} - {f"{flow.docs}/"}
    whole = [re.escape(glob) for glob in globs]
    # The folder alone: a path that continues is another document in it.
    whole += [rf"{re.escape(folder)}(?![\w<{{*.-])" for folder in sorted(folders)]
    named = re.compile("|".join(whole)) if whole else None

    def words(step: FlowStep) -> str:
        return " ".join((step.prompt, *(step.command or ()))).replace(BASELINE, flow.docs)

    return tuple(one for one in flow.steps[place + 1 :] if named is not None and named.search(words(one)))
