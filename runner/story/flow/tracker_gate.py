"""The gate before a step that creates work items: which tracker is used, and whether it grants access.

It does when the `tracker-auth` command of the settings succeeds. What was settled is recorded in the state
file, so the gate is passed once.
"""

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
from runner.story.flow.briefing import work_item_files
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
        name = self._name(detection)
        if name is None:
            return detection.question
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

    def foresee(self, step: FlowStep) -> None:
        """Record which tracker a step would use if nothing stood in its way, without asking. Blocking."""
        if not step.tracker:
            return
        setting, recorded = self._context.settings.tracker, self._state.tracker()
        detection = detect(self._workspace.path, setting=setting, recorded=recorded)
        name = self._name(detection)
        if name is not None and name != recorded:
            self._state.set_tracker(name)

    def _name(self, detection: Detection) -> Tracker | None:
        """Return the tracker by what was found and answered; None while the user must choose."""
        name = detection.name or self._chosen(detection)
        asked = self._newest(choose.QuestionKind.TRACKER)
        if name is not None and asked is not None and asked.letter == WITHOUT_TRACKER:
            return Tracker.LOCAL
        return name

    async def mark(self, step: FlowStep) -> None:
        """Mark the task and epic files that a step left as pending where no tracker gives them ids."""
        await to_thread.run_sync(self._mark, step)

    def _mark(self, step: FlowStep) -> None:
        if self._state.tracker() == Tracker.LOCAL:
            mark_pending(work_item_files(self._workspace.path, step, self._state.cycle()))

    async def _authenticate(self) -> bool:
        command = self._context.settings.tracker_auth
        if not command:
            return False
        return not await run_aside("tracker-auth", command, self._context, self._workspace)

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
