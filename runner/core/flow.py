"""Flows as values: the steps of a flow, and which step a story is at, judged by the files in its folders.

Folders win over what a state file says. They cannot always identify one step: a step may leave no
artifact, or be optional. So a position holds all steps that the folders allow, and a recorded step
among them is believed. A step that the user skipped counts as passed, and a recorded failure is
not undone by artifacts of the step that failed: the user must see it.
"""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from isolation.patterns import pattern
from runner.core import choose
from runner.core.choose import Question
from runner.core.model import IMPLEMENT, VERIFY, SessionKind
from runner.core.text.names import shown

DONE = "done"
"""What a state file holds instead of a number when the flow is at its end."""

USER_FOLDER = "flows"
"""Where a repository keeps flows of its own."""

PROJECT_DOCS = "_docs"
"""Where the documents of a repository are that carries one story at a time."""

STORY_DOCS = f"{PROJECT_DOCS}/stories"
"""Where the documents of each story have a folder of their own."""

STATE_NAMES = ("_autodev_state.md", "_autopilot_state.md")
"""The names of state files; if a folder has both, the first counts."""

DEFAULT_DOCS = f"{STORY_DOCS}/{{id}}"
"""The default of the setting `docs-folder`."""

DOCS, STORY_ID, CYCLE, BASELINE = "{docs}", "{id}", "{cycle}", "{baseline}"
"""What flow files write for the folder of a story's documents, its id, the number of the feature cycle, and
the folder that holds the baseline: the documents of the project as it was before the story."""

LINE_MARK = " :: "
"""Separates a glob from the line that a file must contain: `_docs/x.yaml :: confirmed: true`."""

AGREED = 1.0
CORRECTED = 0.9
AMBIGUOUS = 0.5
UNKNOWN = 0.0

_NUMBER = pattern(r"([0-9]{1,3})([a-z]{0,3})")


class Edition(StrEnum):
    """Which dialect of the state file numbers the steps; `any` suits every dialect."""

    ANY = "any"
    RICH = "rich"
    POINTER = "pointer"
    AUTODEV = "autodev"


class EndReason(StrEnum):
    """Why a session was the last one of its story for now: the reasons of the format, and that it failed."""

    COMPLETED = "completed step"
    BOUNDARY = "session boundary"
    PAUSED = "user paused"
    CONTEXT_LIMIT = "context limit"
    FAILED = "failed"


class FlowStep(Struct, frozen=True, kw_only=True):
    """One stage of a flow.

    `artifacts` are globs from the root of the workspace, each optionally with a line that a file must
    contain; when something matches each of them the step is done.
    `{cycle}` in them and in the prompt stands for the number of the feature cycle. `session_boundary`
    ends the chain after this step; `boundary_question` replaces the shared question there. `tracker`
    means that the step creates work items, and `work_items` are globs of the files that stand for them.
    `breaks` says where a session of the step may end early. A `baseline` step describes the project, not
    the story: what an earlier story left of it counts for later ones, too.
    """

    number: str
    name: str
    prompt: str = ""
    artifacts: tuple[str, ...] = ()
    kind: SessionKind = SessionKind.WORK
    session_boundary: bool = False
    optional: bool = False
    tracker: bool = False
    work_items: tuple[str, ...] = ()
    breaks: str = ""
    baseline: bool = False
    command: tuple[str, ...] | None = None
    boundary_question: Question | None = None


class DetectRule(Struct, frozen=True, kw_only=True):
    """A workspace matches when it has all of `every`, one of `some` unless empty, and none of `none`."""

    every: tuple[str, ...] = ()
    some: tuple[str, ...] = ()
    none: tuple[str, ...] = ()


class Flow(Struct, frozen=True, kw_only=True):
    """A named list of steps. `loop_from` and `loop_to` name the re-entry after completion.

    `docs` is the folder of one story's documents, once the flow is that story's: see `in_place`.
    """

    name: str
    edition: Edition
    steps: tuple[FlowStep, ...]
    summary: str = ""
    detect: tuple[DetectRule, ...] = ()
    loop_from: str | None = None
    loop_to: str | None = None
    docs: str = PROJECT_DOCS


QUICK = Flow(
    name="quick",
    edition=Edition.ANY,
    steps=(
        FlowStep(number=IMPLEMENT.number, name=IMPLEMENT.name),
        FlowStep(number=VERIFY.number, name=VERIFY.name, kind=SessionKind.VERIFY),
    ),
)
"""The default flow of a story, known without reading a file."""


class DetectedPosition(Struct, frozen=True, kw_only=True):
    """Where the folders say a story is; `step` is None when the flow is done.

    `allowed` holds the number of every step that the folders do not contradict, `step` first, and
    "done". `ahead` are later steps that look done though `step` is not: the folders contradict
    themselves.
    """

    step: FlowStep | None
    allowed: tuple[str, ...]
    reason: str
    ahead: tuple[FlowStep, ...] = ()


class Correction(Struct, frozen=True, kw_only=True):
    """What the state file must say instead; `step` None means done. `words` are for the log.

    `sure` is False when the folders show nothing, so that the step is only the first one.
    """

    recorded: str
    step: FlowStep | None
    words: str
    sure: bool = True


class Location(Struct, frozen=True, kw_only=True):
    """Where a story continues, the correction that led there, and how sure that is, from 0 to 1."""

    step: FlowStep | None
    confidence: float
    correction: Correction | None = None


class Transition(Struct, frozen=True, kw_only=True):
    """What follows a step: the next one, None at the end; a question only at a session boundary."""

    step: FlowStep | None
    question: Question | None = None


def number_key(number: str) -> tuple[int, str] | None:
    """Return the sort key of a step's number, so that 2 < 2e < 2ea < 2f < 3; None when it is not a number."""
    read = _NUMBER.fullmatch(number)
    return (int(read.group(1)), read.group(2)) if read else None


def step(flow: Flow, number: str) -> FlowStep | None:
    """Find a step by its number."""
    return next((one for one in flow.steps if one.number == number), None)


def next_step(flow: Flow, number: str) -> FlowStep | None:
    """Return the step after a known one; None after the last. The re-entry loop is not followed."""
    following = _index(flow, number) + 1
    return flow.steps[following] if following < len(flow.steps) else None


def _index(flow: Flow, number: str) -> int:
    for index, one in enumerate(flow.steps):
        if one.number == number:
            return index
    raise ValueError(f"the flow {flow.name} has no step {number}")


def re_entry(flow: Flow) -> FlowStep | None:
    """Return the step at which a finished flow begins its next cycle; None when it has no cycles."""
    return step(flow, flow.loop_to) if flow.loop_to is not None else None


def transition(
    flow: Flow, number: str, *, summary: Sequence[str] = (), skipped: Collection[str] = ()
) -> Transition:
    """Return what follows a finished step; `summary` is shown with the question of a boundary.

    `skipped` are numbers of steps that the user skipped: none of them follows.
    """
    index = _index(flow, number)
    done = flow.steps[index]
    following = next((one for one in flow.steps[index + 1 :] if one.number not in skipped), None)
    if following is None or not done.session_boundary:
        return Transition(step=following)
    if done.boundary_question is not None:
        return Transition(step=following, question=choose.with_details(done.boundary_question, summary))
    question = choose.session_boundary(
        finished=done.name,
        upcoming=following.name,
        details=summary,
        shared=flow.edition not in {Edition.POINTER, Edition.RICH},
    )
    return Transition(step=following, question=question)


def in_cycle(text: str, cycle: int) -> str:
    """Put the number of the cycle into an artifact or a prompt."""
    return text.replace(CYCLE, str(cycle))


def docs_folder(template: str, story_id: str) -> str:
    """Return the folder of a story's documents from the setting `docs-folder`."""
    return template.replace(STORY_ID, story_id)


def state_paths(docs: str) -> tuple[str, ...]:
    """Return where a state file may be in a folder of documents."""
    return tuple(f"{docs}/{name}" for name in STATE_NAMES)


def in_place(flow: Flow, docs: str, story_id: str) -> Flow:
    """Return the flow of one story: its artifacts, prompts and questions name the story's own folder."""

    def filled(text: str) -> str:
        return text.replace(DOCS, docs).replace(STORY_ID, story_id)

    def asked(question: Question | None) -> Question | None:
        if question is None:
            return None
        options = tuple(replace(option, text=filled(option.text)) for option in question.options)
        until = tuple(map(filled, question.until))
        return replace(question, title=filled(question.title), options=options, until=until)

    steps = tuple(
        replace(
            one,
            prompt=filled(one.prompt),
            artifacts=tuple(map(filled, one.artifacts)),
            work_items=tuple(map(filled, one.work_items)),
            breaks=filled(one.breaks),
            boundary_question=asked(one.boundary_question),
        )
        for one in flow.steps
    )
    return replace(flow, steps=steps, docs=docs)


def in_docs(rule: DetectRule, docs: str) -> DetectRule:
    """Return a rule that looks into the folder of one story's documents."""

    def filled(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text.replace(DOCS, docs) for text in texts)

    return DetectRule(every=filled(rule.every), some=filled(rule.some), none=filled(rule.none))


def shared_copies(flow: Flow, artifact: str) -> tuple[str, ...]:
    """Return where else an artifact of a baseline step may be: at the project's level, or another story's."""
    inside = artifact.removeprefix(f"{flow.docs}/")
    if inside == artifact:
        return ()
    return tuple(f"{folder}/{inside}" for folder in (PROJECT_DOCS, f"{STORY_DOCS}/*") if folder != flow.docs)


def artifact_parts(artifact: str) -> tuple[str, str]:
    """Split `glob :: line` into the glob and the line that a matching file must contain, often empty."""
    glob, _, line = artifact.partition(LINE_MARK)
    return glob.strip(), line.strip()


def position(
    flow: Flow, present: Callable[[str], bool], *, cycle: int = 1, skipped: Collection[str] = ()
) -> DetectedPosition:
    """Find the first step whose artifacts are missing.

    `present` returns whether anything matches an artifact. Steps without artifacts and optional ones
    count as passed when a later step is done; `skipped` are numbers of steps that the user skipped.
    """
    done, missing = [], {}
    for one in flow.steps:
        wanted = (in_cycle(text, cycle) for text in one.artifacts)
        absent = [name for name in wanted if not is_present(flow, one, name, present)]
        done.append(one.number in skipped or bool(one.artifacts and not absent))
        missing[one.number] = absent
    required = [
        index
        for index, one in enumerate(flow.steps)
        if not done[index] and one.artifacts and not one.optional
    ]
    # A story cannot be past the first required step that is missing, nor before one that is done.
    until = required[0] if required else len(flow.steps)
    start = max((index + 1 for index in range(until) if done[index]), default=0)
    numbers = [*(one.number for one in flow.steps), DONE]
    found = flow.steps[start] if start < len(flow.steps) else None
    return DetectedPosition(
        step=found,
        allowed=tuple(numbers[start : until + 1]),
        reason=_reason(found, missing),
        ahead=tuple(one for one, over in zip(flow.steps[until:], done[until:], strict=True) if over),
    )


def is_present(flow: Flow, one: FlowStep, artifact: str, present: Callable[[str], bool]) -> bool:
    """Return whether an artifact of a step exists; that of a baseline step may be an earlier story's."""
    return present(artifact) or (one.baseline and any(map(present, shared_copies(flow, artifact))))


def _reason(found: FlowStep | None, missing: dict[str, list[str]]) -> str:
    if found is None:
        return "all artifacts of the flow exist"
    if not found.artifacts:
        return f"{found.name} leaves no artifact, and no later step is done"
    return f"{found.name} is not done: {', '.join(missing[found.number])} missing"


def cross_check(
    flow: Flow, recorded_step: str, recorded_status: str, detected: DetectedPosition
) -> Correction | None:
    """Compare a state file with the folders; the folders win. None when they agree."""
    known = recorded_step == DONE or step(flow, recorded_step) is not None
    if known and _consistent(flow, recorded_step, recorded_status) & set(detected.allowed):
        return None
    to = "done" if detected.step is None else f"step {detected.step.number} ({detected.step.name})"
    if known:
        said = f"step {recorded_step} {recorded_status}".replace("step done", "done").strip()
        words = f"the state file said {said}, the folders say {to}: {detected.reason}; corrected to {to}"
        return Correction(recorded=recorded_step, step=detected.step, words=words)
    words = f"the state file names step {shown(recorded_step)}, which the flow {flow.name} does not have"
    sure = any(one.artifacts for one in flow.steps)
    tail = (
        f"the folders say {to}: {detected.reason}; corrected to {to}" if sure else "the folders show nothing"
    )
    return Correction(recorded=recorded_step, step=detected.step, words=f"{words}; {tail}", sure=sure)


def _consistent(flow: Flow, number: str, status: str) -> set[str]:
    """Return the positions that are consistent with a record of a known step."""
    if number == DONE:
        return {DONE}
    following = next_step(flow, number)
    after = DONE if following is None else following.number
    match status:
        case "completed":
            return {after}
        case "skipped" | "failed":
            # A skipped step leaves no artifacts; a failed one may have left all of them.
            return {number, after}
        case _:
            return {number}


def locate(
    flow: Flow, detected: DetectedPosition, *, recorded_step: str | None = None, recorded_status: str = ""
) -> Location:
    """Return where a story continues; without a state file the folders alone decide."""
    if recorded_step is None:
        return Location(step=detected.step, confidence=AMBIGUOUS if detected.ahead else AGREED)
    correction = cross_check(flow, recorded_step, recorded_status, detected)
    if correction is not None:
        sure = UNKNOWN if not correction.sure else AMBIGUOUS if detected.ahead else CORRECTED
        return Location(step=correction.step, confidence=sure, correction=correction)
    if recorded_step == DONE:
        return Location(step=None, confidence=AGREED)
    over = recorded_status in {"completed", "skipped"}
    here = next_step(flow, recorded_step) if over else step(flow, recorded_step)
    return Location(step=here, confidence=AGREED)


class FlowProblem(Struct, frozen=True, kw_only=True):
    """One thing that is wrong in a flow file: where, what, and what to do."""

    where: str
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message
