"""What every story of a run shares, handed down from the composition root."""

from collections.abc import Mapping
from pathlib import Path

import trio
from msgspec import Struct, field

from isolation.git.repository import Repository
from isolation.keeper.client import Keeper
from isolation.model import Confinement, Workspace
from isolation.paths import EXCHANGE, worktree_path
from runner.core.model import ResourceSample, StoryId
from runner.core.settings import Settings
from runner.plan.guard import Guarding
from runner.plan.shared_tree import Sharing
from runner.records.event_log import EventLog
from runner.records.history import Past
from runner.story.context.budget import BudgetLedger
from runner.story.context.memory import MemoryMeter
from runner.story.context.stop import StopControl


class Latest(Struct):
    """The newest look at the machine; written by whoever keeps the window."""

    sample: ResourceSample = field(default_factory=ResourceSample)


class RunContext(Struct, frozen=True, kw_only=True):
    """The run's one repository, keeper, meter, recorder and stop control; `populate` limits checkouts.

    `deadline` is on trio's clock. `retry_failed` is a person's word that failed steps may be tried again;
    `past` is what earlier runs say of stories that follow a flow. `sharing` is there when all stories work
    in one tree.
    """

    repository: Repository
    keeper: Keeper
    meter: MemoryMeter
    recorder: EventLog
    control: StopControl
    settings: Settings
    worktree_root: Path
    populate: trio.CapacityLimiter
    deadline: float
    budget: BudgetLedger
    latest: Latest = field(default_factory=Latest)
    retry_failed: bool = False
    past: Mapping[StoryId, Past] = field(default_factory=dict)
    guarding: Guarding = field(default_factory=Guarding)
    sharing: Sharing | None = None

    def confinement(self, workspace: Workspace) -> Confinement | None:
        """Say where a session in this workspace may not write; None when nothing guards it. Blocking.

        Found out anew for each session: worktrees come and go, and git removes folders that it must find.
        """
        repository, root = self.repository, self.worktree_root
        return self.guarding.around(workspace, repository=repository, root=root, settings=self.settings)

    def place_of(self, story_id: StoryId) -> Path:
        """Give where a story works: a worktree of its own, or the shared tree."""
        return self.repository.top if self.sharing else worktree_path(self.worktree_root, story_id)

    def exchange(self, workspace: Path, story_id: StoryId) -> Path:
        """Give the folder for what is exchanged with a story's sessions."""
        return workspace / EXCHANGE / story_id if self.sharing else workspace / EXCHANGE
