"""What a run may be told: every setting with its default, and the bounds of the numbers.

This is the one list of settings: flags, environment and files are read against it.
"""

from collections.abc import Mapping
from dataclasses import field

from isolation.frozen import frozen
from runner.core.model import ContinuePolicy


@frozen
class Bounds:
    """The range of a number; what lies outside is clamped, and the clamp is said."""

    low: float
    high: float
    unit: str = ""


def key_of(field_name: str) -> str:
    """Give the key of a field of the settings: `continue_` is `continue`, `max_stories` `max-stories`."""
    return field_name.rstrip("_").replace("_", "-")


SHARED_WRITABLE = tuple(
    f"**/{name}/**"
    for name in (
        "node_modules",
        ".venv",
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".cache",
    )
)
"""Folders that tools fill for everybody, which no story owns and every story may write to."""

BOUNDS: Mapping[str, Bounds] = {
    "max-stories": Bounds(low=1, high=50),
    "max-sessions": Bounds(low=1, high=50),
    "max-hours": Bounds(low=0.5, high=24, unit="h"),
    "inactivity-timeout": Bounds(low=60, high=14400, unit="s"),
    "stall-seconds": Bounds(low=60, high=3600, unit="s"),
    "confidence-threshold": Bounds(low=0, high=1),
    "grace-seconds": Bounds(low=0, high=300, unit="s"),
    "log-cap-mb": Bounds(low=1, high=4096, unit="MB"),
    "agents-per-wave": Bounds(low=1, high=50),
    "peer-abort": Bounds(low=0, high=1000),
    "memory-per-story-gb": Bounds(low=0, high=1024, unit="GB"),
}


@frozen
class AgentSettings:
    """An agent: the user's own with an `argv`, or without one what the user says of a known agent.

    Placeholders in `argv` and `resume` are {id} {title} {workspace} {session} {model}. `args` come last.
    `events` says under which keys the JSON lines of the user's own agent hold what.
    """

    argv: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    permissions: str = "edit"
    events: Mapping[str, str] = field(default_factory=dict)


@frozen
class Price:
    """What a million tokens of a model cost in US dollars; `cached` are input tokens read from a cache."""

    input: float
    output: float
    cached: float | None = None


@frozen
class HookSettings:
    """Shell commands around a workspace; the first two abort the story on failure."""

    after_create: str = ""
    before_run: str = ""
    after_run: str = ""
    before_remove: str = ""


@frozen
class TierThresholds:
    """Where a tier ends: with less of what is to be free, or more of what is to be little, it is the next."""

    memory_gb: float
    swap_gb: float
    peers: int
    pressure_free_percent: float
    disk_gb: float
    inodes: int
    memory_stall_percent: float
    cpu_stall_percent: float
    io_stall_percent: float
    load_per_cpu: float


@frozen
class TierRow(TierThresholds):
    """A tier that holds back: besides its thresholds, how many stories and agents of a session it allows."""

    stories: int
    agents: int


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
"""The thresholds that a signal must stay under, so that they rise from green to degraded; others fall."""

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
# Being busy is not dangerous: a waiting processor or disk takes the machine to warn and no further.
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


@frozen
class TierSettings:
    """The table of tiers: `green` holds up to its row, then `warn`, then `degraded`, then critical."""

    green: TierThresholds = _GREEN
    warn: TierRow = _WARN
    degraded: TierRow = _DEGRADED


@frozen
class Settings:
    """One run's settings, after all sources were read. Field names are the keys with underscores."""

    stories: str = "stories"
    agent: str = "auto"
    model: str = ""
    prompt_template: str = ""
    verify: tuple[str, ...] = ()
    max_stories: int = 3
    max_sessions: int = 5
    max_hours: float = 8.0
    inactivity_timeout: float = 1800.0
    stall_seconds: float = 600.0
    confidence_threshold: float = 0.85
    token_budget: int | None = None
    cost_budget: float | None = None
    story_token_budget: int | None = None
    story_cost_budget: float | None = None
    session_tokens: int | None = None
    session_cost: float | None = None
    peer_abort: int = 6
    selector: str = ""
    bg_isolation: str = "worktree"
    deconflict_paths: tuple[str, ...] = ()
    guard: bool = True
    enforce: str = "auto"
    shared_writable: tuple[str, ...] = SHARED_WRITABLE
    base: str = "HEAD"
    continue_: ContinuePolicy = ContinuePolicy.DEPENDENCIES_SUCCESSFUL
    grace_seconds: float = 10.0
    log_cap_mb: int = 64
    agents_per_wave: int = 6
    window: str = "adaptive"
    memory_per_story_gb: float = 0.5
    worktree_root: str = ""
    symlink_directories: tuple[str, ...] = ()
    dialect: str = "autodev"
    cross_boundaries: bool = False
    decide_default: str = "ask"
    notify: str = ""
    tracker: str = ""
    tracker_auth: str = ""
    hooks: HookSettings = HookSettings()
    agents: Mapping[str, AgentSettings] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    tiers: TierSettings = TierSettings()
