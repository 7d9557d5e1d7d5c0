"""The table `tiers` of the settings: how many stories may run, by what the machine has left."""

from typing import Annotated

from msgspec import Struct

from runner.core.declaration import Bounds, Setting

_NOT_NEGATIVE = Bounds(low=0, clamped=False)
_PERCENT = Bounds(low=0, high=100, clamped=False)


class TierThresholds(Struct, frozen=True, kw_only=True):
    """Where a tier ends: a signal beyond one of these numbers puts the machine into the next tier."""

    memory_gb: Annotated[
        float,
        Setting(
            help="at least this much memory is available; the limit of a container counts",
            bounds=_NOT_NEGATIVE,
        ),
    ]
    swap_gb: Annotated[
        float,
        Setting(help="less swap than this is in use (degraded: at most this)", bounds=_NOT_NEGATIVE),
    ]
    peers: Annotated[int, Setting(help="at most this many other agent sessions run", bounds=_NOT_NEGATIVE)]
    pressure_free_percent: Annotated[
        float, Setting(help="at least this much of the memory is free of pressure (macOS)", bounds=_PERCENT)
    ]
    disk_gb: Annotated[float, Setting(help="at least this much of the disk is free", bounds=_NOT_NEGATIVE)]
    inodes: Annotated[
        int, Setting(help="at least this many files can still be created on it", bounds=_NOT_NEGATIVE)
    ]
    memory_stall_percent: Annotated[
        float,
        Setting(help="some task waited for memory in at most this much of the last 10 s", bounds=_PERCENT),
    ]
    cpu_stall_percent: Annotated[float, Setting(help="the same for the processor", bounds=_PERCENT)]
    io_stall_percent: Annotated[float, Setting(help="the same for the disk", bounds=_PERCENT)]
    load_per_cpu: Annotated[
        float,
        Setting(help="at most this many tasks run or wait, for each processor", bounds=_NOT_NEGATIVE),
    ]


MOST_STORIES = 50
"""How many stories may ever run in parallel."""


class TierRow(TierThresholds, frozen=True, kw_only=True):
    """A tier that limits the run: its thresholds, and how many stories and agents of a session it allows."""

    # A tier without any story would never end: even critical, the worst one, lets one run alone.
    stories: Annotated[
        int,
        Setting(
            help="how many stories may run in parallel",
            bounds=Bounds(low=1, high=MOST_STORIES, clamped=False),
        ),
    ]
    agents: Annotated[
        int,
        Setting(
            help="how many agents a session may use in parallel",
            bounds=Bounds(low=0, high=MOST_STORIES, clamped=False),
        ),
    ]


LITTLE_IS_GOOD = frozenset(
    {
        "swap_gb",
        "peers",
        "memory_stall_percent",
        "cpu_stall_percent",
        "io_stall_percent",
        "load_per_cpu",
    }
)
"""The thresholds that a signal must stay under, so that they rise from green to degraded; the others fall."""

_GREEN = TierThresholds(
    memory_gb=6,
    swap_gb=1,
    peers=2,
    pressure_free_percent=30,
    disk_gb=5,
    inodes=100_000,
    memory_stall_percent=10,
    cpu_stall_percent=80,
    io_stall_percent=80,
    load_per_cpu=4,
)
# Being busy is not dangerous: a busy processor or disk leads to warn and no further.
_WARN = TierRow(
    memory_gb=4,
    swap_gb=2,
    peers=4,
    pressure_free_percent=15,
    disk_gb=2,
    inodes=50_000,
    memory_stall_percent=30,
    cpu_stall_percent=100,
    io_stall_percent=100,
    load_per_cpu=1000,
    stories=4,
    agents=4,
)
_DEGRADED = TierRow(
    memory_gb=2,
    swap_gb=3,
    peers=6,
    pressure_free_percent=5,
    disk_gb=1,
    inodes=10_000,
    memory_stall_percent=60,
    cpu_stall_percent=100,
    io_stall_percent=100,
    load_per_cpu=1000,
    stories=2,
    agents=2,
)


class TierSettings(Struct, frozen=True, kw_only=True):
    """The table of tiers: `green` lasts up to its row, then `warn`, then `degraded`, then critical."""

    green: Annotated[TierThresholds, Setting(help="the machine is fine")] = _GREEN
    warn: Annotated[TierRow, Setting(help="the machine is busy")] = _WARN
    degraded: Annotated[TierRow, Setting(help="the machine is short of something")] = _DEGRADED
