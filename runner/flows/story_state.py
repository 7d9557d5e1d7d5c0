"""One story's state file, kept in step with what the pipeline knows.

The file is read first, the folders win, and every change is merged with what an agent wrote
meanwhile. What the dialect cannot hold is returned for the journal. Stories of the flow `quick` have no
state file, so a repository that uses no flows gets none.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from runner.core import choose
from runner.core.flow import (
    AGREED,
    BASELINE,
    DEFAULT_DOCS,
    DONE,
    PROJECT_DOCS,
    STORY_DOCS,
    DetectedPosition,
    Edition,
    Flow,
    Location,
    artifact_parts,
    in_cycle,
    in_place,
    is_present,
    locate,
    re_entry,
    step,
)
from runner.core.model import FLOW_DONE, SessionKind, Step
from runner.core.work_items.tracker import Tracker
from runner.flows.boundary_summary import Produced, read_produced, ready_notes
from runner.flows.catalog import load_flow
from runner.flows.overview import vocabulary_of
from runner.flows.places import state_file_in
from runner.flows.re_entry import Found, Journaled, banner, candidates
from runner.flows.scan import is_there, scan
from runner.flows.skill_state import SkillState, compare, kebab, read_skill_state
from runner.flows.state.disk.files import LOCK_NAME, load_state, require_inside, save_state
from runner.flows.state.errors import StateError, UnreadableStateError
from runner.flows.state.model import Dialect, Phase, StateFile, StepRef, StepStatus
from runner.flows.state.model import Position as TextSubStep
from runner.flows.state.transitions import (
    NOTHING,
    Overflow,
    Transition,
    add_blocker,
    begin_step,
    boundary,
    change_flow,
    complete_step,
    correct,
    end_session,
    enter_again,
    fail_attempt,
    finish,
    mark_skipped,
    record_decision,
    restart_step,
    retry_by_user,
    skip_by_user,
    sub_step_words,
)
from runner.flows.state.vocabulary import Vocabulary
from runner.flows.state.writing import new_state

FILES = {
    Dialect.AUTODEV: "_autodev_state.md",
    Dialect.POINTER: "_autopilot_state.md",
    Dialect.RICH: "_autopilot_state.md",
}
SKILL_FOLDER = "/02_document/"
SKILL_STATE = "02_document/state.json"
"""Where a skill that documents code keeps its own progress, in the folder of the documents."""


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
        first = self.flow.steps[0]
        self._here = _step(first.number, first.name)
        self._cycle = 1
        self.damages: tuple[str, ...] = ()
        """What was found damaged since the story was opened, for the log."""
        self.oddities: tuple[str, ...] = ()
        """What else in the file cannot be trusted, such as a sub-step that breaks a rule, for the log."""
        self._known: set[str] = set()
        self.skipped_steps: tuple[str, ...] = ()
        """The numbers of the steps that the user skipped, once the position is found."""

    def find(self, journal: Journaled, *, threshold: float) -> Found:
        """Read the file, compare it with the folders and the journal, and correct it."""
        state, notes = self._read_first()
        recorded = state if state is not None and state.flow in {None, self.flow.name} else None
        self._cycle = cycle = journal.cycle or self._cycle_of(state)
        # The file is the same in every clone; only without one do the journals of earlier runs count.
        skipped = (*journal.skipped, *(state.skipped_steps if state else journal.skipped_earlier))
        self.skipped_steps = tuple(dict.fromkeys(skipped))
        journal = replace(journal, skipped=self.skipped_steps)
        detected = scan(self._workspace, self.flow, cycle=cycle, skipped=journal.skipped)
        place = self._locate(journal, recorded, detected)
        here = _step(place.step.number, place.step.name) if place.step else FLOW_DONE
        correction = place.correction.words if place.correction else ""
        if state is not None and recorded is None:
            correction = f"the state file was of flow {state.flow}, this story follows {self.flow.name}: "
            correction += f"{detected.reason}; corrected to {_words(here)}"
        again = re_entry(self.flow) if recorded is not None and recorded.done and not correction else None
        if again is not None:
            here, self._cycle = _step(again.number, again.name), cycle + 1
        self._record_place(state, here, corrected=bool(correction), again=again is not None)
        self._here = here
        followed = self._follow_skill(here)
        shown = self._load() or state
        self._known.update(notes)
        self.skipped_steps = shown.skipped_steps if shown else ()
        return Found(
            place=here,
            confidence=place.confidence,
            correction=correction,
            question=self._question(journal, state, here, correction)
            or self._doubt(place, detected, recorded, threshold),
            notes=(*notes, *followed),
            banner=banner(self._story, self.flow, shown, here, journal) if state and shown else (),
            cycle=self._cycle,
            retries=self._retries(state, here) if not correction else 0,
        )

    def _retries(self, state: StateFile | None, here: Step) -> int:
        """Return the retries that count for the step; a failed one starts over once the user agrees."""
        if state is None or state.step != here.number or state.needs_decision:
            return 0
        return state.retry_count

    def _locate(self, journal: Journaled, recorded: StateFile | None, detected: DetectedPosition) -> Location:
        at = journal.place
        if journal.worked and at and (recorded is None or recorded.step == at.number):
            # A session of this run has begun the step: its artifacts may be half done.
            return Location(step=step(self.flow, at.number), confidence=AGREED)
        return locate(
            self.flow,
            detected,
            recorded_step=recorded.step if recorded else None,
            recorded_status=recorded.status if recorded else "",
        )

    def _record_place(self, state: StateFile | None, here: Step, *, corrected: bool, again: bool) -> None:
        """Bring the file to the position that was found."""
        if state is None:
            self._create(here)
        elif again:
            self._change(lambda now: enter_again(now, _ref(here)))
        elif corrected and state.flow not in {None, self.flow.name}:
            self._change(lambda now: change_flow(now, self.flow.name, _ref(here), _status_at(here)))
        elif corrected:
            self._change(lambda now: correct(now, _ref(here), _status_at(here)))

    def _question(
        self, journal: Journaled, state: StateFile | None, here: Step, correction: str
    ) -> choose.Question | None:
        """Return what the user must decide about the step before it begins."""
        # A correction moves the story to another step, so the failure of the recorded one no longer matters.
        if state is not None and state.needs_decision and not correction:
            reason = state.retry_log[-1].reason if state.retry_log else journal.failure
            return choose.skill_failed(
                number=state.step, name=state.name, sub_step=sub_step_words(state.sub_step), reason=reason
            )
        begun = state is not None and state.step == here.number and state.status is not StepStatus.NOT_STARTED
        if journal.worked or begun or here is FLOW_DONE:
            return None
        files = [path.relative_to(self._workspace).as_posix() for path in self.artifact_files(here.number)]
        return choose.overwrite(number=here.number, name=here.name, files=files) if files else None

    def _doubt(
        self, place: Location, detected: DetectedPosition, recorded: StateFile | None, threshold: float
    ) -> choose.Question | None:
        """Return the question where to continue, if that is not clear enough."""
        if place.confidence >= threshold:
            return None
        return choose.low_confidence(
            confidence=place.confidence,
            threshold=threshold,
            candidates=candidates(self.flow, detected, recorded.step if recorded else None),
            rationale=[place.correction.words if place.correction else detected.reason],
        )

    def _read_first(self) -> tuple[StateFile | None, tuple[str, ...]]:
        """Read the file, and what is odd about it; one that cannot be read counts as absent."""
        try:
            state = self._read()
        except UnreadableStateError as error:
            return None, (*self._put_aside(error), "the folders decide where the story is")
        if state is not None and state.story not in {None, self._story} and not state.done:
            raise StateError(
                f"{self.path} belongs to story {state.story}, which is at step {state.step} ({state.name})",
                hint=f'finish that story first, or give each its own folder: docs-folder = "{DEFAULT_DOCS}".',
            )
        return state, tuple(str(problem) for problem in state.problems) if state else ()

    def _put_aside(self, error: UnreadableStateError) -> tuple[str, ...]:
        """Say what becomes of a file that cannot be read: its bytes are beside it, and it is replaced."""
        return (f"{error.message}; {error.hint.partition(';')[0]}",)

    def _follow_skill(self, here: Step) -> tuple[str, ...]:
        """Let the recorded sub-step follow the state file that the step's skill keeps for itself."""
        skill = read_skill_state(self._workspace / self.flow.docs / SKILL_STATE)
        state = self._load()
        one = step(self.flow, here.number)
        keeps = one is not None and any(SKILL_FOLDER in artifact for artifact in one.artifacts)
        if skill is None or state is None or not keeps or state.step != here.number:
            return ()
        compared = compare(skill, sub_step_words(state.sub_step))
        if compared.consistent:
            return ()
        wanted = None if skill.problem else _sub_step_of(skill, self._dialect)
        if wanted is None:
            return (compared.words,)
        self._change(lambda now: Transition(state=replace(now, sub_step=wanted)))
        return (compared.words,)

    def sub_step(self) -> str:
        """Return the recorded sub-step; empty if nothing was begun."""
        state = self._load()
        return sub_step_words(state.sub_step) if state else ""

    def go_to(self, place: Step) -> Overflow:
        """Continue at a step that the user chose."""
        return self._change(lambda state: correct(state, _ref(place), StepStatus.NOT_STARTED))

    def restart(self) -> Overflow:
        """Let the step begin at its first sub-step: what was saved of it cannot be trusted."""
        return self._change(restart_step)

    def blocked(self, text: str) -> Overflow:
        """Record a blocker, once."""
        return self._change(lambda state: add_blocker(state, text))

    def ended(self, reason: str, notes: str = "") -> Overflow:
        """Record how the last session ended."""
        return self._change(lambda state: end_session(state, at=_now(), reason=reason, notes=notes))

    def begin(self, place: Step, *, retries: int) -> Overflow:
        """Mark a step as in progress; a file that says something else is corrected.

        Callers start a failed step again only after the user decided so.
        """
        self._here = place

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
        self._here = following

        def over(state: StateFile) -> Transition:
            if following is FLOW_DONE or following.number == DONE:
                done = complete_step(state, at=_now(), outcome=outcome)
                return Transition(state=finish(done.state).state, overflow=done.overflow)
            if at_boundary:
                notes = ready_notes(state.name, following.name, self.produced(state.step))
                return boundary(state, _ref(following), at=_now(), outcome=outcome, notes=notes)
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

    def recorded(self) -> StateFile | None:
        """Return what the file says; None if it does not exist."""
        return self._load()

    def tracker(self) -> str:
        """Return the work item tracker that the file records; empty if none."""
        state = self._load()
        return state.tracker.value if state and state.tracker else ""

    def set_tracker(self, name: str) -> None:
        """Record which work item tracker the story uses."""
        self._change(lambda state: Transition(state=replace(state, tracker=Tracker(name))))

    def artifact_files(self, number: str, cycle: int | None = None) -> tuple[Path, ...]:
        """List the files that prove a step done; a caller that knows the cycle spares reading the file."""
        found = step(self.flow, number)
        cycle = cycle or self.cycle()
        globs = [artifact_parts(in_cycle(text, cycle))[0] for text in found.artifacts] if found else []
        return tuple(path for glob in globs for path in sorted(self._workspace.glob(glob)) if path.is_file())

    def summary(self, number: str) -> tuple[str, ...]:
        """Return what a boundary after a step shows; its position counts, not what one run has done."""
        state = self._load()
        skipped = state.skipped_steps if state else self.skipped_steps
        numbers = [one.number for one in self.flow.steps if one.kind is SessionKind.WORK]
        passed = [one for one in numbers[: numbers.index(number) + 1] if one not in skipped]
        return (*self.produced(number).lines, f"Steps finished: {len(passed)} of {len(numbers)}")

    def produced(self, number: str) -> Produced:
        """Return what a finished step has left, for the question at its boundary; nothing without one."""
        found, cycle = step(self.flow, number), self.cycle()
        if found is None or not found.session_boundary:
            return Produced()
        return read_produced(self._workspace, [in_cycle(text, cycle) for text in found.artifacts])

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
        own = self.flow.docs
        others = (
            f"{STORY_DOCS}/{folder.name}" for folder in sorted((self._workspace / STORY_DOCS).glob("*"))
        )
        artifacts = [text for one in self.flow.steps if one.baseline for text in one.artifacts]
        for docs in (own, *others, PROJECT_DOCS):
            if any(is_there(self._workspace, text.replace(own, docs, 1)) for text in artifacts):
                return docs
        return own

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
        """Read the file; one that an agent has destroyed is put aside, and counts as absent."""
        try:
            return self._read()
        except UnreadableStateError as error:
            said = self._put_aside(error)
            self.damages += said if said[0] not in self.damages else ()
            return None

    def _read(self) -> StateFile | None:
        return load_state(self.path, vocabulary=self._vocabulary)

    def _create(self, here: Step) -> None:
        flow = None if self._dialect is Dialect.RICH else self.flow.name
        state = new_state(
            self._dialect,
            flow=flow,
            first=_ref(here),
            story=self._story,
            reference=[(one.number, one.name, ", ".join(one.artifacts)) for one in self.flow.steps],
            vocabulary=self._vocabulary,
        )
        if self._cycle > 1 and state.cycle is not None:
            state = replace(state, cycle=self._cycle)
        for one in filter(None, (step(self.flow, number) for number in self.skipped_steps)):
            state = mark_skipped(state, StepRef(step=one.number, name=one.name), at=_now()).state
        self._save(state, None)

    def _change(self, change: Callable[[StateFile], Transition]) -> Overflow:
        before = self._load()
        if before is None:
            self._create(self._here)
            before = self._load()
        if before is None:  # another process keeps removing the file
            return NOTHING
        odd = [text for text in map(str, before.problems) if text not in self._known]
        self._known.update(odd)
        self.oddities += tuple(odd)
        changed = change(before)
        after = replace(changed.state, story=self._story)
        cycle = after.cycle if changed.state.cycle != before.cycle else self._cycle
        if after.cycle is not None and cycle is not None and after.cycle != cycle:
            after = replace(after, cycle=cycle)  # an agent wrote it, but the cycle is the runner's
        if after != before:
            self._save(after, before)
        return changed.overflow

    def _save(self, state: StateFile, expected: StateFile | None) -> None:
        require_inside(self.path, self._lock).parent.mkdir(parents=True, exist_ok=True)
        save_state(
            self.path,
            state,
            expected,
            lock=self._lock,
            vocabulary=self._vocabulary,
            replace_unreadable=True,  # its bytes are kept beside it
        )


def _dialect_there(folder: Path, vocabulary: Vocabulary) -> Dialect | None:
    """Return the dialect already used in a folder, from the content of the file."""
    path = state_file_in(folder)
    if path is None:
        return None
    try:
        state = load_state(path, vocabulary=vocabulary, copies=False)
    except UnreadableStateError:
        # Its name still tells one dialect from the two others.
        return Dialect.AUTODEV if path.name == FILES[Dialect.AUTODEV] else None
    return state.dialect if state else None


def _vocabulary(flow: Flow) -> Vocabulary:
    numbers = [int(step.number) for step in flow.steps if step.number.isdigit()]
    names = frozenset(step.name for step in flow.steps)
    return Vocabulary(flows={flow.name: max(numbers, default=1)}, names=names)


def _sub_step_of(skill: SkillState, dialect: Dialect) -> Phase | TextSubStep | None:
    """Return a skill's own position as the dialect writes it; None if it cannot hold it."""
    if dialect is not Dialect.AUTODEV:
        return TextSubStep(text=" — ".join(part for part in (skill.number, skill.name) if part))
    if not skill.number.isdigit() or not (name := kebab(skill.name)):
        return None
    return Phase(phase=int(skill.number), name=name)


def _step(number: str, name: str) -> Step:
    return Step(number=number, name=name)


def _words(place: Step) -> str:
    return "done" if place.number == DONE else f"step {place.number} ({place.name})"


def _ref(step: Step) -> StepRef:
    return StepRef(step=step.number, name=step.name)


def _status_at(step: Step) -> StepStatus:
    return StepStatus.COMPLETED if step.number == DONE else StepStatus.NOT_STARTED


def _now() -> datetime:
    return datetime.now(UTC)
