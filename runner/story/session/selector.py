"""Who says what comes next, and how sure it is: the flow's own place, or a command of the user's.

A command that crashes, takes too long or prints nonsense has said nothing, which is no confidence at
all; the run says so aloud.
"""

import json
from pathlib import Path
from typing import Any, Protocol

import trio
from msgspec import Struct

from isolation.git.repository import offload
from isolation.model import SessionSpec, Workspace
from isolation.paths import story_dir
from runner.core.events import events as ev
from runner.core.model import MULTI_STORY, Outcome, StorySnapshot
from runner.story.context.context import RunContext
from runner.story.session.environment import environment_of
from runner.story.session.log import read_tail
from runner.story.session.session import SessionOrder
from runner.story.session.shared_tree import run_watched

LIMIT_SECONDS = 120.0
_TAIL_BYTES = 64 << 10


class Selection(Struct, frozen=True, kw_only=True):
    """What comes next: a mode for the session, and a confidence from 0 to 1."""

    mode: str
    confidence: float
    rationale: str = ""


class Selector(Protocol):
    """Says before each work session what comes next."""

    async def select(self, story: StorySnapshot, workspace: Workspace) -> Selection:
        """Choose; raises nothing for a choice that could not be made."""


class FlowSelector:
    """The built-in choice: the story's place in its flow, as sure as state file and folders agree."""

    async def select(self, story: StorySnapshot, workspace: Workspace) -> Selection:  # noqa: ARG002  the place is known
        """Take the place that was found."""
        await trio.lowlevel.checkpoint()
        return Selection(mode=MULTI_STORY, confidence=story.confidence)


class CommandSelector:
    """A command that reads the position as JSON and prints `{"mode", "confidence", "rationale"}`."""

    def __init__(self, command: str, tools: RunContext) -> None:
        self._command = command
        self._tools = tools

    async def select(self, story: StorySnapshot, workspace: Workspace) -> Selection:
        """Ask the command; what it said, or that it said nothing, is recorded."""
        selection = await self._ask(story, workspace)
        bodies: list[ev.Body] = [
            ev.SelectionMade(
                story_id=story.id,
                mode=selection.mode,
                confidence=selection.confidence,
                rationale=selection.rationale,
            )
        ]
        if not selection.mode:
            bodies.append(ev.Noted(story_id=story.id, message=f"no selection: {selection.rationale}"))
        await self._tools.recorder.record(*bodies)
        return selection

    async def _ask(self, story: StorySnapshot, workspace: Workspace) -> Selection:
        tools, run = self._tools, self._tools.recorder.snapshot
        number = len(story.sessions) + 1
        log = story_dir(tools.repository.common_dir, run.run_id, story.id) / f"selector-{number:02}.log"
        position = tools.exchange(workspace.path, story.id) / f"{number:02}-position.json"
        await trio.to_thread.run_sync(_write_position, position, story, log)
        order = SessionOrder(
            story_id=story.id,
            spec=SessionSpec(
                argv=("sh", "-c", self._command),
                cwd=workspace.path,
                env=environment_of(story, workspace, run),
                prompt=position,
                # What it runs may lie in the worktree, where sessions can change it.
                confinement=await offload(tools.confinement, workspace),
            ),
            log=log,
            log_cap=tools.settings.log_cap_mb << 20,
            grace=tools.settings.grace_seconds,
            stall_seconds=tools.settings.stall_seconds,
        )
        with trio.move_on_after(LIMIT_SECONDS):
            verdict = await run_watched(order, tools)
            if verdict.outcome is not Outcome.OK:
                return _nothing(f"the selector failed ({verdict.detail})")
            return parsed(await trio.to_thread.run_sync(read_tail, log, _TAIL_BYTES))
        return _nothing(f"the selector took longer than {LIMIT_SECONDS:g} s")


def parsed(output: str) -> Selection:
    """Read what a selector printed; its last line that is a JSON object counts."""
    for line in reversed(output.splitlines()):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return _checked(value)
    return _nothing("the selector printed no JSON object")


def _checked(value: dict[str, Any]) -> Selection:
    mode, confidence = value.get("mode"), value.get("confidence")
    if not isinstance(mode, str) or not mode.strip() or not mode.isprintable():
        return _nothing("the selector printed no mode")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        return _nothing(f"the selector's confidence is no number from 0 to 1 but {confidence!r:.40}")
    return Selection(
        mode=mode.strip(), confidence=float(confidence), rationale=str(value.get("rationale", ""))
    )


def _nothing(why: str) -> Selection:
    return Selection(mode="", confidence=0.0, rationale=why)


def _write_position(path: Path, story: StorySnapshot, log: Path) -> None:
    """Write where the story stands; an earlier answer of the same number must not be read again."""
    log.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    position = {
        "story": story.id,
        "title": story.title,
        "flow": story.flow,
        "step": {"number": story.place.number, "name": story.place.name},
        "attempt": story.attempt,
        "sessions": len(story.sessions),
        "commits": story.commits,
        "confidence": story.confidence,
        "last_failure": story.last_failure,
    }
    path.write_text(json.dumps(position) + "\n", encoding="utf-8", errors="replace")


def selector_for(tools: RunContext) -> Selector:
    """Give the selector that the settings name, else the built-in one."""
    command = tools.settings.selector
    return CommandSelector(command, tools) if command else FlowSelector()
