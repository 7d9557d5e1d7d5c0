"""What happens in a run, as values, and their form in the journal.

Every change of a run's state is one of these; nothing else changes a snapshot. Fields are JSON values or
tuples and enums of such. Decoding ignores unknown fields and refuses unknown kinds, so that no older
program misreads a newer journal.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct, field, structs

from runner.core.events import agents, base, candidates, cluster, drafts, landing, steering, work_items
from runner.core.model import RunId, StoryId


class RunStarted(Struct, frozen=True, kw_only=True):
    """The plan, complete: a resume needs nothing else.

    `repos` are the repositories in which stories work, by the name that a story has for its own; empty if
    there is only the one of the run.
    """

    base: str
    isolation: str
    enforcement: str
    max_stories: int
    options: Mapping[str, Any]
    stories: tuple[Mapping[str, Any], ...]
    repos: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class RunResumed(Struct, frozen=True, kw_only=True):
    """The run continues; `requeued` names the stories that run again although they had a result."""

    requeued: tuple[str, ...] = ()


class RunEnded(Struct, frozen=True, kw_only=True):
    """Every story has its result."""

    exit_code: int


class AdmissionEnded(Struct, frozen=True, kw_only=True):
    """Nothing new starts from here on, for one named reason."""

    name: str
    detail: str
    hint: str


class WindowChanged(Struct, frozen=True, kw_only=True):
    """How many stories may run now, and why."""

    window: int
    tier: str
    reason: str


class StoryQueued(Struct, frozen=True, kw_only=True):
    """Its dependencies are done; it waits for a free slot."""

    story_id: StoryId


class StoryStarted(Struct, frozen=True, kw_only=True):
    """The story has a slot."""

    story_id: StoryId


class WorkspacePlanned(Struct, frozen=True, kw_only=True):
    """Intent: a workspace is about to be made here."""

    story_id: StoryId
    branch: str
    path: str


class WorkspaceOpened(Struct, frozen=True, kw_only=True):
    """Done: the workspace exists and was verified; `ports` and `database` are its own for now."""

    story_id: StoryId
    branch: str
    path: str
    base: str
    head: str
    ports: tuple[int, ...] = ()
    database: str = ""


class WorkspaceClosed(Struct, frozen=True, kw_only=True):
    """The worktree is gone, or was kept and why."""

    story_id: StoryId
    removed: bool
    reason: str


class SessionStarted(Struct, frozen=True, kw_only=True):
    """Intent: a session is about to run; `escalated`: not by whom the story began with.

    `selected` is how sure the selector was of the mode; None if none was asked.
    """

    story_id: StoryId
    session_id: str
    kind: str
    step_number: str
    step_name: str
    attempt: int
    agent: str
    log: str
    agents_per_wave: int | None = None
    conversation: str = ""
    model: str = ""
    escalated: bool = False
    mode: str = ""
    selected: float | None = None


class SessionEnded(Struct, frozen=True, kw_only=True):
    """Acknowledged: this session ran to its end and is never run again.

    `zone` is how full its context was, as in `core/limits/context_zone.py`; empty if that was not watched.
    """

    story_id: StoryId
    session_id: str
    outcome: str
    exit_code: int | None
    detail: str = ""
    reported: str = ""
    last_line: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    summary: Mapping[str, int] = field(default_factory=dict)
    effectiveness: Mapping[str, float] = field(default_factory=dict)
    peak_memory: int | None = None
    total_waves: int | None = None
    waves: tuple[Any, ...] | None = None
    cached_tokens: int | None = None
    cost_estimated: bool = False
    tools: int | None = None
    notes: str = ""
    zone: str = ""


class CheckpointPlanned(Struct, frozen=True, kw_only=True):
    """Intent: what the session changed is about to be committed; the event's time is the commit's."""

    story_id: StoryId


class Checkpointed(Struct, frozen=True, kw_only=True):
    """Done: the branch holds the work of this attempt; `files` is how many paths its session changed.

    `unchanged` means that the branch has the same files as its base, `markers` are the files to which it adds
    conflict markers.
    """

    story_id: StoryId
    commit: str
    commits: int
    files: int | None = None
    unchanged: bool = False
    markers: tuple[str, ...] = ()


class AttemptFailed(Struct, frozen=True, kw_only=True):
    """One attempt did not pass; `output` goes into the next attempt's prompt.

    With `fresh` that starts a new conversation, since the old one leads nowhere.
    """

    story_id: StoryId
    attempt: int
    reason: str
    output: str
    fresh: bool = False


class SpiralSeen(Struct, frozen=True, kw_only=True):
    """A session repeated itself without progress; with `retries` the step starts over in a new one."""

    story_id: StoryId
    reason: str
    retries: bool


class StallSeen(Struct, frozen=True, kw_only=True):
    """A session has shown no sign of life for a whole interval; after a second one it is ended."""

    story_id: StoryId
    session_id: str
    seconds: float


class SelectionMade(Struct, frozen=True, kw_only=True):
    """The user's selector chose what comes next, with a confidence."""

    story_id: StoryId
    mode: str
    confidence: float
    rationale: str = ""


class LoopEnded(Struct, frozen=True, kw_only=True):
    """A kill-switch ends the story's loop; its work is still committed before its result is recorded."""

    story_id: StoryId
    name: str
    detail: str
    hint: str


class StoryFinished(Struct, frozen=True, kw_only=True):
    """The story's result."""

    story_id: StoryId
    verdict: str
    reason: str
    next: str = ""
    commit: str | None = None
    commits: int = 0
    kill_switch: Mapping[str, str] | None = None
    blocked_by: tuple[str, ...] = ()
    branch: str | None = None


class PlaceFound(Struct, frozen=True, kw_only=True):
    """Where in its flow the story continues, with which confidence, and what had to be corrected for it.

    `docs` is the folder of its documents in the workspace, `cycle` its feature cycle, and `retries` how many
    retries of the step its state file had counted; None leaves what is known. `banner` is the status of a
    story that continues, a line each. `again` are numbers of steps that count neither as finished nor as
    skipped from now on.
    """

    story_id: StoryId
    step_number: str
    step_name: str
    confidence: float
    correction: str = ""
    docs: str = ""
    cycle: int | None = None
    retries: int | None = None
    banner: tuple[str, ...] = ()
    again: tuple[str, ...] = ()


class StepFinished(Struct, frozen=True, kw_only=True):
    """A step is over, completed or skipped, and the next one is where the story is now.

    One that is `ahead` was skipped before the story reached it; the story stays where it is.
    """

    story_id: StoryId
    step_number: str
    step_name: str
    next_number: str
    next_name: str
    skipped: bool = False
    ahead: bool = False


class DecisionAsked(Struct, frozen=True, kw_only=True):
    """The user must choose; the story is parked until then."""

    story_id: StoryId
    decision_id: str
    question: Mapping[str, Any]


class DecisionAnswered(Struct, frozen=True, kw_only=True):
    """The user has chosen, or the unattended default did; recorded once."""

    story_id: StoryId
    decision_id: str
    letter: str
    by: str


class DecisionApplied(Struct, frozen=True, kw_only=True):
    """The answer has had its effect: `retry` means new attempts, `moved` a worktree of its own."""

    story_id: StoryId
    decision_id: str
    retry: bool = False
    moved: bool = False


class StoryRequeued(Struct, frozen=True, kw_only=True):
    """A parked story may continue in this run."""

    story_id: StoryId


class Remembered(Struct, frozen=True, kw_only=True):
    """What the story's state file has no section for: topic `decision`, `retry` or `blocker`."""

    story_id: StoryId
    topic: str
    text: str


class Noted(Struct, frozen=True, kw_only=True):
    """Something that the user should read."""

    message: str
    story_id: StoryId | None = None


class OutputSeen(Struct, frozen=True, kw_only=True):
    """The newest line of a running session, and its tool uses; shown, never journalled.

    `zone` is how full its context is; empty while that is safe or unknown.
    """

    story_id: StoryId
    line: str
    tools: int = 0
    zone: str = ""


Body: TypeAlias = (
    RunStarted
    | RunResumed
    | RunEnded
    | AdmissionEnded
    | WindowChanged
    | base.BaseBody
    | StoryQueued
    | StoryStarted
    | WorkspacePlanned
    | WorkspaceOpened
    | WorkspaceClosed
    | SessionStarted
    | SessionEnded
    | CheckpointPlanned
    | Checkpointed
    | AttemptFailed
    | SpiralSeen
    | StallSeen
    | SelectionMade
    | LoopEnded
    | StoryFinished
    | PlaceFound
    | StepFinished
    | DecisionAsked
    | DecisionAnswered
    | DecisionApplied
    | StoryRequeued
    | Remembered
    | Noted
    | OutputSeen
    | agents.AgentBody
    | landing.LandingBody
    | candidates.CandidateBody
    | cluster.ClusterBody
    | steering.SteeringBody
    | drafts.DraftBody
    | work_items.WorkItemBody
)

# A class may be renamed, its kind may not, or a journal of an earlier version could no longer be read.
_KINDS: dict[str, Any] = {
    "RunStarted": RunStarted,
    "RunResumed": RunResumed,
    "RunEnded": RunEnded,
    "AdmissionEnded": AdmissionEnded,
    "WindowChanged": WindowChanged,
    **base.KINDS,
    "StoryQueued": StoryQueued,
    "StoryStarted": StoryStarted,
    "WorkspacePlanned": WorkspacePlanned,
    "WorkspaceOpened": WorkspaceOpened,
    "WorkspaceClosed": WorkspaceClosed,
    "SessionStarted": SessionStarted,
    "SessionEnded": SessionEnded,
    "CheckpointPlanned": CheckpointPlanned,
    "Checkpointed": Checkpointed,
    "AttemptFailed": AttemptFailed,
    "SpiralSeen": SpiralSeen,
    "StallSeen": StallSeen,
    "SelectionMade": SelectionMade,
    "LoopEnded": LoopEnded,
    "StoryFinished": StoryFinished,
    "PlaceFound": PlaceFound,
    "StepFinished": StepFinished,
    "DecisionAsked": DecisionAsked,
    "DecisionAnswered": DecisionAnswered,
    "DecisionApplied": DecisionApplied,
    "StoryRequeued": StoryRequeued,
    "Remembered": Remembered,
    "Noted": Noted,
    "OutputSeen": OutputSeen,
    **agents.KINDS,
    **landing.KINDS,
    **candidates.KINDS,
    **cluster.KINDS,
    **steering.KINDS,
    **drafts.KINDS,
    **work_items.KINDS,
}
_KIND_OF: dict[Any, str] = {body: kind for kind, body in _KINDS.items()}
_FIELDS = {kind: frozenset(body.__struct_fields__) for kind, body in _KINDS.items()}


class Event(Struct, frozen=True, kw_only=True):
    """One thing that happened, when, in which run. `at` is seconds since the epoch."""

    run_id: RunId
    at: float
    body: Body


class UnknownEventError(ValueError):
    """The journal holds a kind of event that this version does not know."""


def encode(body: Body) -> tuple[str, dict[str, Any]]:
    """Turn a body into its kind and a JSON object."""
    return _KIND_OF[type(body)], structs.asdict(body)


def encode_all(events: Iterable[Event]) -> list[tuple[Event, str, dict[str, Any]]]:
    """Turn the bodies of events into their kinds and JSON objects."""
    return [(event, *encode(event.body)) for event in events]


def decode(kind: str, data: Mapping[str, Any]) -> Body:
    """Turn a kind and a JSON object from the journal into a body."""
    known = _KINDS.get(kind)
    if known is None:
        raise UnknownEventError(kind)
    fields = _FIELDS[kind]
    values = {
        name: tuple(each) if type(each) is list else each for name, each in data.items() if name in fields
    }
    body: Body = known(**values)
    return body


def story_of(body: Body) -> StoryId | None:
    """Return the story that an event belongs to, if any."""
    return getattr(body, "story_id", None)
