"""A question that an agent asks in plain words at its end, instead of in its result."""

from msgspec.structs import replace
from trio import to_thread

from isolation.errors import IsolationError
from runner.core.model import Outcome
from runner.core.text.names import one_line
from runner.story.context.context import StoryContext
from runner.story.session.session import SessionOrder, SessionVerdict


async def with_question(ended: SessionVerdict, order: SessionOrder, context: StoryContext) -> SessionVerdict:
    """Return the session as one that asks the user, if it ended with a question and changed nothing.

    With a change, the work is judged as always: many agents end with an offer to do more.
    """
    if not ended.question or context.run.shared_tree or not order.places:
        return ended
    if await to_thread.run_sync(_changed, order, context):
        return ended
    *_, last = ended.question.splitlines()
    decision = {"question": one_line(last), "context": one_line(ended.question)}
    result = replace(ended.result, question=one_line(last), decision=decision)
    return replace(ended, outcome=Outcome.ASKS, detail=one_line(last), result=result)


def _changed(order: SessionOrder, context: StoryContext) -> bool:
    """Whether the worktree holds anything that the story's last commit does not, or another commit."""
    repository, place, workspace = context.repository, order.places[0], context.now.workspace
    try:
        head = repository.run("rev-parse", "HEAD", cwd=place).stdout.strip()
        dirty = repository.run("status", "--porcelain", cwd=place).stdout.strip()
    except IsolationError:
        return True  # what cannot be known is judged as always
    return bool(dirty) or head != (workspace.commit or workspace.head)
