"""What every story of a run shares, handed down from the composition root."""

from dataclasses import dataclass
from pathlib import Path

import trio

from isolation.keeper import Keeper
from isolation.repository import Repository
from runner.core.settings import Settings
from runner.recorder import Recorder
from runner.stopping import StopControl


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The run's one repository, keeper, recorder and stop control; `populate` limits checkouts at once.

    `deadline` is on trio's clock; `agents_per_wave` is asked before each session.
    """

    repository: Repository
    keeper: Keeper
    recorder: Recorder
    control: StopControl
    settings: Settings
    worktree_root: Path
    populate: trio.CapacityLimiter
    deadline: float
