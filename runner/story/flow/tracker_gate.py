"""The gate before a step that creates work items: which tracker is used, and whether it grants access.

It does when the `tracker-auth` command of the settings succeeds. What was settled is recorded in the state
file, so the gate is passed once.
"""

from pathlib import Path

from trio import to_thread

from isolation.model import Workspace
from runner.core import choose
from runner.core.events.events import Noted
from runner.core.flow import FlowStep
from runner.core.model import Decision
from runner.flows.state.model import Tracker
from runner.flows.story_state import StoryState
from runner.flows.tracker import Detection, detect, gate, mark_pending
from runner.story.context.context import StoryContext
from runner.story.session.hooks import run_aside

WITHOUT_TRACKER = "B"


class TrackerGate:
    """One story and its work item tracker."""

    def __init__(self, context: StoryContext, workspace: Workspace, state: StoryState) -> None:
        self._context = context
        self._workspace = workspace
        self._state = state

    async def question(self, step: FlowStep) -> choose.Question | None:
        """Settle the tracker for a step; return what only the user can settle as a question."""
        if not step.tracker:
            return None
        recorded = await to_thread.run_sync(self._state.tracker)
        setting = self._context.settings.tracker
        detection = await to_thread.run_sync(
            lambda: detect(self._workspace.path, setting=setting, recorded=recorded)
        )
        name = detection.name or self._chosen(detection)
        if name is None:
            return detection.question
        asked = self._newest(choose.QuestionKind.TRACKER)
        if asked is not None and asked.letter == WITHOUT_TRACKER:
            name = Tracker.LOCAL
        entered = name is Tracker.LOCAL or recorded == name or await self._authenticate()
        question = gate(step, name, authenticated=entered)
        if question is None and recorded != name:
            await to_thread.run_sync(self._state.set_tracker, name)
            await self._context.log.record(
                Noted(
                    story_id=self._context.story.id, message=f"work item tracker: {name} ({detection.reason})"
                )
            )
        return question

    async def mark(self, files: tuple[Path, ...]) -> None:
        """Mark the items that a step left as pending where no tracker gives them ids."""
        if await to_thread.run_sync(self._state.tracker) == Tracker.LOCAL:
            await to_thread.run_sync(mark_pending, files)

    async def _authenticate(self) -> bool:
        command = self._context.settings.tracker_auth
        if not command:
            return False
        return await run_aside("tracker-auth", command, self._context, self._workspace)

    def _chosen(self, detection: Detection) -> Tracker | None:
        asked = self._newest(
            choose.QuestionKind.DECISION, title=detection.question.title if detection.question else ""
        )
        return detection.choices.get(asked.letter) if asked else None

    def _newest(self, kind: choose.QuestionKind, *, title: str = "") -> Decision | None:
        """Find the newest answer to a question of a kind, in this story."""
        for decision in reversed(self._context.now.decided):
            question = choose.from_json(decision.question)
            if question.kind is kind and (not title or question.title == title):
                return decision
        return None
