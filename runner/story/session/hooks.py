"""The user's commands around a story's sessions; they run under the keeper like any other and leave a log."""

from pathlib import Path

from trio import to_thread

from isolation.model import Workspace
from isolation.worktree.aside import remember_brought, uncommitted
from runner.core.events.events import Noted, StoryFinished
from runner.core.model import Outcome
from runner.core.text.telling import telling_line
from runner.story import results
from runner.story.context.context import StoryContext
from runner.story.session.environment import user_environment
from runner.story.session.order import side_order
from runner.story.session.session import SessionOrder
from runner.story.session.shared_tree import run_watched

BRINGING = frozenset({"after_create", "before_run"})
"""The hooks that prepare a worktree: what they make there was not made by a session."""


def side_log(name: str, context: StoryContext) -> Path:
    """Return the file that holds what a hook, or another such command, printed."""
    return context.folder / f"{name.replace(' ', '-')}.log"


def hook_order(name: str, command: str, context: StoryContext, workspace: Workspace) -> SessionOrder:
    """Return the order for a hook, or another such command. Blocking."""
    environment = user_environment(context) | {
        "AUTOPILOT_RUN_ID": context.log.snapshot.run_id,
        "AUTOPILOT_STORY_ID": context.story.id,
        "AUTOPILOT_HOOK": name.removeprefix("hook "),
        "AUTOPILOT_BASE": workspace.base,
        **context.run.ports.variables(workspace.path, context.story.id),
    }
    return side_order(command, context, workspace, env=environment, log=side_log(name, context))


async def run_aside(name: str, command: str, context: StoryContext, workspace: Workspace) -> str:
    """Run a command of the user's beside the sessions; return how it failed, which is noted, else nothing."""
    brings = name.removeprefix("hook ") in BRINGING and context.run.shared_tree is None
    before = await to_thread.run_sync(uncommitted, context.repository, workspace.path) if brings else ()
    order = await to_thread.run_sync(hook_order, name, command, context, workspace)
    verdict = await run_watched(order, context.run)
    if brings:
        await to_thread.run_sync(_remember, context, workspace, before)
    if verdict.outcome is Outcome.OK:
        return ""
    line = telling_line(verdict.output) or verdict.last_line
    message = f"{name} failed ({verdict.detail}): {line}".rstrip(": ")
    await context.log.record(Noted(story_id=context.story.id, message=message))
    return message


def _remember(context: StoryContext, workspace: Workspace, before: tuple[str, ...]) -> None:
    made = set(uncommitted(context.repository, workspace.path)).difference(before)
    remember_brought(workspace.path, made)


async def run_hook(name: str, context: StoryContext, workspace: Workspace) -> str:
    """Run one of the user's hooks, unless it has run there ahead of the story; return how it failed."""
    command: str = getattr(context.settings.hooks, name)
    if not command or (name == "after_create" and workspace.prepared):
        return ""
    return await run_aside(f"hook {name}", command, context, workspace)


def hook_failed(name: str, how: str, context: StoryContext) -> StoryFinished:
    """Return the result of a story whose hook failed."""
    log = side_log(f"hook {name}", context)
    return results.failed(context.story.id, how, next_=f"see {log}")
