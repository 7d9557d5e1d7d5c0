"""The hook `after_create` in spare worktrees, ahead of the stories that will claim them."""

import hashlib
from functools import partial
from pathlib import Path

from trio import to_thread

from isolation.model import Workspace
from isolation.worktree.pool.preparation import Preparation
from runner.agents.command import CommandAgent
from runner.agents.workers import Worker, Workers
from runner.core.events.events import Noted
from runner.core.model import Outcome, Story, StoryId
from runner.plan.stories.lock_files import LOCK_FILES
from runner.story.context.context import RunContext, story_context
from runner.story.session.hooks import hook_order, side_log
from runner.story.session.session import run_session

POOL = StoryId("_pool")
"""The name of spares where others are named after their story; no story can be called that."""

_NAME = "hook after_create"
_INPUTS = tuple(f"**/{name}" for name in (*LOCK_FILES, "requirements*.txt", "go.mod"))


def preparation_of(run: RunContext) -> Preparation | None:
    """Return how spares are prepared in this run; None if each story runs the hook itself.

    A spare is renamed when it is claimed. So sessions must see each tree under the path of the checkout:
    otherwise absolute paths that the hook writes would lead nowhere.
    """
    command = run.settings.hooks.after_create
    if run.settings.prepare != "pool" or not command or not run.write_guard.own_path:
        return None
    key = hashlib.sha256(command.encode(errors="surrogateescape")).hexdigest()
    return Preparation(key=key, inputs=_INPUTS, run=partial(_prepare, run, command))


async def _prepare(run: RunContext, command: str, path: Path, commit: str) -> bool:
    workspace = Workspace(path=path, branch="", base=commit, head=commit, reattached=False)
    spare = Story(id=POOL, title="a spare worktree", prompt="")
    context = story_context(spare, Workers(first=Worker(agent=CommandAgent())), run)
    order = await to_thread.run_sync(hook_order, _NAME, command, context, workspace)
    ended = await run_session(order, run)
    if ended.outcome not in {Outcome.OK, Outcome.STOPPED}:
        words = f"{_NAME} failed in a spare worktree ({ended.detail}), so each story runs it; see"
        run.log.defer(Noted(message=f"{words} {side_log(_NAME, context)}"))
    return ended.outcome is Outcome.OK
