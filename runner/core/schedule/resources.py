"""What the machine has left, as a value that rules can judge."""

from msgspec import Struct


class ResourceSample(Struct, frozen=True, kw_only=True):
    """What the machine had at one instant; None is unknown, which is neither good nor bad.

    The stalls are percentages of the last ten seconds in which some task waited for memory, processor
    or disk. `peers` are agent sessions that are not ours.
    """

    memory_available: int | None = None
    swap_used: int | None = None
    peers: int | None = None
    pressure_free_percent: float | None = None
    disk_free: int | None = None
    inodes_free: int | None = None
    memory_stall: float | None = None
    cpu_stall: float | None = None
    io_stall: float | None = None
    load_per_cpu: float | None = None
