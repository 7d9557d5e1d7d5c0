"""Why a step is not done, before any command judges it: changes outside its claim, missing artifacts."""

from isolation.claims import globs as claims
from isolation.git.commits import named
from isolation.model import Workspace
from isolation.paths import folds_case
from runner.story.context.context import StoryContext
from runner.story.flow.steps import FlowSteps
from runner.story.workspace import StoryWorkspace


def flaw_of(
    context: StoryContext, story_workspace: StoryWorkspace, workspace: Workspace, flow: FlowSteps
) -> tuple[str, str] | None:
    """Return why the step is not done, and the message for its next session. Blocking."""
    foreign = _foreign(context, story_workspace, workspace, flow)
    if foreign:
        words = "These paths lie outside your claim; undo their changes:\n" + "\n".join(foreign)
        return f"changed outside its claim: {named(foreign)}", words
    missing = flow.missing_artifacts()
    if missing:
        words = "The step is done when these exist:\n" + "\n".join(missing)
        return f"its artifacts are missing: {named(missing)}", words
    return None


def _foreign(
    context: StoryContext, story_workspace: StoryWorkspace, workspace: Workspace, flow: FlowSteps
) -> tuple[str, ...]:
    """Return what the story changed outside its claim; the folder of its documents is its own."""
    owns = context.story.owns
    if not owns:
        return ()
    head = context.now.workspace.commit or workspace.base
    # As in the proof that claims are disjoint: names that it treats as one are one here, too.
    claim = claims.compile(owns, folding=folds_case(context.repository.top))
    # A story of an earlier version may keep its state file outside its claim.
    return story_workspace.foreign(workspace, head, lambda path: flow.keeps(path) or claim.owns(path))
