"""The order for a command of the user's beside the story's sessions: a hook, the selector, a sign-in."""

import os
from pathlib import Path

from isolation.model import SessionSpec, Workspace
from runner.story.context.context import StoryContext
from runner.story.session.environment import session_seal
from runner.story.session.session import SessionOrder


def side_order(
    command: str,
    context: StoryContext,
    workspace: Workspace,
    *,
    env: dict[str, str],
    log: Path,
    prompt: Path = Path(os.devnull),
) -> SessionOrder:
    """Return the order for one such command in the workspace. Blocking.

    It is confined like a session: what it runs may be in the worktree, where sessions can change it.
    """
    settings, cwd = context.settings, context.inside(workspace.path, workspace)
    return SessionOrder(
        story_id=context.story.id,
        spec=SessionSpec(
            argv=("sh", "-c", command),
            cwd=cwd,
            env={**env, **context.run.write_guard.variables, "PWD": str(cwd)},
            prompt=prompt,
            confinement=context.confinement(workspace, command),
        ),
        seal=session_seal(context),
        places=(workspace.path,),
        log=log,
        log_cap=settings.log_cap_mb << 20,
        grace=settings.grace_seconds,
        stall_seconds=settings.stall_seconds,
    )
