"""Verify commands that sessions never see, on a clean checkout of a candidate's commit.

Neither their text nor their output goes where a session reads: not into prompts, the environment, the
journal or the logs. What is recorded is which one failed, by its number, and its exit code.
"""

import shutil
import tempfile
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from trio import to_thread

from isolation.model import Workspace
from runner.core.model import KillSwitch, Outcome, StoryId
from runner.story.context.context import StoryContext
from runner.story.kill_switches import before_verify
from runner.story.session.environment import HIDDEN_FROM_SESSIONS, user_environment
from runner.story.session.hooks import BRINGING, run_aside
from runner.story.session.order import side_order
from runner.story.session.session import SessionOrder, SessionVerdict, TimeLimit, run_session
from runner.story.throwaway import throwaway_of

PASSED, FAILED = "passed", "failed"


class HiddenVerdict(Struct, frozen=True, kw_only=True):
    """How the hidden commands judged a commit; empty if there are none."""

    verdict: str = ""
    reason: str = ""


async def judge_hidden(
    context: StoryContext, workspace: Workspace, commit: str
) -> HiddenVerdict | KillSwitch | SessionVerdict:
    """Run the hidden commands on a commit; a kill-switch, or a session that was stopped, gives no verdict."""
    commands = context.settings.hidden_verify
    if not commands:
        return HiddenVerdict()
    place = StoryId(f"_hidden-{context.story.id}")
    async with throwaway_of(context.run, place, commit, ports=context.ports) as made:
        clean = replace(made, base=workspace.base)
        for name in sorted(BRINGING):
            command: str = getattr(context.settings.hooks, name)
            if command and await run_aside(f"hook {name}", command, context, clean):
                reason = f"hook {name} failed in a clean checkout of its commit"
                return HiddenVerdict(verdict=FAILED, reason=reason)
        for number, command in enumerate(commands, 1):
            stop = before_verify(context)
            if stop is not None:
                return stop
            ended = await _run(command, context, clean)
            if ended.outcome is Outcome.STOPPED:
                return ended
            if ended.outcome is not Outcome.OK:
                which = f"hidden verify command {number} of {len(commands)}"
                return HiddenVerdict(verdict=FAILED, reason=f"{which}: {_how(ended)}")
    return HiddenVerdict(verdict=PASSED)


async def _run(command: str, context: StoryContext, workspace: Workspace) -> SessionVerdict:
    """Run one command; its log is gone when it has ended."""
    folder = Path(await to_thread.run_sync(tempfile.mkdtemp))
    try:
        order = await to_thread.run_sync(_order, command, context, workspace, folder)
        return await run_session(order, context.run)
    finally:
        await to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


def _order(command: str, context: StoryContext, workspace: Workspace, folder: Path) -> SessionOrder:
    environment = user_environment(context) | {
        "AUTOPILOT_RUN_ID": context.log.snapshot.run_id,
        "AUTOPILOT_STORY_ID": context.story.id,
        "AUTOPILOT_BASE": workspace.base,
        **context.run.ports.variables(workspace.path, context.story.id),
    }
    order = side_order(command, context, workspace, env=environment, log=folder / "log")
    minutes = context.verify_minutes
    limit = None
    if minutes is not None:
        words = f"exceeded its limit of {minutes:g} min"
        limit = TimeLimit(seconds=minutes * 60, outcome=Outcome.FAILED, words=words)
    # What it is made of may be next to the settings that name it, which sessions do not see.
    seal = order.seal
    shown = replace(seal, shows=(*seal.shows, HIDDEN_FROM_SESSIONS)) if seal else None
    return replace(order, seal=shown, limit=limit)


def _how(ended: SessionVerdict) -> str:
    """Say how it ended without a word of what it printed."""
    if ended.overdue:
        return ended.detail
    return f"exit code {ended.exit_code}" if ended.exit_code is not None else str(ended.outcome)
