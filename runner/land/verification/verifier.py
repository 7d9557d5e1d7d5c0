"""Verifies commits of the train, each in a worktree of its own, prepared and guarded like a story's.

What was answered about a tree is not asked again: when the target has moved without a change of its files,
or a sequence gives the same files as another.
"""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import trio
from msgspec import Struct
from msgspec.structs import replace
from trio import to_thread

from isolation.git.repository import Repository
from isolation.keeper.client import open_keeper
from isolation.model import Workspace
from isolation.paths import keepers_lock_path
from isolation.patterns import pattern
from isolation.worktree.throwaway import clear_leftovers
from runner.agents.catalog import PROGRAMS
from runner.agents.command import CommandAgent
from runner.agents.workers import Worker, Workers
from runner.core.events.events import Event
from runner.core.model import Outcome, RunId, RunSnapshot, Story, StoryId
from runner.core.settings import Settings
from runner.core.text.redaction import Redactor
from runner.core.text.telling import telling_lines
from runner.land.candidates import Candidate
from runner.machine.probe import Probe
from runner.plan.guard import FULL
from runner.plan.repositories.site import worktree_root_of
from runner.plan.shared_tree import require_enforcement
from runner.records.event_log import EventLog
from runner.run.cleanup import keep_sweeping, sweep_briefly
from runner.run.setup import Assignment, make_context
from runner.run.window import WindowKeeper
from runner.story.context.context import RunContext, StoryContext, story_context
from runner.story.context.error_groups import unwrapped
from runner.story.context.stop import Level, StopControl
from runner.story.session.environment import seal_git_commands
from runner.story.session.hooks import hook_order
from runner.story.session.session import SessionOrder, run_session
from runner.story.sessions import prepare_base_check
from runner.story.throwaway import throwaway_of

TRAIN = StoryId("_land")
"""The name of the train where others are named after their story; no story can be called that."""

RESOLVING = StoryId("_resolve")
"""The same for the worktree in which a conflict is resolved."""

PLACES = pattern(rf"{TRAIN}(-\d+)?|{RESOLVING}")
"""The names of all worktrees of landings."""

_HOOKS = ("after_create", "before_run")
_VARIES = "AUTOPILOT_"


class StoppedError(Exception):
    """The user has asked to stop."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What the commands did on a tree: green, or the one that failed, how, and its telling lines.

    `run` numbers the run that showed it; 0 means that there was nothing to run.
    """

    green: bool
    run: int = 0
    command: str = ""
    detail: str = ""
    output: tuple[str, ...] = ()
    log: Path | None = None


class _Command(Struct, frozen=True):
    """One command to run; a command that differs from story to story runs as that of its story."""

    line: str
    story: Story


_Asked: TypeAlias = tuple[str, tuple[_Command, ...]]
"""A tree, and the commands that are to pass there."""


class _Nowhere:
    """Takes the events of verify commands, which are not worth keeping."""

    def append(self, events: Sequence[Event]) -> None:
        """Forget them."""


def general_commands(candidates: Sequence[Candidate], settings: Settings) -> tuple[str, ...]:
    """Return the commands that must pass whichever stories are there."""
    shared = (line for each in candidates if each.general for line in each.verify if _VARIES not in line)
    return tuple(dict.fromkeys((*shared, *settings.land_verify)))


def has_commands(candidates: Sequence[Candidate], settings: Settings) -> bool:
    """Whether anything is verified at all."""
    return bool(settings.land_verify) or any(each.verify for each in candidates)


class Verifier:
    """Runs verify commands on commits, several at once; `started` counts the trees for which commands ran.

    `canceled` are those of them whose answer was not waited for.
    """

    def __init__(self, context: RunContext) -> None:
        self.started = 0
        self.canceled = 0
        self.context = context
        self._known: dict[_Asked, Verdict] = {}
        self._underway: dict[_Asked, trio.Event] = {}
        self._taken: set[int] = set()
        self._number = 0

    @property
    def slots(self) -> int:
        """How many runs the machine and the settings allow at once."""
        return max(1, self.context.log.snapshot.window)

    async def verify(self, commit: str, tree: str, stories: Sequence[Candidate]) -> Verdict:
        """Run the commands of these stories, and those of the settings, on a commit that holds them."""
        return await self._verify(commit, (tree, _commands(stories, self.context.settings)))

    async def verify_target(self, commit: str, tree: str, stories: Sequence[Candidate]) -> Verdict:
        """Run on the bare target what must pass there, whichever stories come."""
        lines = general_commands(stories, self.context.settings)
        return await self._verify(commit, (tree, tuple(_Command(line, _TRAIN_STORY) for line in lines)))

    async def _verify(self, commit: str, asked: _Asked) -> Verdict:
        commands = asked[1]
        if not commands:
            return Verdict(green=True)
        while asked in self._underway:
            await self._underway[asked].wait()
        if asked in self._known:
            return self._known[asked]
        ended = self._underway[asked] = trio.Event()
        self.started += 1
        run = self.started
        try:
            ports = max((self.context.settings.ports, *(each.story.ports or 0 for each in commands)))
            async with self._workspace(commit, ports) as workspace:
                verdict = await self._prepare(workspace) or await self._run_all(workspace, commands)
            self._known[asked] = replace(verdict, run=run)
        finally:
            self.canceled += asked not in self._known
            del self._underway[asked]
            ended.set()
        return self._known[asked]

    @asynccontextmanager
    async def _workspace(self, commit: str, ports: int) -> AsyncIterator[Workspace]:
        number = next(each for each in itertools.count(1) if each not in self._taken)
        self._taken.add(number)
        try:
            async with throwaway_of(self.context, _place(number), commit, ports=ports) as workspace:
                yield workspace
        finally:
            self._taken.remove(number)

    async def _prepare(self, workspace: Workspace) -> Verdict | None:
        for name in _HOOKS:
            command: str = getattr(self.context.settings.hooks, name)
            if command:
                context = self._story(_TRAIN_STORY)
                order = await to_thread.run_sync(hook_order, f"hook {name}", command, context, workspace)
                verdict = await self._run(order, f"hook {name}")
                if not verdict.green:
                    return verdict
        return None

    async def _run_all(self, workspace: Workspace, commands: Sequence[_Command]) -> Verdict:
        for command in commands:
            self._number += 1
            context = self._story(command.story)
            order = await to_thread.run_sync(
                prepare_base_check, context, workspace, command.line, self._number
            )
            verdict = await self._run(order, command.line)
            if not verdict.green:
                return verdict
        return Verdict(green=True)

    async def _run(self, order: SessionOrder, command: str) -> Verdict:
        if self.context.control.run_level >= Level.FINISH:
            raise StoppedError
        ended = await run_session(order, self.context)
        if ended.outcome is Outcome.STOPPED:
            raise StoppedError
        if ended.outcome is Outcome.OK:
            return Verdict(green=True)
        return Verdict(
            green=False,
            command=command,
            detail=ended.detail,
            output=tuple(telling_lines(ended.output)),
            log=order.log,
        )

    def _story(self, story: Story) -> StoryContext:
        return story_context(story, Workers(first=Worker(agent=CommandAgent())), self.context)


_TRAIN_STORY = Story(id=TRAIN, title="the train", prompt="")


def _commands(stories: Sequence[Candidate], settings: Settings) -> tuple[_Command, ...]:
    """Return every command once, as the first story that has it would run it, then those of the settings."""
    found: dict[str | tuple[str, StoryId], _Command] = {}
    for each in stories:
        for line in each.verify:
            key = (line, each.id) if _VARIES in line else line
            found.setdefault(key, _Command(line, each.story))
    for line in settings.land_verify:
        found.setdefault(line, _Command(line, _TRAIN_STORY))
    return tuple(found.values())


@asynccontextmanager
async def open_verifier(
    repository: Repository,
    settings: Settings,
    stories: Sequence[Story],
    control: StopControl,
    *,
    landing_id: str,
    redactor: Redactor,
) -> AsyncIterator[Verifier]:
    """Have a keeper and a guard for verify commands while the block lasts."""
    root = worktree_root_of(repository, settings)
    enforcement = await to_thread.run_sync(require_enforcement, repository, settings, root, stories)
    assignment = Assignment(
        repository=repository,
        settings=settings,
        worktree_root=root,
        stories=(),
        workers={},
        enforcement=enforcement,
    )
    snapshot = RunSnapshot(run_id=RunId(landing_id), started_at=0.0)
    log = EventLog(store=_Nowhere(), snapshot=snapshot, redactor=redactor)
    lock = keepers_lock_path(repository.common_dir)
    async with open_keeper(alive_lock=lock, network=settings.seal == FULL) as keeper:
        await keeper.ready()
        context = make_context(assignment, log=log, keeper=keeper, control=control, shared_tree=None, past={})
        await to_thread.run_sync(seal_git_commands, context)
        window = WindowKeeper(context=context, sample=partial(Probe(PROGRAMS), root))
        try:
            await to_thread.run_sync(clear_leftovers, repository, root, PLACES)
            with unwrapped():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(window.keep, await window.begin())
                    nursery.start_soon(keep_sweeping, repository, root)
                    yield Verifier(context)
                    nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await sweep_briefly(repository, root)


def _place(number: int) -> StoryId:
    """Return the name of the worktree of one of several runs."""
    return TRAIN if number == 1 else StoryId(f"{TRAIN}-{number}")
