"""The gate before a step that creates work items: which tracker is used, and whether it grants access.

The tools of the configured MCP servers say which trackers there are. What was settled is recorded in the
state file, so the gate is passed once. After the step, its work items are created, or its files marked.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace
from trio import to_thread

from isolation.git.repository import Repository
from isolation.model import Workspace
from runner.core import choose
from runner.core.errors import SettingsError
from runner.core.events.events import Noted
from runner.core.flow import QUICK, Edition, FlowStep
from runner.core.model import Decision, Story
from runner.core.settings import Settings
from runner.core.text.names import did_you_mean, one_line
from runner.core.work_items.documents import is_epics
from runner.core.work_items.tracker import HOSTED, TITLES, Tracker
from runner.flows.catalog import load_flow
from runner.flows.story_state import StoryState
from runner.forge.programs import GH, GLAB
from runner.forge.tracker.errors import TrackerError
from runner.forge.tracker.files import mark_pending
from runner.forge.tracker.servers import McpServer, Servers, load_servers
from runner.story.context.context import StoryContext
from runner.story.flow.briefing import work_item_files
from runner.story.flow.tracker_work import StoryTracker, address_of_issues
from runner.story.session.hooks import run_aside

WITHOUT_TRACKER = "B"
_SIGN_IN = {Tracker.GITHUB: GH.sign_in, Tracker.GITLAB: GLAB.sign_in}


class Detection(Struct, frozen=True, kw_only=True):
    """Which tracker to use and why; if the user must decide, `name` is None and `question` is set.

    `choices` are the meanings of the question's letters. `notes` say what could not be read or asked.
    `refusals` are the trackers that were asked for access, each with why it was denied; None if it was not.
    """

    name: Tracker | None
    reason: str
    question: choose.Question | None = None
    choices: Mapping[str, Tracker] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    refusals: Mapping[Tracker, TrackerError | None] = field(default_factory=dict)


class TrackerGate:
    """One story and its work item tracker."""

    def __init__(self, context: StoryContext, workspace: Workspace, state: StoryState) -> None:
        self._context = context
        self._workspace = workspace
        self._state = state
        self._tracker = StoryTracker(context, workspace)

    async def question(self, step: FlowStep) -> choose.Question | None:
        """Settle the tracker for a step; return what only the user can settle as a question."""
        if not step.tracker:
            return None
        recorded = await to_thread.run_sync(self._state.tracker)
        detection = settled(self._context.settings.tracker, recorded) or await self._detect()
        await self._note(*detection.notes)
        name = self._name(detection)
        if name is None:
            return detection.question
        if name not in {Tracker.LOCAL, recorded} and not await self._entered(name, detection.refusals):
            again = _SIGN_IN.get(name)
            return choose.tracker_failed(again=again) if again else choose.tracker_failed()
        if recorded != name:
            await to_thread.run_sync(self._state.set_tracker, name)
            await self._note(f"work item tracker: {name} ({detection.reason})")
        return None

    async def _detect(self) -> Detection:
        """Look for trackers behind the configured servers."""
        servers, probed = await self._tracker.probe()
        found = {name: reached.server for name, reached in probed.found.items()}
        refusals = {name: reached.refusal for name, reached in probed.found.items()}
        return replace(detected(found, (*servers.notes, *probed.problems)), refusals=refusals)

    def foresee(self, step: FlowStep) -> None:
        """Record which tracker a step would use if nothing stood in its way, without asking. Blocking."""
        if not step.tracker:
            return
        recorded = self._state.tracker()
        found = settled(self._context.settings.tracker, recorded)
        name = self._name(found or by_words(self._tracker.servers()))
        if name is not None and name != recorded:
            self._state.set_tracker(name)

    def left_to_agent(self) -> bool:
        """Whether the agents create the work items of this story. Blocking."""
        name = self._state.tracker()
        return name in TITLES and not self._tracker.keeps(Tracker(name))

    def _name(self, detection: Detection) -> Tracker | None:
        """Return the tracker by what was found and answered; None while the user must choose."""
        name = detection.name or self._chosen(detection)
        asked = self._newest(choose.QuestionKind.TRACKER)
        if name is not None and asked is not None and asked.letter == WITHOUT_TRACKER:
            return Tracker.LOCAL
        return name

    async def keep(self, step: FlowStep) -> choose.Question | bool:
        """Create the work items that a step left as files, or mark these as pending.

        Return whether that is to be committed before the next step, or a question if the tracker fails.
        """
        recorded = await to_thread.run_sync(self._state.tracker)
        name = self._name(Detection(name=Tracker(recorded), reason="")) if recorded else None
        if name is Tracker.LOCAL:
            await to_thread.run_sync(self._mark, step, recorded)
        elif name is not None and await to_thread.run_sync(self._tracker.keeps, name):
            return await self._create(step, name)
        return False

    async def _create(self, step: FlowStep, name: Tracker) -> choose.Question | bool:
        files, epics = await to_thread.run_sync(self._files, step)
        try:
            return await self._tracker.keep(name, self._state.flow.docs, files, epics)
        except TrackerError as error:
            await self._note(_words(error))
            return choose.tracker_failed(f"{TITLES[name]}: {error.message}")

    def _files(self, step: FlowStep) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """Return the files of a step that stand for work items, and those of the flow that hold epics."""
        top, cycle = self._workspace.path, self._state.cycle()
        steps = (one for one in self._state.flow.steps if one.tracker)
        all_files = (path for one in steps for path in work_item_files(top, one, cycle))
        return work_item_files(top, step, cycle), tuple(path for path in all_files if is_epics(path.name))

    def _mark(self, step: FlowStep, recorded: str) -> None:
        if recorded != Tracker.LOCAL:
            self._state.set_tracker(Tracker.LOCAL)
        mark_pending(work_item_files(self._workspace.path, step, self._state.cycle()))

    async def _entered(self, name: Tracker, asked: Mapping[Tracker, TrackerError | None]) -> bool:
        """Whether the tracker grants access: by the user's command if there is one, else by its server.

        A server that was `asked` while trackers were looked for is not asked again.
        """
        command = self._context.settings.tracker_auth
        if command:
            return not await run_aside("tracker-auth", command, self._context, self._workspace)
        refusal = asked[name] if name in asked else await self._refusal(name)
        if refusal is not None:
            await self._note(_words(refusal))
        return refusal is None

    async def _refusal(self, name: Tracker) -> TrackerError | None:
        try:
            async with self._tracker.open(name):
                return None
        except TrackerError as error:
            return error

    async def _note(self, *messages: str) -> None:
        story_id = self._context.story.id
        if messages:
            await self._context.log.record(
                *(Noted(story_id=story_id, message=message) for message in messages)
            )

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


def _words(error: TrackerError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


def settled(setting: str, recorded: str) -> Detection | None:
    """Return the tracker that the settings name, else the one of the state file; None if neither does."""
    for text, origin in ((setting, "the settings"), (recorded, "the state file")):
        if text:
            return Detection(name=_named(text, origin), reason=f"{origin} say so")
    return None


def _named(text: str, origin: str) -> Tracker:
    try:
        return Tracker(text.strip().lower())
    except ValueError:
        known = [name.value for name in Tracker]
        hint = f"{did_you_mean(text, known)} known trackers: {', '.join(known)}.".strip()
        raise SettingsError(f"{origin} name the tracker '{one_line(text)}'", hint=hint) from None


def by_words(servers: Servers) -> Detection:
    """Return the tracker that the names, commands and addresses of servers suggest; none is started."""
    found: dict[Tracker, McpServer] = {}
    for server in servers.servers:
        if server.hinted is not None:
            found.setdefault(server.hinted, server)
    return detected(found, servers.notes)


def detected(found: Mapping[Tracker, McpServer], notes: Iterable[str]) -> Detection:
    """Return what was found as a tracker, or as a question if there are two."""
    reasons = {name: f"{server.where} names {one_line(server.name)}" for name, server in found.items()}
    if len(reasons) > 1:
        return _both(reasons, notes)
    for name, reason in reasons.items():
        return Detection(name=name, reason=reason, notes=tuple(notes))
    return Detection(name=Tracker.LOCAL, reason="no tracker is configured", notes=tuple(notes))


def _both(found: Mapping[Tracker, str], notes: Iterable[str]) -> Detection:
    names = [name for name in Tracker if name in found]
    question = choose.decision(
        "Two work item trackers are configured — which one?",
        [f"{TITLES[name]} ({found[name]})" for name in names],
        recommendation="A" if names[0] is next(iter(found)) else "B",
        why=f"it is named first: {next(iter(found.values()))}",
    )
    choices = dict(zip(choose.LETTERS, names, strict=False))
    return Detection(
        name=None,
        reason="two trackers are configured",
        question=question,
        choices=choices,
        notes=tuple(notes),
    )


def work_item_note(repository: Repository, base: str, stories: Iterable[Story], settings: Settings) -> str:
    """Return what steps of these stories will create outside; empty if nothing. Starts no server. Blocks.

    Raises TrackerError if the settings name a forge, but nothing says which repository there.
    """
    if not any(_creates(story, settings, repository) for story in stories):
        return ""
    environ, setting = os.environ, settings.tracker_server
    found = settled(settings.tracker, "") or by_words(
        load_servers(repository, base, setting=setting, environ=environ)
    )
    tracker = found.name
    if tracker in HOSTED:
        place = f"as issues of {address_of_issues(repository, settings, tracker).name} on {TITLES[tracker]}"
    elif tracker is not None and tracker in TITLES:
        project = settings.tracker_project
        place = f"in {TITLES[tracker]}" + (f", project {project}" if project else "")
    else:
        return ""
    return f"work items: steps that plan create epics, tasks and their links {place}"


def _creates(story: Story, settings: Settings, repository: Repository) -> bool:
    if story.flow == QUICK.name:
        return False
    flow = load_flow(story.flow, Edition(story.dialect or settings.dialect), repository.top)
    return any(step.tracker for step in flow.steps)
