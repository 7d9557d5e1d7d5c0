"""The vocabulary of the program as values: stories, verdicts, snapshots. Frozen, and free of behavior."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NewType, TypeVar

from msgspec import Struct, field

from runner.core.forecast.clashes import Forecast
from runner.core.progress.base import BaseCheck
from runner.core.progress.candidates import Candidate, Review
from runner.core.progress.landing import LandingProgress
from runner.core.progress.repositories import HOME, RepositoryInfo
from runner.core.progress.workspace import WorkspaceInfo

StoryId = NewType("StoryId", str)
RunId = NewType("RunId", str)
_N = TypeVar("_N", int, float)

MAX_RETRIES = 3
"""How many retries of a step a state file can count, by its protocol; `max-attempts` may allow more."""
DEFAULT_ATTEMPTS = 1 + MAX_RETRIES
"""How often a step is tried before its story fails, unless a setting or the story says otherwise."""
SPIRAL_LIMIT = 2
"""The spiral of a run after which nothing new starts, unless a setting says otherwise."""

MULTI_STORY = "multi-story"
"""The mode of a run, and of its stories unless they say otherwise: see `core/schedule/exclusivity.py`."""


class Status(StrEnum):
    """Where a story is; the last six are verdicts, and final until the run is resumed."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    PARKED = "parked"
    SKIPPED = "skipped"
    STOPPED = "stopped"
    NO_WORK = "no_work"

    final: bool
    """Whether the story has its verdict."""

    def __init__(self, value: str) -> None:
        self.final = value not in {"waiting", "queued", "running"}


class Tier(StrEnum):
    """How loaded the machine is."""

    GREEN = "green"
    WARN = "warn"
    DEGRADED = "degraded"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


class ContinuePolicy(StrEnum):
    """What a failed dependency means for the stories behind it, and for the rest of the backlog."""

    NEVER = "never"
    DEPENDENCIES_SUCCESSFUL = "dependencies-successful"
    ALWAYS = "always"


class Outcome(StrEnum):
    """How a session ended, as the runner judges it."""

    OK = "ok"
    PARTIAL = "partial"
    ASKS = "asks"
    FAILED = "failed"
    STOPPED = "stopped"
    STALLED = "stalled"
    STUCK = "stuck"


class SessionKind(StrEnum):
    """What a session is for."""

    WORK = "work"
    VERIFY = "verify"
    REVIEW = "review"


class Step(Struct, frozen=True, kw_only=True):
    """One stage of a flow."""

    number: str
    name: str


IMPLEMENT = Step(number="1", name="Implement")
VERIFY = Step(number="2", name="Verify")
FLOW_DONE = Step(number="done", name="Done")
"""The step of a story whose flow is finished."""


class Story(Struct, frozen=True, kw_only=True):
    """One unit of work. `command` is an argv; without it an agent does the work.

    `estimate` is how many minutes it will take. `max_attempts` limits the attempts at a step, `story_minutes`
    its work, `verify_minutes` each verify command. `ports` is how many it leases, `best_of` how many
    candidates it may have, `review` its reviewer, `needs` what a worker must have. What is None is left to
    the settings. `allow_no_change` says that it may succeed and leave everything as it is. `labels` are words
    for people. `origin` names the issue that it was imported from. `repo` is the repository in which it
    works: as its author wrote it, and in a plan the name that it has there, empty for that of the run.
    """

    id: StoryId
    title: str
    prompt: str
    priority: int = 0
    estimate: float | None = None
    depends_on: tuple[StoryId, ...] = ()
    owns: tuple[str, ...] = ()
    flow: str = "quick"
    agent: str | None = None
    escalate: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    verify: tuple[str, ...] = ()
    dialect: str | None = None
    mode: str = MULTI_STORY
    source: str = ""
    max_attempts: int | None = None
    story_minutes: float | None = None
    verify_minutes: float | None = None
    allow_no_change: bool = False
    ports: int | None = None
    best_of: int | None = None
    review: str | None = None
    labels: tuple[str, ...] = ()
    origin: str = ""
    needs: tuple[tuple[str, float | str], ...] = ()
    repo: str = ""


class Usage(Struct, frozen=True, kw_only=True):
    """What sessions have spent; None is unknown, which is not zero.

    `cached_tokens` are the input tokens that were read from a cache. `estimated` means that the cost, or a
    part of it, was computed from a price table.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    cached_tokens: int | None = None
    estimated: bool = False

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            cost_usd=_sum(self.cost_usd, other.cost_usd),
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            estimated=self.estimated or other.estimated,
        )

    @property
    def tokens(self) -> int | None:
        """Total tokens, or None when nothing is known."""
        return _sum(self.input_tokens, self.output_tokens)


def _sum(left: _N | None, right: _N | None) -> _N | None:
    if left is None:
        return right
    return left if right is None else left + right


class KillSwitch(Struct, frozen=True, kw_only=True):
    """The one reason why a story's loop, or the run, was ended."""

    name: str
    detail: str
    hint: str


class SessionRecord(Struct, frozen=True, kw_only=True):
    """One session as the journal knows it; `peak_memory` is in bytes, None where it was not measured.

    `model` is what the agent was asked to use. `escalated`: another agent or model than in the first attempt.
    `zone` is how full its context was at the end; empty if that was not watched.
    `mode` is what it was started as, `selected` how sure the selector was of that mode, None where none chose
    it. `unserved` means that the agent's service failed it, so that it says nothing about the work.
    """

    id: str
    kind: SessionKind
    step: Step
    attempt: int
    started_at: float
    log: str
    agent: str = ""
    model: str = ""
    mode: str = ""
    escalated: bool = False
    ended_at: float | None = None
    outcome: Outcome | None = None
    exit_code: int | None = None
    detail: str = ""
    reported: str = ""
    usage: Usage = field(default_factory=Usage)
    agents_per_wave: int | None = None
    summary: Mapping[str, int] = field(default_factory=dict)
    effectiveness: Mapping[str, float] = field(default_factory=dict)
    peak_memory: int | None = None
    total_waves: int | None = None
    waves: tuple[Any, ...] | None = None
    files_changed: int | None = None
    conversation: str = ""
    tools: int | None = None
    notes: str = ""
    zone: str = ""
    selected: float | None = None
    unserved: bool = False

    @property
    def worker(self) -> str:
        """Who did it: `agent`, or `agent:model` if that is not what the story began with."""
        return f"{self.agent}:{self.model}" if self.escalated and self.model else self.agent


class Conversation(Struct, frozen=True, kw_only=True):
    """The conversation in which a story's agent can be resumed."""

    id: str
    agent: str


class Decision(Struct, frozen=True, kw_only=True):
    """A question to the user, as the journal keeps it, and the answer once it is given.

    `question` is the JSON form of the Choose form; `letter` is empty while it is open.
    """

    id: str
    question: Mapping[str, Any]
    asked_at: float
    letter: str = ""
    by: str = ""


class Memory(Struct, frozen=True, kw_only=True):
    """A note for which a state file's dialect has no section: a decision, a retry or a blocker."""

    at: float
    topic: str
    text: str


class StepProgress(Struct, frozen=True, kw_only=True):
    """How far the current attempt at the current step is: what a resume must not repeat.

    `attempt` counts from 1 once the story has started. `implemented` means that its work session succeeded,
    `checkpointed` that its changes are committed; `verified` is how many verify commands it has passed;
    `reviewed` that its reviewer, if it has one, does not ask for another attempt.
    """

    attempt: int = 0
    implemented: bool = False
    checkpointed: bool = False
    checkpoint_planned_at: float | None = None
    verified: int = 0
    reviewed: bool = False


class StepHistory(Struct, frozen=True, kw_only=True):
    """What the attempts at the current step left for the next one; a new step begins with a new one.

    `sessions` counts towards the step's session limit, except those that ended with a full context: they are
    `breaks`. `conversation` is what the next session may resume, `note` what the user says to it.
    """

    sessions: int = 0
    breaks: int = 0
    last_failure: str = ""
    failures: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    conversation: Conversation | None = None
    note: str = ""


class Outage(Struct, frozen=True, kw_only=True):
    """How often in a row the agent's service has failed, since when, and when it is tried again."""

    count: int = 0
    since: float | None = None
    resume_at: float = 0.0


BUDGET = "budget"
"""What a story waits for while other sessions hold the rest of the run's budget."""


class Wait(Struct, frozen=True, kw_only=True):
    """A stretch of time in which a started story could not work: for the budget, its agent's service, or you.

    `until` is None while it lasts.
    """

    what: str
    since: float
    reason: str = ""
    until: float | None = None


class StorySnapshot(Struct, frozen=True, kw_only=True):
    """Everything known about one story of a run, folded from its events.

    `place` is the current step of the work, `step` what the newest session is for; `placed` means that the
    current step was determined in this run. `docs` is the folder of its documents, empty if it keeps none,
    and `cycle` its feature cycle. `work_items` are ids in the tracker by marker, empty if only intended.
    `decision` is the question that holds the story up, answered or not, until it is acted upon.
    `loop_sessions` counts the work sessions of this loop, `before_loop` all sessions before it. `mode` is
    what the selector chose for the session that comes or runs, and `selected` how sure it was. `settled`
    means that the user has said where to continue, `ending` is why the loop ends although the verdict is
    still to come. `refusal` says why the agent is not tried again. `handed_to` is the agent that took the
    place of the first one, `away` says until when agents that could not work are not asked again.

    `waited` is how many seconds since its first start the story had nothing to do, because of the user, a
    limit or an interrupted run; `waiting_since` is when the current wait began, `running_since` when the
    story last got a slot.
    `candidate` is the number of the current try for the best of N, `candidates` are those that have ended;
    `before_candidate` counts the sessions before it.
    """

    id: StoryId
    title: str
    status: Status
    depends_on: tuple[StoryId, ...] = ()
    repo: str = HOME
    allow_no_change: bool = False
    estimate: float | None = None
    reason: str = ""
    next: str = ""
    workspace: WorkspaceInfo = field(default_factory=WorkspaceInfo)
    flow: str = "quick"
    place: Step = IMPLEMENT
    placed: bool = False
    docs: str = ""
    cycle: int = 1
    confidence: float = 1.0
    finished_steps: tuple[str, ...] = ()
    skipped_steps: tuple[str, ...] = ()
    decision: Decision | None = None
    decided: tuple[Decision, ...] = ()
    memories: tuple[Memory, ...] = ()
    step: Step = IMPLEMENT
    progress: StepProgress = field(default_factory=StepProgress)
    step_history: StepHistory = field(default_factory=StepHistory)
    outage: Outage = field(default_factory=Outage)
    waits: tuple[Wait, ...] = ()
    max_attempts: int = DEFAULT_ATTEMPTS
    loop_sessions: int = 0
    before_loop: int = 0
    spirals: int = 0
    stalls: int = 0
    mode: str = ""
    selected: float | None = None
    settled: bool = False
    ending: KillSwitch | None = None
    refusal: tuple[str, str] | None = None
    handed_to: str = ""
    away: Mapping[str, float] = field(default_factory=dict)
    tools: int = 0
    zone: str = ""
    sessions: tuple[SessionRecord, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    waited: float = 0.0
    waiting_since: float | None = None
    running_since: float | None = None
    kill_switch: KillSwitch | None = None
    blocked_by: tuple[StoryId, ...] = ()
    last_line: str = ""
    candidate: int = 1
    candidates: tuple[Candidate, ...] = ()
    before_candidate: int = 0
    review: Review | None = None
    work_items: Mapping[str, str] = field(default_factory=dict)

    @property
    def own_sessions(self) -> tuple[SessionRecord, ...]:
        """The sessions of the current candidate; it has never seen the others."""
        return self.sessions[self.before_candidate :]

    @property
    def retry_count(self) -> int:
        """How many retries the current step has used, as far as a state file can count them."""
        return min(MAX_RETRIES, max(0, self.progress.attempt - 1))

    @property
    def used_up(self) -> bool:
        """Whether its attempts are used up: it has failed, or asks what to do about that."""
        asked = self.decision is not None and self.decision.question.get("kind") == "failure"
        return self.status is Status.FAILED or (self.status is Status.PARKED and asked)

    @property
    def waiting(self) -> Wait | None:
        """What a started story waits for now; None while it works."""
        return self.waits[-1] if self.waits and self.waits[-1].until is None else None

    @property
    def loop_seconds(self) -> float:
        """How long the sessions of this loop took that have ended; what the story waited for is not work."""
        ended = (session for session in self.sessions[self.before_loop :] if session.ended_at is not None)
        return sum(max(0.0, (session.ended_at or 0.0) - session.started_at) for session in ended)

    @property
    def usage(self) -> Usage:
        """What all sessions of this story have spent."""
        total = Usage()
        for session in self.sessions:
            total += session.usage
        return total


class Note(Struct, frozen=True, kw_only=True):
    """Something that the user should read: a warning, a correction, something that was kept."""

    at: float
    story_id: StoryId | None
    message: str


class RunSnapshot(Struct, frozen=True, kw_only=True):
    """A whole run. `stories` is in start order; `pauses`: until when agents wait; `followed`: newer base.

    `paused`: the user wants no more stories to start for now. `repos` are the repositories of its stories by
    the name that these have for them, empty if there is one; `forecast` joins the `forecasts` of each.
    """

    run_id: RunId
    started_at: float
    ended_at: float | None = None
    base: str = ""
    followed: str = ""
    isolation: str = "worktree"
    enforcement: str = "none"
    max_stories: int = 1
    window: int = 1
    tier: Tier = Tier.UNKNOWN
    tier_reason: str = ""
    kill_switch: KillSwitch | None = None
    cohort_spirals: int = 0
    exit_code: int | None = None
    dry_run: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    stories: Mapping[StoryId, StorySnapshot] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    pauses: Mapping[str, float] = field(default_factory=dict)
    paused: bool = False
    base_checks: tuple[BaseCheck, ...] = ()
    forecast: Forecast | None = None
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)
    landings: tuple[LandingProgress, ...] = ()
    repos: Mapping[str, RepositoryInfo] = field(default_factory=dict)

    def base_of(self, repo: str) -> str:
        """Return the commit that stories in a repository start from."""
        return self.repos[repo].base if repo in self.repos else self.base

    def followed_in(self, repo: str) -> str:
        """Return where the base of a repository is by now; empty if it was not followed."""
        return self.repos[repo].followed if repo in self.repos else self.followed

    def repo_name(self, repo: str) -> str:
        """Return the name of a repository for people; empty where a run has only one."""
        return self.repos[repo].name if repo in self.repos else ""

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.ended_at is not None

    @property
    def open_decisions(self) -> tuple[StorySnapshot, ...]:
        """The stories that wait for an answer of the user."""
        stories = self.stories.values()
        return tuple(story for story in stories if story.decision and not story.decision.letter)

    def count(self, status: Status) -> int:
        """Count the stories that are in `status`."""
        return self.counts[status]

    @property
    def counts(self) -> Counter[Status]:
        """How many stories are in which status."""
        return Counter(story.status for story in self.stories.values())

    @property
    def usage(self) -> Usage:
        """What the whole run has spent."""
        return sum((story.usage for story in self.stories.values() if story.sessions), Usage())
