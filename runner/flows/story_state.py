"""One story's state file, kept in step with what the pipeline knows.

The file is read first, the folders win, and every change is merged with what an agent wrote
meanwhile. What the dialect cannot hold is returned for the journal. Stories of the flow `quick` have no
state file, so a repository that uses no flows gets none.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from runner.core import choose
from runner.core.flow import (
    BASELINE,
    DEFAULT_DOCS,
    DONE,
    PROJECT_DOCS,
    STORY_DOCS,
    Edition,
    Flow,
    artifact_parts,
    in_cycle,
    in_place,
    is_present,
    locate,
    re_entry,
    step,
)
from runner.core.model import FLOW_DONE, Step
from runner.flows.catalog import load_flow
from runner.flows.overview import vocabulary_of
from runner.flows.places import state_file_in
from runner.flows.scan import is_there, scan
from runner.flows.skill_state import compare, read_skill_state
from runner.flows.state.disk.files import LOCK_NAME, load_state, save_state
from runner.flows.state.errors import StateError
from runner.flows.state.model import Dialect, Phase, StateFile, StepRef, StepStatus, Tracker
from runner.flows.state.model import Position as TextSubStep
from runner.flows.state.transitions import (
    NOTHING,
    Overflow,
    Transition,
    begin_step,
    boundary,
    change_flow,
    complete_step,
    correct,
    enter_again,
    fail_attempt,
    finish,
    record_decision,
    retry_by_user,
    skip_by_user,
)
from runner.flows.state.vocabulary import Vocabulary
from runner.flows.state.writing import new_state

FILES = {
    Dialect.AUTODEV: "_autodev_state.md",
    Dialect.POINTER: "_autopilot_state.md",
    Dialect.RICH: "_autopilot_state.md",
}
SKILL_STATE = "02_document/state.json"
"""Where a skill that documents code keeps its own progress, in the folder of the documents."""


class Found(Struct, frozen=True, kw_only=True):
    """The position of the story: `question` if the user must decide first, `notes` for the log."""

    place: Step
    confidence: float
    correction: str = ""
    question: choose.Question | None = None
    notes: tuple[str, ...] = ()


class StoryState:
    """The state file of one story, and its flow in the edition of the file's dialect. Blocking.

    The file is in the folder `docs` of the workspace, its lock in `exchange`.
    """

    def __init__(
        self,
        *,
        story_id: str,
        flow_name: str,
        dialect: str,
        workspace: Path,
        docs: str,
        exchange: Path,
        top: Path,
    ) -> None:
        self._workspace = workspace
        self._story = story_id
        self._dialect = _dialect_there(workspace / docs, vocabulary_of(top)) or Dialect(dialect)
        self.flow: Flow = in_place(load_flow(flow_name, Edition(self._dialect), top), docs, story_id)
        self.path = workspace / docs / FILES[self._dialect]
        self._lock = exchange / LOCK_NAME
        self._vocabulary = _vocabulary(self.flow)

    def find(self, *, skipped: tuple[str, ...], threshold: float, failure: str = "") -> Found:
        """Read the file, compare it with the folders, trust the folders, correct the file.

        `failure` is why the story failed last, for dialects that do not keep it.
        """
        state = self._load()
        if state is not None and state.story not in {None, self._story} and not state.done:
            raise StateError(
                f"{self.path} belongs to story {state.story}, which is at step {state.step} ({state.name})",
                hint=f'finish that story first, or give each its own folder: docs-folder = "{DEFAULT_DOCS}".',
            )
        cycle = self._cycle_of(state)
        detected = scan(self._workspace, self.flow, cycle=cycle, skipped=skipped)
        foreign = state is not None and state.flow not in {None, self.flow.name}
        recorded = state.step if state and not foreign else None
        place = locate(
            self.flow, detected, recorded_step=recorded, recorded_status=state.status if state else ""
        )
        here = _step(place.step.number, place.step.name) if place.step else FLOW_DONE
        notes = tuple(str(problem) for problem in state.problems) if state else ()
        correction = place.correction.words if place.correction else ""
        if state is None:
            self._create(here)
        elif foreign:
            correction = f"the state file was of flow {state.flow}, this story follows {self.flow.name}; "
            correction += f"the folders say {detected.reason}; corrected"
            self._change(lambda now: change_flow(now, self.flow.name, _ref(here), _status_at(here)))
        elif place.correction is not None:
            self._change(lambda now: correct(now, _ref(here), _status_at(here)))
        elif state.done and (entry := re_entry(self.flow)) is not None:
            here = _step(entry.number, entry.name)
            self._change(lambda now: enter_again(now, _ref(here)))
        question = None
        # A correction moves the story to another step, so the failure of the recorded one no longer matters.
        if state is not None and state.needs_decision and not correction:
            question = _failure_question(state, failure)
        elif place.confidence < threshold:
            candidates = [f"{here.number} ({here.name})"] if here is not FLOW_DONE else []
            question = choose.low_confidence(
                confidence=place.confidence,
                threshold=threshold,
                candidates=candidates,
                rationale=[place.correction.words if place.correction else detected.reason],
            )
        return Found(
            place=here,
            confidence=place.confidence,
            correction=correction,
            question=question,
            notes=(*_summary(state), *notes, *self._skill_notes(state)),
        )

    def begin(self, place: Step, *, retries: int) -> Overflow:
        """Mark a step as in progress; a file that says something else is corrected.

        Callers start a failed step again only after the user decided so.
        """

        def begun(state: StateFile) -> Transition:
            if state.step != place.number:
                state = correct(state, _ref(place), StepStatus.NOT_STARTED).state
            if state.needs_decision:
                state = retry_by_user(state).state
            begun = begin_step(state, _ref(place))
            return replace(begun, state=replace(begun.state, retry_count=retries))

        return self._change(begun)

    def failed(self, reason: str, *, attempt: int, attempts: int) -> Overflow:
        """Record a failed attempt; after the last one the user must decide."""
        return self._change(
            lambda state: fail_attempt(state, reason=reason, at=_now(), attempt=attempt, attempts=attempts)
        )

    def completed(self, following: Step, *, at_boundary: bool, outcome: str) -> Overflow:
        """Mark the step as finished, and record which one is next."""

        def over(state: StateFile) -> Transition:
            if following is FLOW_DONE or following.number == DONE:
                done = complete_step(state, at=_now(), outcome=outcome)
                return Transition(state=finish(done.state).state, overflow=done.overflow)
            if at_boundary:
                return boundary(state, _ref(following), at=_now(), outcome=outcome)
            done = complete_step(state, at=_now(), outcome=outcome)
            moved = correct(done.state, _ref(following), StepStatus.NOT_STARTED)
            return Transition(state=moved.state, overflow=done.overflow)

        return self._change(over)

    def skipped(self, following: Step) -> Overflow:
        """Skip the step, because the user decided so."""
        to = None if following.number == DONE else _ref(following)
        return self._change(lambda state: skip_by_user(state, to, at=_now()))

    def retried(self) -> Overflow:
        """Reset the step's retries, because the user decided so."""
        return self._change(retry_by_user)

    def decided(self, text: str) -> Overflow:
        """Record a decision, once."""
        return self._change(lambda state: record_decision(state, text))

    def tracker(self) -> str:
        """Return the work item tracker that the file records; empty if none."""
        state = self._load()
        return state.tracker.value if state and state.tracker else ""

    def set_tracker(self, name: str) -> None:
        """Record which work item tracker the story uses."""
        self._change(lambda state: Transition(state=replace(state, tracker=Tracker(name))))

    def artifact_files(self, number: str) -> tuple[Path, ...]:
        """List the files that prove a step done."""
        found = step(self.flow, number)
        cycle = self.cycle()
        globs = [artifact_parts(in_cycle(text, cycle))[0] for text in found.artifacts] if found else []
        return tuple(path for glob in globs for path in sorted(self._workspace.glob(glob)) if path.is_file())

    def cycle(self) -> int:
        """Return the feature cycle that the file records; flows without cycles are always in the first."""
        return self._cycle_of(self._load())

    def _cycle_of(self, state: StateFile | None) -> int:
        cycles = re_entry(self.flow) is not None and state is not None and state.flow == self.flow.name
        return (state.cycle if state and cycles else None) or 1

    def step_prompt(self, number: str) -> str:
        """Return what a step asks for, with every placeholder filled."""
        found = step(self.flow, number)
        if found is None:
            return ""
        text = in_cycle(found.prompt, self.cycle())
        return text.replace(BASELINE, self._baseline()) if BASELINE in text else text

    def _baseline(self) -> str:
        """Return the folder with the project's documents: the story's own, or that of an earlier story."""
        folders = (*map(str, sorted((self._workspace / STORY_DOCS).glob("*"))), PROJECT_DOCS)
        others = [Path(folder).relative_to(self._workspace).as_posix() for folder in folders[:-1]]
        for docs in (self.flow.docs, *others, PROJECT_DOCS):
            for one in (one for one in self.flow.steps if one.baseline):
                texts = (text.replace(self.flow.docs, docs, 1) for text in one.artifacts)
                if any(is_there(self._workspace, in_cycle(text, 1)) for text in texts):
                    return docs
        return self.flow.docs

    def missing_artifacts(self, number: str) -> tuple[str, ...]:
        """Return the artifacts that should prove a step done but do not exist."""
        found = step(self.flow, number)
        if found is None or found.optional:
            return ()
        cycle = self.cycle()
        wanted = (in_cycle(text, cycle) for text in found.artifacts)

        def present(artifact: str) -> bool:
            return is_there(self._workspace, artifact)

        return tuple(text for text in wanted if not is_present(self.flow, found, text, present))

    def _load(self) -> StateFile | None:
        return load_state(self.path, vocabulary=self._vocabulary)

    def _create(self, here: Step) -> None:
        flow = None if self._dialect is Dialect.RICH else self.flow.name
        state = new_state(
            self._dialect, flow=flow, first=_ref(here), story=self._story, vocabulary=self._vocabulary
        )
        self._save(state, None)

    def _change(self, change: Callable[[StateFile], Transition]) -> Overflow:
        before = self._load()
        if before is None:
            first = self.flow.steps[0]
            self._create(_step(first.number, first.name))
            before = self._load()
        if before is None:  # another process keeps removing the file
            return NOTHING
        changed = change(before)
        after = replace(changed.state, story=self._story)
        if after.cycle not in {None, 1} and re_entry(self.flow) is None:
            after = replace(after, cycle=1)  # an agent wrote it; this flow has no second cycle
        if after != before:
            self._save(after, before)
        return changed.overflow

    def _save(self, state: StateFile, expected: StateFile | None) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        save_state(self.path, state, expected, lock=self._lock, vocabulary=self._vocabulary)

    def _skill_notes(self, state: StateFile | None) -> tuple[str, ...]:
        """Compare a skill's own state file with the recorded sub-step."""
        skill = read_skill_state(self._workspace / self.flow.docs / SKILL_STATE)
        if skill is None or state is None or state.sub_step is None:
            return ()
        match state.sub_step:
            case Phase(phase=phase, name=name):
                text = f"{phase} — {name}"
            case TextSubStep(text=text):
                pass
        compared = compare(skill, text)
        return () if compared.consistent else (compared.words,)


def _dialect_there(folder: Path, vocabulary: Vocabulary) -> Dialect | None:
    """Return the dialect already used in a folder, from the content of the file."""
    path = state_file_in(folder)
    state = load_state(path, vocabulary=vocabulary) if path else None
    return state.dialect if state else None


def _vocabulary(flow: Flow) -> Vocabulary:
    numbers = [int(step.number) for step in flow.steps if step.number.isdigit()]
    names = frozenset(step.name for step in flow.steps)
    return Vocabulary(flows={flow.name: max(numbers, default=1)}, names=names)


def _summary(state: StateFile | None) -> tuple[str, ...]:
    """Return a summary of the state file before anything runs; empty for a new story."""
    if state is None:
        return ()
    words = [f"state file ({state.dialect}): step {state.step} ({state.name}), {state.status}"]
    if state.retry_count:
        words.append(f"retried {state.retry_count} times")
    if state.last_session is not None and state.last_session.reason:
        words.append(f"last session ended by {state.last_session.reason}")
    words += [f"decided: {text}" for text in state.decisions]
    words += [f"blocker: {text}" for text in state.blockers]
    return ("; ".join(words),)


def _failure_question(state: StateFile, failure: str) -> choose.Question:
    reason = state.retry_log[-1].reason if state.retry_log else failure
    return choose.skill_failed(number=state.step, name=state.name, sub_step="", reason=reason)


def _step(number: str, name: str) -> Step:
    return Step(number=number, name=name)


def _ref(step: Step) -> StepRef:
    return StepRef(step=step.number, name=step.name)


def _status_at(step: Step) -> StepStatus:
    return StepStatus.COMPLETED if step.number == DONE else StepStatus.NOT_STARTED


def _now() -> datetime:
    return datetime.now(UTC)
