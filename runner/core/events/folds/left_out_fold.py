"""What events of landings do to a run: where the work of its stories is, and what was left out."""

from msgspec.structs import replace

from runner.core.events import landing as ld
from runner.core.events.folds.forecast_fold import foreseen
from runner.core.events.folds.story_fold import step_again
from runner.core.forecast.clashes import joined
from runner.core.left_out.evidence import LeftOut, Retry
from runner.core.model import IMPLEMENT, RunSnapshot, StepHistory, StoryId, StorySnapshot

ABOUT_LANDING = "landing"
"""The kind of the question about a story that was left out."""

QUICK = "quick"


def after_landing(run: RunSnapshot, body: ld.LandingBody) -> RunSnapshot:
    """Return the run after an event of a landing; intents concern only the next landing."""
    match body:
        case ld.ConflictsForeseen():
            forecasts = {**run.forecasts, body.repo: foreseen(body)}
            return replace(run, forecasts=forecasts, forecast=joined(forecasts.values()))
        case ld.Landed():
            changed = {name: _landed(story, body) for name, story in _named(run, body.stories)}
        case ld.LandingUndone():
            changed = {name: _undone(story) for name, story in _named(run, body.stories)}
        case ld.StoryNotLanded():
            changed = {name: _left_out(story, body) for name, story in _named(run, (body.story_id,))}
        case ld.LandingRetryPlanned():
            apart = run.isolation == "none"
            changed = {
                name: _retried(story, body, apart=apart) for name, story in _named(run, (body.story_id,))
            }
        case ld.StoryRestacked():
            changed = {name: _restacked(story, body) for name, story in _named(run, (body.story_id,))}
        case _:
            return run
    return replace(run, stories={**run.stories, **changed})


def _named(run: RunSnapshot, names: tuple[str, ...]) -> list[tuple[StoryId, StorySnapshot]]:
    ids = (StoryId(name) for name in names)
    return [(name, run.stories[name]) for name in ids if name in run.stories]


def _landed(story: StorySnapshot, body: ld.Landed) -> StorySnapshot:
    """Mark where its work is; a question about the landing is overtaken by that."""
    workspace = replace(story.workspace, landed=body.onto, landed_as=body.commit, unlanded="", left_out=None)
    return replace(without_question(story), workspace=workspace)


def without_question(story: StorySnapshot) -> StorySnapshot:
    """Return the story without a question about its landing."""
    asked = story.decision is not None and story.decision.question.get("kind") == ABOUT_LANDING
    return replace(story, decision=None) if asked else story


def _undone(story: StorySnapshot) -> StorySnapshot:
    return replace(story, workspace=replace(story.workspace, landed="", landed_as="", unlanded=""))


def _left_out(story: StorySnapshot, body: ld.StoryNotLanded) -> StorySnapshot:
    left = LeftOut(
        landing_id=body.landing_id,
        onto=body.onto,
        tip=body.tip,
        why=body.why,
        reason=body.reason,
        files=body.files,
        others=body.others,
        command=body.command,
        output=body.output,
        log=body.log,
        fork=body.fork,
    )
    workspace = replace(story.workspace, landed="", landed_as="", unlanded=body.reason, left_out=left)
    return replace(story, workspace=workspace)


def _restacked(story: StorySnapshot, body: ld.StoryRestacked) -> StorySnapshot:
    """Take the new place of its work; what was decided about the old one counts there, too."""
    left = story.workspace.left_out
    if left is not None and left.tip == body.before:
        left = replace(left, tip=body.commit, fork=body.base if left.fork else "")
    workspace = replace(
        story.workspace, base=body.base, commit=body.commit, commits=body.commits, left_out=left
    )
    return replace(story, workspace=workspace)


def _retried(story: StorySnapshot, body: ld.LandingRetryPlanned, *, apart: bool) -> StorySnapshot:
    """Return the story at the beginning of another try: one step, whatever flow it has gone through."""
    before, decision = story.workspace, story.decision
    retry = Retry(base=body.base, old=body.old, commit=body.commit, files=body.files, fresh=body.fresh)
    left = before.left_out or LeftOut(landing_id="", onto=body.onto, tip=body.old, why="", reason="")
    workspace = replace(
        before,
        base=body.base,
        head=body.commit,
        commit=body.commit,
        commits=0,
        unchanged=False,
        markers=(),
        apart=before.apart or apart,
        unlanded="",
        left_out=replace(left, onto=body.onto, retry=retry),
    )
    return replace(
        step_again(story),
        flow=QUICK,
        place=IMPLEMENT,
        step=IMPLEMENT,
        step_history=StepHistory(),
        decision=None,
        decided=story.decided if decision is None else (*story.decided, decision),
        workspace=workspace,
    )
