"""The gate before a step that creates work items: which tracker, does it let us in, else the local one.

A tracker lets us in when the `tracker-auth` command of the settings ends well. What was settled is
recorded in the state file, so the gate is passed once.
"""

from pathlib import Path

from isolation.git.repository import offload
from isolation.model import Workspace
from runner.core import choose
from runner.core.events.events import Noted
from runner.core.flow import FlowStep
from runner.core.model import Decision, StoryId, StorySnapshot
from runner.flows.story_state import StoryState
from runner.flows.tracker import Detection, TrackerName, detect, gate, mark_pending
from runner.story.context.context import RunContext
from runner.story.session.hooks import run_aside

WITHOUT_TRACKER = "B"


class TrackerGate:
    """One story's dealings with its work item tracker."""

    def __init__(
        self, workspace: Workspace, *, story_id: StoryId, state: StoryState, tools: RunContext
    ) -> None:
        self._workspace = workspace
        self._story_id = story_id
        self._state = state
        self._tools = tools

    @property
    def _now(self) -> StorySnapshot:
        return self._tools.recorder.snapshot.stories[self._story_id]

    async def question(self, step: FlowStep) -> choose.Question | None:
        """Settle the tracker for a step; what only a person can settle comes back as a question."""
        if not step.tracker:
            return None
        recorded = await offload(self._state.tracker)
        setting = self._tools.settings.tracker
        detection = await offload(lambda: detect(self._workspace.path, setting=setting, recorded=recorded))
        name = detection.name or self._chosen(detection)
        if name is None:
            return detection.question
        asked = self._newest(choose.QuestionKind.TRACKER)
        if asked is not None and asked.letter == WITHOUT_TRACKER:
            name = TrackerName.LOCAL
        entered = name is TrackerName.LOCAL or recorded == name or await self._authenticate()
        question = gate(step, name, authenticated=entered)
        if question is None and recorded != name:
            await offload(self._state.set_tracker, name)
            await self._tools.recorder.record(
                Noted(story_id=self._story_id, message=f"work item tracker: {name} ({detection.reason})")
            )
        return question

    async def mark(self, files: tuple[Path, ...]) -> None:
        """Mark what a step left as pending, where there is no tracker to give it an id."""
        if await offload(self._state.tracker) == TrackerName.LOCAL:
            await offload(mark_pending, files)

    async def _authenticate(self) -> bool:
        command = self._tools.settings.tracker_auth
        if not command:
            return False
        return await run_aside(
            "tracker-auth", command, workspace=self._workspace, story_id=self._story_id, tools=self._tools
        )

    def _chosen(self, detection: Detection) -> TrackerName | None:
        asked = self._newest(
            choose.QuestionKind.DECISION, title=detection.question.title if detection.question else ""
        )
        return detection.choices.get(asked.letter) if asked else None

    def _newest(self, kind: choose.QuestionKind, *, title: str = "") -> Decision | None:
        """Find the newest answer to a question of a kind, in this story."""
        for decision in reversed(self._now.decided):
            question = choose.from_json(decision.question)
            if question.kind is kind and (not title or question.title == title):
                return decision
        return None
