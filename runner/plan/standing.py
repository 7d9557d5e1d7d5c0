"""Where the stories of a plan are in their flows, as a run would find it; nothing is written."""

from pathlib import Path

from msgspec import Struct

from isolation.git.repository import Repository
from isolation.model import Workspace
from runner.core.flow import QUICK, Edition, Flow, docs_folder, in_place
from runner.core.model import FLOW_DONE, SessionKind, Step, Story
from runner.core.settings import Settings
from runner.flows.catalog import load_flow
from runner.flows.places import find_docs
from runner.flows.re_entry import Journaled
from runner.flows.state.disk.files import load_state
from runner.flows.state.errors import StateError
from runner.flows.state.model import StateFile
from runner.flows.state.reading import parse_state
from runner.flows.state.writing import render
from runner.flows.story_state import StoryState
from runner.plan.plan import Backlog
from runner.plan.story_tree import story_tree
from runner.records.history import Past


class Standing(Struct, frozen=True, kw_only=True):
    """Where a story is in its flow: its step, and the steps that a run would take before it stops to ask.

    `step` is None when the flow is done, or when `problem` says why the step is not known. `until` is the
    step whose session boundary comes first, empty if there is none. `asks` is a question that comes before.
    """

    flow: str
    step: Step | None = None
    steps: tuple[Step, ...] = ()
    until: str = ""
    asks: str = ""
    problem: str = ""


class UnsavedState(StoryState):
    """A story's state file as a run would read and change it, with all changes in memory."""

    _kept: StateFile | None = None

    def _read(self) -> StateFile | None:
        if self._kept is not None:
            return self._kept
        return load_state(self.path, vocabulary=self._vocabulary, copies=False)

    def _save(self, state: StateFile, expected: StateFile | None) -> None:  # noqa: ARG002  nothing is compared
        # As if written and read again, so that the values are those that a session would find.
        text = render(state, vocabulary=self._vocabulary)
        self._kept = parse_state(text, vocabulary=self._vocabulary)


def flow_of(story: Story, settings: Settings, top: Path) -> Flow:
    """Return the flow of a story, with the folder of its documents by the settings."""
    if story.flow == QUICK.name:
        return QUICK
    flow = load_flow(story.flow, Edition(story.dialect or settings.dialect), top)
    return in_place(flow, docs_folder(settings.docs_folder, story.id), story.id)


def unsaved_state(
    story: Story, settings: Settings, repository: Repository, workspace: Workspace, docs: str = ""
) -> UnsavedState:
    """Open the state of a story that follows a flow, so that nothing is written. Blocks.

    `docs` is the folder of its documents, where that is known.
    """

    def changed() -> tuple[str, ...]:
        return repository.changed_paths(workspace.base, workspace.head)

    return UnsavedState(
        story_id=story.id,
        flow_name=story.flow,
        dialect=story.dialect or settings.dialect,
        workspace=workspace.path,
        docs=docs or find_docs(workspace.path, settings.docs_folder, story.id, changed),
        exchange=workspace.path,
        top=repository.top,
    )


def standing(backlog: Backlog, story: Story, past: Past) -> Standing:
    """Find out where a story is in its flow. Blocks."""
    site = backlog.sites[story.repo]
    settings, repository = site.settings, site.repository
    if story.flow == QUICK.name:
        steps = tuple(Step(number=one.number, name=one.name) for one in QUICK.steps)
        return Standing(flow=story.flow, step=steps[0], steps=steps)
    flow, root = flow_of(story, settings, repository.top), site.worktree_root
    with story_tree(repository, settings, story, base=site.base, root=root, flow=flow) as workspace:
        try:
            state = unsaved_state(story, settings, repository, workspace)
            known = Journaled(skipped=past.skipped, failure=past.reason)
            found = state.find(known, threshold=settings.threshold)
        except StateError as error:
            return Standing(flow=story.flow, problem=error.message)
    asks = found.question.title if found.question else ""
    if found.place.number == FLOW_DONE.number:
        return Standing(flow=story.flow, asks=asks)
    steps, until = _ahead(state.flow, found.place, crosses=settings.cross_boundaries)
    return Standing(flow=story.flow, step=found.place, steps=steps, until=until, asks=asks)


def _ahead(flow: Flow, place: Step, *, crosses: bool) -> tuple[tuple[Step, ...], str]:
    """Return the work steps from a place up to the next session boundary, and the step that has it."""
    numbers = [one.number for one in flow.steps]
    steps = []
    for one in flow.steps[numbers.index(place.number) :]:
        if one.kind is SessionKind.WORK:
            steps.append(Step(number=one.number, name=one.name))
        if one.session_boundary and not crosses:
            return tuple(steps), one.name
    return tuple(steps), ""
