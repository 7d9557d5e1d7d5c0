"""What a run may be told: every setting with its default, and the bounds of the numbers.

This is the one list of settings: flags, environment and files are read against it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.core.model import ContinuePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The range of a number; what lies outside is clamped, and the clamp is said."""

    low: float
    high: float
    unit: str = ""


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
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """An agent of the user's own; placeholders {id} {title} {workspace} {session} {model}."""

    argv: tuple[str, ...]
    resume: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """Shell commands around a workspace; the first two abort the story on failure."""

    after_create: str = ""
    before_run: str = ""
    after_run: str = ""
    before_remove: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierThresholds:
    """Where a tier ends: less memory or swap, peers or pressure beyond these, and it is the next one."""

    memory_gb: float
    swap_gb: float
    peers: int
    pressure_free_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """The table of tiers: `green` holds up to its row, then `warn`, then `degraded`, then critical."""

    green: TierThresholds = TierThresholds(memory_gb=6, swap_gb=1, peers=2, pressure_free_percent=30)
    warn: TierThresholds = TierThresholds(memory_gb=4, swap_gb=2, peers=4, pressure_free_percent=15)
    degraded: TierThresholds = TierThresholds(memory_gb=2, swap_gb=3, peers=6, pressure_free_percent=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One run's settings, after all sources were read. Field names are the keys with underscores."""

    stories: str = "stories"
    agent: str = "auto"
    model: str = ""
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
    base: str = "HEAD"
    continue_: ContinuePolicy = ContinuePolicy.DEPENDENCIES_SUCCESSFUL
    grace_seconds: float = 10.0
    log_cap_mb: int = 64
    agents_per_wave: int = 6
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
    tiers: TierSettings = TierSettings()
