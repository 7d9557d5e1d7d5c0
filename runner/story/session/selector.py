"""What comes next by the user's `selector` command, and how sure it is.

A command that crashes, takes too long or prints nonsense has made no selection, which counts as no
confidence; the run notes it.
"""

import json
from pathlib import Path
from typing import Any

import trio
from msgspec import Struct
from trio import to_thread

from isolation.model import Workspace
from runner.agents.json_line import load
from runner.core.events import events as ev
from runner.core.model import Outcome
from runner.records.signals import signals
from runner.records.telemetry import records_checkout
from runner.story.context.context import StoryContext
from runner.story.session.environment import environment_of, user_environment
from runner.story.session.log import read_tail
from runner.story.session.order import side_order
from runner.story.session.shared_tree import run_watched

LIMIT_SECONDS = 120.0
_TAIL_BYTES = 64 << 10


class Selection(Struct, frozen=True, kw_only=True):
    """What comes next: a mode for the session, and a confidence from 0 to 1; no mode is no selection."""

    confidence: float
    mode: str = ""
    rationale: str = ""


async def ask_selector(command: str, context: StoryContext, workspace: Workspace) -> Selection:
    """Run the command on the story's position and signals; it prints `{"mode", "confidence", "rationale"}`.

    What it said, or that it said nothing, is recorded. Raises nothing for a choice that could not be made.
    """
    selection = await _ask(command, context, workspace)
    story_id = context.story.id
    bodies: list[ev.Body] = [
        ev.SelectionMade(
            story_id=story_id,
            mode=selection.mode,
            confidence=selection.confidence,
            rationale=selection.rationale,
        )
    ]
    if not selection.mode:
        bodies.append(ev.Noted(story_id=story_id, message=f"no selection: {selection.rationale}"))
    await context.log.record(*bodies)
    return selection


async def _ask(command: str, context: StoryContext, workspace: Workspace) -> Selection:
    story = context.now
    number = len(story.sessions) + 1
    log = context.folder / f"selector-{number:02}.log"
    position = context.exchange(workspace) / f"{number:02}-position.json"
    await to_thread.run_sync(_write_position, position, context, log)
    order = await to_thread.run_sync(
        lambda: side_order(
            command,
            context,
            workspace,
            env=environment_of(
                user_environment(context),
                story,
                workspace,
                context.log.snapshot.run_id,
                step=story.place,
                cwd=context.inside(workspace.path, workspace),
                leased=context.run.ports.variables(workspace.path, context.story.id),
            ),
            log=log,
            prompt=position,
        )
    )
    with trio.move_on_after(LIMIT_SECONDS):
        verdict = await run_watched(order, context.run)
        if verdict.outcome is not Outcome.OK:
            return _nothing(f"the selector failed ({verdict.detail})")
        return parsed(await to_thread.run_sync(read_tail, log, _TAIL_BYTES))
    return _nothing(f"the selector took longer than {LIMIT_SECONDS:g} s")


def parsed(output: str) -> Selection:
    """Read what a selector printed; the last line that is a JSON object counts."""
    for line in reversed(output.splitlines()):
        value = load(line.strip().encode(errors="replace"))
        if value is not None:
            return _checked(value)
    return _nothing("the selector printed no JSON object")


def _checked(value: dict[str, Any]) -> Selection:
    mode, confidence = value.get("mode"), value.get("confidence")
    if not isinstance(mode, str) or not mode.strip() or not mode.isprintable():
        return _nothing("the selector printed no mode")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        return _nothing(f"the selector's confidence must be a number from 0 to 1, not {confidence!r:.40}")
    return Selection(
        mode=mode.strip(), confidence=float(confidence), rationale=str(value.get("rationale", ""))
    )


def _nothing(why: str) -> Selection:
    return Selection(mode="", confidence=0.0, rationale=why)


def _write_position(path: Path, context: StoryContext, log: Path) -> None:
    """Write what the selector gets; an earlier answer of the same number must not be read again."""
    story = context.now
    log.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    position = {
        "story": story.id,
        "title": story.title,
        "flow": story.flow,
        "step": {"number": story.place.number, "name": story.place.name},
        "attempt": story.progress.attempt,
        "sessions": len(story.sessions),
        "commits": story.workspace.commits,
        "confidence": story.confidence,
        "last_failure": story.step_history.last_failure,
        "signals": signals(context.log.snapshot, records_checkout(context.run.home.paths)),
    }
    path.write_text(json.dumps(position) + "\n", encoding="utf-8", errors="replace")
