"""What the stories of a run share, and what the walk of one story needs of it."""

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import trio
from msgspec import Struct, field, structs

from isolation.git.repository import Repository
from isolation.keeper.client import Keeper
from isolation.model import Confinement, IsolationMode, Workspace
from isolation.paths import EXCHANGE, story_dir, worktree_path
from isolation.worktree.pool.bottoms import Bottoms
from isolation.worktree.pool.pool import Pool
from runner.agents.workers import Worker, Workers
from runner.core.model import Story, StoryId, StorySnapshot
from runner.core.progress.repositories import HOME
from runner.core.schedule.candidates import most_candidates
from runner.core.schedule.resources import ResourceSample
from runner.core.settings import Settings
from runner.machine.ports import PortLeases
from runner.machine.registry import Registry
from runner.plan.guard import WriteGuard, write_guard_of
from runner.plan.shared_tree import OpenSharedTree
from runner.records.event_log import EventLog
from runner.records.history import Past
from runner.story.context.budget import BudgetLedger
from runner.story.context.exclusive import SessionGate
from runner.story.context.memory import MemoryMeter
from runner.story.context.stop import Level, StopControl


class Latest(Struct):
    """The newest sample of the machine; written by the task that keeps the window."""

    sample: ResourceSample = field(default_factory=ResourceSample)


class Alone(Struct):
    """Until when a look that found no other sessions in the repository counts; written by each look."""

    until: float = 0.0


VERIFIED = "verified"


class RunContext(Struct, frozen=True, kw_only=True):
    """What every story of a run shares; put together once, where the run starts.

    `populate` limits simultaneous checkouts; `deadline` is on trio's clock. `retry_failed` says that the user
    allows another try of failed steps; `past` is what earlier runs recorded about stories that follow a flow.
    `shared_tree` is None unless all stories work in one tree. `write_crash` keeps what is known of a bug, and
    returns where; it blocks. `proof` is what passed verify commands mean in this run. Every session goes
    through the `gate`, so that one that must be alone is. `pool` has worktrees that are ready; None in a
    shared tree. With `bottoms` new worktrees are layers over one of these checkouts. `environ` is the user's
    environment; the run begins with it, and nothing changes it later.

    A run with stories in several repositories has one of these for each: `repo` is the name that stories have
    for it, `repository`, `settings`, `worktree_root`, what guards its sessions and its trees are its own, and
    everything else is the run's. The one of the run's own repository has the `others`.
    """

    repository: Repository
    keeper: Keeper
    meter: MemoryMeter
    log: EventLog
    control: StopControl
    settings: Settings
    worktree_root: Path
    populate: trio.CapacityLimiter
    deadline: float
    budget: BudgetLedger
    registry: Registry
    write_crash: Callable[[BaseException], Path]
    latest: Latest = field(default_factory=Latest)
    alone: Alone = field(default_factory=Alone)
    retry_failed: bool = False
    past: Mapping[StoryId, Past] = field(default_factory=dict)
    left_open: Collection[StoryId] = ()
    """Stories that a killed run had open in the shared tree: what is in their claims is their own."""
    write_guard: WriteGuard = field(default_factory=WriteGuard)
    shared_tree: OpenSharedTree | None = None
    proof: str = VERIFIED
    gate: SessionGate = field(default_factory=SessionGate)
    ports: PortLeases = field(default_factory=PortLeases)
    pool: Pool | None = None
    bottoms: Bottoms | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    repo: str = HOME
    own: Repository | None = None
    others: Mapping[str, "RunContext"] = field(default_factory=dict)

    @property
    def home(self) -> Repository:
        """The repository of the run, which has its journal, its logs and its records."""
        return self.own or self.repository

    @property
    def everywhere(self) -> tuple["RunContext", ...]:
        """This and the others: one for each repository of the run."""
        return self, *self.others.values()

    @property
    def base(self) -> str:
        """The commit that stories in this repository start from."""
        return self.log.snapshot.base_of(self.repo)

    @property
    def newest_base(self) -> str:
        """The same, where its branch is by now, if it is followed."""
        return self.log.snapshot.followed_in(self.repo) or self.base

    def at(self, repo: str) -> "RunContext":
        """Return the part of the run in a repository, by the name that its stories have for it."""
        return self if repo == self.repo else self.others[repo]

    def workspace_path(self, story_id: StoryId) -> Path:
        """Return where a story works: in a worktree of its own, or in the shared tree."""
        return self.repository.top if self.shared_tree else worktree_path(self.worktree_root, story_id)


class StoryContext(Struct, frozen=True, kw_only=True):
    """What the walk of one story needs: the story, its agent, its state, and the log of events.

    `now` is the story's state after all that was published; a value of it that is kept grows old with every
    event, so it is read again after each wait. `log.snapshot` is the state of the whole run.
    """

    story: Story
    workers: Workers
    run: RunContext
    log: EventLog
    settings: Settings
    repository: Repository
    folder: Path
    """Where the records of the story are kept: its logs, one for each session and hook."""

    @property
    def now(self) -> StorySnapshot:
        """The state of the story."""
        return self.log.snapshot.stories[self.story.id]

    @property
    def worker(self) -> Worker:
        """The worker of the current attempt; each candidate begins with the next one."""
        return self.workers.at(self.now.progress.attempt + self.now.candidate - 1, self.now.handed_to)

    @property
    def mode(self) -> str:
        """The mode of the next session, or of the one that runs: the selector's choice, else the story's."""
        return self.now.mode or self.story.mode

    @property
    def verify(self) -> tuple[str, ...]:
        """The commands that decide about this story: its own, else those of the run."""
        return self.story.verify or self.settings.verify

    @property
    def story_minutes(self) -> float | None:
        """How long the sessions of the story may take together; None without a limit."""
        return self.story.story_minutes or self.settings.story_minutes

    @property
    def verify_minutes(self) -> float | None:
        """How long each verify command may take; None without a limit."""
        return self.story.verify_minutes or self.settings.verify_minutes

    @property
    def ports(self) -> int:
        """How many ports the story has for itself."""
        return self.settings.ports if self.story.ports is None else self.story.ports

    @property
    def best_of(self) -> int:
        """How many candidates the story may have; one that a landing left out continues with what it has."""
        left_out = self.now.workspace.left_out is not None
        return 1 if left_out else most_candidates(self.story, self.settings)

    @property
    def shares_tree(self) -> bool:
        """Whether the story works in one tree with others."""
        return self.settings.bg_isolation == IsolationMode.NONE

    @property
    def aborted(self) -> str:
        """What asked that nothing new starts for this story; empty while nothing did."""
        return self.run.control.asked_by(self.story.id)

    async def abort(self) -> None:
        """Wait until `aborted` holds."""
        await self.run.control.wait_for(self.story.id, Level.FINISH)

    def exchange(self, workspace: Workspace) -> Path:
        """Return the folder for files that are exchanged with the story's sessions."""
        folder = workspace.path / EXCHANGE
        return folder / self.story.id if self.shares_tree else folder

    def inside(self, path: Path, workspace: Workspace) -> Path:
        """Return where the story's sessions see a path; they start where they see the workspace."""
        return self.run.write_guard.inside(path, workspace.path)

    def confinement(self, workspace: Workspace, hook: str = "") -> Confinement | None:
        """Return where a session in this workspace may not write; None when nothing guards it. Blocking.

        Computed for each session: worktrees come and go, and git removes folders that it must find.
        """
        run = self.run
        return run.write_guard.around(
            workspace,
            repository=self.repository,
            root=run.worktree_root,
            settings=self.settings,
            hook=hook,
        )


def apart(context: StoryContext) -> StoryContext:
    """Return what a story of a shared tree needs in a worktree of its own. Blocks for a moment."""
    run = context.run
    settings = structs.replace(run.settings, bg_isolation=IsolationMode.WORKTREE.value)
    guard = write_guard_of(run.repository.paths, settings, run.worktree_root)
    guard = structs.replace(guard, beside=run.write_guard.beside)
    moved = structs.replace(run, shared_tree=None, settings=settings, write_guard=guard)
    return structs.replace(context, run=moved, settings=settings)


def story_context(story: Story, workers: Workers, run: RunContext) -> StoryContext:
    """Return what one story needs of its run; `run` is the part of it in the story's repository."""
    log, repository = run.log, run.repository
    # What is no story of the backlog exists in every repository.
    name = f"{story.id}-{run.repo}" if run.repo and story.repo != run.repo else story.id
    return StoryContext(
        story=story,
        workers=workers,
        run=run,
        log=log,
        settings=run.settings,
        repository=repository,
        folder=story_dir(run.home.common_dir, log.snapshot.run_id, name),
    )
