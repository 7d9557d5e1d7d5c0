"""What every story of a run shares, handed down from the composition root."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import trio

from isolation.keeper import Keeper
from isolation.repository import Repository
from runner.core.model import ResourceSample, StoryId
from runner.core.settings import Settings
from runner.history import Past
from runner.meter import Meter
from runner.purse import Purse
from runner.recorder import Recorder
from runner.stopping import StopControl


@dataclass(slots=True)
class Latest:
    """The newest look at the machine; written by whoever keeps the window."""

    sample: ResourceSample = field(default_factory=ResourceSample)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The run's one repository, keeper, meter, recorder and stop control; `populate` limits checkouts.

    `deadline` is on trio's clock. `retry_failed` is a person's word that failed steps may be tried again;
    `past` is what earlier runs say of stories that follow a flow.
    """

    repository: Repository
    keeper: Keeper
    meter: Meter
    recorder: Recorder
    control: StopControl
    settings: Settings
    worktree_root: Path
    populate: trio.CapacityLimiter
    deadline: float
    purse: Purse
    latest: Latest = field(default_factory=Latest)
    retry_failed: bool = False
    past: Mapping[StoryId, Past] = field(default_factory=dict)
