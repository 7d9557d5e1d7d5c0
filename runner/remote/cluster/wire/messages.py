"""What a coordinator and a worker say to each other: requests of the coordinator, and their answers.

Each request can be repeated without harm, since its answer may be lost. Every message is one value in
MessagePack; fields that a side does not know are ignored, so that two versions can still name themselves.
"""

from typing import Any, TypeAlias

from msgspec import Struct, ValidationError, field, msgpack

from isolation.decoding import known
from runner.core.errors import RunnerError
from runner.core.events.events import Event, decode, encode
from runner.core.model import RunId

PROTOCOL = 4
CHUNK = 4 << 20
"""How many bytes of a file travel in one message."""


class ClusterError(RunnerError):
    """Something about a cluster that the user must know."""

    code = "cluster"
    exit_code = 2


class Sent(Struct, frozen=True, kw_only=True, array_like=True):
    """An event on its way."""

    at: float
    kind: str
    data: dict[str, Any]


class Hello(Struct, frozen=True, kw_only=True, tag=True):
    """Asks a worker who it is."""

    version: str
    protocol: int = PROTOCOL


class Greeting(Struct, frozen=True, kw_only=True, tag=True):
    """A worker names itself and what it offers; `run_id` is the run that it serves now."""

    version: str
    name: str
    instance: str
    slots: int
    protocol: int = PROTOCOL
    offers: dict[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    run_id: str = ""
    findings: tuple[str, ...] = ()


class Prepare(Struct, frozen=True, kw_only=True, tag=True):
    """Asks which commits of a repository a worker has."""

    repository: str


class Prepared(Struct, frozen=True, kw_only=True, tag=True):
    """The tips of what the worker's clone has."""

    have: tuple[str, ...]


class Put(Struct, frozen=True, kw_only=True, tag=True):
    """A part of a file for the worker; `name` is unique, so that a repeated part is the same."""

    repository: str
    name: str
    offset: int
    data: bytes


class Take(Struct, frozen=True, kw_only=True, tag=True):
    """Take over the commits of a bundle of which all parts were put."""

    repository: str
    name: str


class Place(Struct, frozen=True, kw_only=True):
    """A repository of the run: the name of its clones, the commit that stories start from, their settings.

    `identity` is the name and the address under which the user commits there; None if git has none.
    """

    repository: str
    base: str
    settings: dict[str, Any]
    identity: tuple[str, str] | None


class Open(Struct, frozen=True, kw_only=True, tag=True):
    """Begin to serve a run, or continue to serve it for a coordinator that came back.

    `places` are its repositories, by the names that stories have for them. The commits of its own repository
    have come before; those of another one come before the first story that works there. `clock` is the
    coordinator's time of day, `patience` for how long the worker waits for a silent coordinator. With
    `examine` its doctor is asked.
    """

    run_id: str
    places: dict[str, Place]
    env: dict[str, str]
    clock: float
    patience: float
    examine: bool
    events: tuple[Sent, ...]


class Machine(Struct, frozen=True, kw_only=True):
    """How many stories the worker's machine allows now, and why.

    `has_disk`: there is ample room for worktrees of stories that come next.
    """

    stories: int
    tier: str
    reason: str
    has_disk: bool = True


class Opened(Struct, frozen=True, kw_only=True, tag=True):
    """The worker serves the run; `carrying` are the stories that it works on, with their fences."""

    carrying: dict[str, int]
    machine: Machine


class Ack(Struct, frozen=True, kw_only=True):
    """A batch is in the journal, or it is refused because the story was placed again."""

    story_id: str
    fence: int
    number: int
    fenced: bool = False


class Talk(Struct, frozen=True, kw_only=True):
    """The files of an agent's conversation, packed, so that it can continue elsewhere."""

    agent: str
    conversation: str
    files: dict[str, bytes]


class Start(Struct, frozen=True, kw_only=True):
    """Work on this story, from these commits; `tip` is where its branch is, empty if there is none.

    Without a fence it is only expected: the worker may prepare for it. `left` is a commit of what an earlier
    session left uncommitted.
    """

    story: dict[str, Any]
    fence: int
    tip: str
    branches: dict[str, str]
    past: dict[str, Any] | None = None
    talk: Talk | None = None
    left: str = ""


class Levels(Struct, frozen=True, kw_only=True):
    """How urgently the run and single stories are to end, and what asked for that."""

    run: tuple[int, str] = (0, "")
    stories: dict[str, tuple[int, str]] = field(default_factory=dict)


class Update(Struct, frozen=True, kw_only=True, tag=True):
    """What the worker must know now; `events` begin with the number `first` of the run's events.

    `expected` are all stories that may come next; None if nothing has changed about that.
    """

    run_id: str
    first: int
    events: tuple[Sent, ...] = ()
    acks: tuple[Ack, ...] = ()
    starts: tuple[Start, ...] = ()
    expected: tuple[Start, ...] | None = None
    fenced: tuple[tuple[str, int], ...] = ()
    levels: Levels = field(default_factory=Levels)


class Updated(Struct, frozen=True, kw_only=True, tag=True):
    """How many events of the run the worker has by now."""

    received: int


class Listen(Struct, frozen=True, kw_only=True, tag=True):
    """What is new? `number` answers have arrived; the worker may wait with the next one.

    `update` is what the worker must know at once, before it waits.
    """

    run_id: str
    number: int
    wait: float
    update: Update | None = None


class Bundle(Struct, frozen=True, kw_only=True):
    """Commits that come before the events which name them: `data` is a small pack.

    Without it they are a bundle, to be fetched by its name. `tip` is where the branch is now, `left` a commit
    of what is uncommitted in the story's worktree; empty if nothing is.
    """

    name: str
    size: int
    branch: str
    tip: str
    data: bytes = b""
    left: str = ""

    @property
    def newest(self) -> str:
        """The commit that has all the others behind it."""
        return self.left or self.tip


class Batch(Struct, frozen=True, kw_only=True):
    """Events of one story that must become durable together before it continues."""

    story_id: str
    fence: int
    number: int
    events: tuple[Sent, ...]
    bundle: Bundle | None = None
    talk: Talk | None = None


class Line(Struct, frozen=True, kw_only=True, array_like=True):
    """The newest line of a session."""

    story_id: str
    line: str
    tools: int
    zone: str


class LogPart(Struct, frozen=True, kw_only=True, array_like=True):
    """A part of a log, by its name below the program's folder in the repository."""

    name: str
    offset: int
    data: bytes


class Gone(Struct, frozen=True, kw_only=True, array_like=True):
    """The worker no longer works on a story; `trouble` says why if it has no result.

    `last` are events that nothing had to wait for, such as the removal of its folder.
    """

    story_id: str
    fence: int
    trouble: str = ""
    last: tuple[Sent, ...] = ()


class Heard(Struct, frozen=True, kw_only=True, tag=True):
    """What is new on the worker; `number` counts these answers. `active`: some session showed life.

    `received` is how many events of the run the worker has by now.
    """

    number: int
    machine: Machine
    batches: tuple[Batch, ...] = ()
    lines: tuple[Line, ...] = ()
    logs: tuple[LogPart, ...] = ()
    gone: tuple[Gone, ...] = ()
    notes: tuple[str, ...] = ()
    active: bool = False
    received: int = 0


class Fetch(Struct, frozen=True, kw_only=True, tag=True):
    """A part of a bundle that the worker offers."""

    run_id: str
    name: str
    offset: int


class Piece(Struct, frozen=True, kw_only=True, tag=True):
    """Bytes of a file."""

    data: bytes


class Close(Struct, frozen=True, kw_only=True, tag=True):
    """The run has ended."""

    run_id: str


class Done(Struct, frozen=True, kw_only=True, tag=True):
    """Nothing more to say."""


class Refusal(Struct, frozen=True, kw_only=True, tag=True):
    """The request cannot be served."""

    message: str
    hint: str = ""


Request: TypeAlias = Hello | Prepare | Put | Take | Open | Update | Listen | Fetch | Close
Answer: TypeAlias = Greeting | Prepared | Opened | Updated | Heard | Piece | Done | Refusal

_requests = msgpack.Decoder(known(Request))
_answers = msgpack.Decoder(known(Answer))
_encoder = msgpack.Encoder()


def pack(message: Request | Answer) -> bytes:
    """Turn a message into bytes."""
    return _encoder.encode(message)


def read_request(data: bytes) -> Request:
    """Read what a coordinator sent; raises ClusterError if it is no request."""
    try:
        request: Request = _requests.decode(data)
    except ValidationError as error:
        raise ClusterError(f"a request that this version does not know: {error}") from error
    return request


def read_answer(data: bytes) -> Answer:
    """Read what a worker answered; raises ClusterError if it refused, or answered something else."""
    try:
        answer: Answer = _answers.decode(data)
    except ValidationError as error:
        raise ClusterError(f"an answer that this version does not know: {error}") from error
    if isinstance(answer, Refusal):
        raise ClusterError(answer.message, hint=answer.hint)
    return answer


def sent(event: Event) -> Sent:
    """Return an event for the way."""
    kind, data = encode(event.body)
    return Sent(at=event.at, kind=kind, data=data)


def received(message: Sent, run_id: RunId) -> Event:
    """Return the event that was sent."""
    return Event(run_id=run_id, at=message.at, body=decode(message.kind, message.data))
