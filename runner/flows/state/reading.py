"""Parses a state file: its dialect, its values, and every problem.

A value that is not allowed is never replaced by a likely one. A wrong value that decides the story's
position (flow, step, status, retry_count, cycle) makes the file unreadable; any other wrong value becomes
unknown and is reported among the state's problems.
"""

from msgspec import Struct

from isolation.patterns import pattern
from runner.core.text.names import did_you_mean, shown
from runner.core.work_items.tracker import Tracker
from runner.flows.state.dialects import autodev, pointer, rich, sections
from runner.flows.state.errors import UnreadableStateError
from runner.flows.state.model import Dialect, Problem, StateFile, StepStatus, SubStep
from runner.flows.state.text.block import Block, Location, find_location, read_block
from runner.flows.state.text.layout import line_number
from runner.flows.state.vocabulary import MAX_RETRY, RICH_NAMES, STANDARD, Vocabulary

HINT = "fix the file by hand, or remove it so that a new one is created from the folders"

_STATUSES = {status.value: status for status in StepStatus}
_TRACKERS = {tracker.value: tracker for tracker in Tracker}
_RETRIES = {str(number): number for number in range(MAX_RETRY + 1)}
_CYCLE = pattern(r"[1-9][0-9]{0,8}")
_INLINE = pattern(r"\{[ \t]*phase[ \t]*:")
_NO_HISTORY = rich.History()
_CONFLICT = (("<", "\n<<<<<<< "), (">", "\n>>>>>>> "))


class Reading(Struct, frozen=True):
    """A state together with the positions of its values in the text."""

    state: StateFile
    location: Location
    block: Block


def parse_state(text: str, *, vocabulary: Vocabulary = STANDARD) -> StateFile:
    """Read a state, or raise `UnreadableStateError` with every problem."""
    return read(text, vocabulary).state


def decode(data: bytes) -> str:
    """Return the text of a state file's bytes, or raise `UnreadableStateError`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte {error.start} is not valid UTF-8"
        raise _refusal([Problem(line=line, key="", message=message, hint=HINT)]) from error
    if "\0" in text:
        line = line_number(text, text.index("\0"))
        raise _refusal(
            [Problem(line=line, key="", message="the file is damaged: it contains NUL bytes", hint=HINT)]
        )
    return text


def find_problems(data: bytes, *, vocabulary: Vocabulary = STANDARD) -> tuple[Problem, ...]:
    """Return every problem of a file; empty if it is fine."""
    try:
        return parse_state(decode(data), vocabulary=vocabulary).problems
    except UnreadableStateError as error:
        return error.problems


def read(text: str, vocabulary: Vocabulary) -> Reading:
    """Read a state and the positions of its values."""
    for sign, marker in _CONFLICT:
        # A single character is found many times faster, and most files have none.
        if sign in text and marker in text:
            line = line_number(text, text.index(marker)) + 1
            message = "the file contains conflict markers of a merge"
            raise _refusal([Problem(line=line, key="", message=message, hint="resolve the merge first")])
    location = find_location(text)
    block = read_block(text, location)
    reader = _Reader(text, location, block, vocabulary)
    state = reader.state()
    if state is None:
        raise _refusal(reader.problems)
    return Reading(state, location, block)


def dialect_of(location: Location, block: Block) -> Dialect:
    """Return the dialect of a file from its content; keys count more than titles."""
    nested = block.nested
    if "cycle" in block.top or (nested and any(key.name in {"phase", "detail"} for key in nested)):
        return Dialect.AUTODEV
    flow, sub_step = block.top.get("flow"), block.top.get("sub_step")
    if location.autodev_title or (sub_step and sub_step.raw[:1] == "{" and _INLINE.match(sub_step.raw)):
        return Dialect.AUTODEV
    if flow is None:
        return Dialect.RICH
    return Dialect.AUTODEV if flow.raw.startswith("meta-repo") else Dialect.POINTER


class _Reader:
    """Reads the block's values in one pass and collects every problem."""

    def __init__(self, text: str, location: Location, block: Block, vocabulary: Vocabulary) -> None:
        self.text, self.location, self.block, self.vocabulary = text, location, block, vocabulary
        self.problems: list[Problem] = []
        self.dialect = dialect_of(location, block)
        # Python 3.11 looks up an enum's member slowly, so each is compared once.
        self.rich = self.dialect is Dialect.RICH
        self.autodev = self.dialect is Dialect.AUTODEV

    def state(self) -> StateFile | None:
        """Read everything; None when a fatal problem was found."""
        for key in self.block.repeated:
            self._note(key.name, key.raw.strip(), f"{key.name} appears twice", line=key.line)
        flow = None if self.rich else self._flow()
        step, status = self._step(flow), self._status()
        name, retries = self._name(), self._retry_count()
        cycle = self._cycle(flow) if self.autodev else None
        tracker, sub_step = self._tracker(), self._sub_step()
        history, skipped = self._history(), self._skipped()
        if step is None or status is None or (self.problems and any(one.fatal for one in self.problems)):
            return None
        return StateFile(
            dialect=self.dialect,
            flow=flow,
            story=self._story(),
            step=step,
            name=name,
            status=status,
            sub_step=sub_step,
            retry_count=retries,
            cycle=cycle,
            tracker=tracker,
            completed=history.completed,
            decisions=history.decisions,
            last_session=history.last_session,
            retry_log=history.retry_log,
            blockers=history.blockers,
            skipped=skipped,
            problems=tuple(self.problems),
            text=self.text,
        )

    def _history(self) -> rich.History:
        known = rich.SECTIONS if self.rich else sections.LIGHT_SECTIONS
        if self.location.repeated:
            self.problems += sections.section_problems(self.text, self.location, known)
        return rich.read_history(self.text, self.location) if self.rich else _NO_HISTORY

    def _skipped(self) -> tuple[str, ...]:
        if self.rich or sections.SKIPPED not in self.location.sections:
            return ()
        found = sections.bullets_of(self.text, self.location, sections.SKIPPED)
        self.problems += sections.skipped_problems(self.text, self.location, found)
        return found

    def _story(self) -> str | None:
        scalar = self.block.scalar("story")
        return scalar.value if scalar is not None and scalar.value and not scalar.placeholder else None

    def _flow(self) -> str | None:
        value = self._value("flow")
        if value is None:
            return None
        if self.vocabulary.last_step(self.dialect, value) is None:
            names = self.vocabulary.flow_names(self.dialect)
            hint = did_you_mean(value, names)
            self._refuse("flow", value, ", ".join(names), hint)
            return None
        return value

    def _step(self, flow: str | None) -> str | None:
        value = self._value("step")
        if value is None or (flow is None and not self.rich):
            return value
        if not self.vocabulary.allows_step(self.dialect, flow, value):
            self._refuse("step", value, self.vocabulary.steps_in_words(self.dialect, flow))
        return value

    def _status(self) -> StepStatus | None:
        value = self._value("status")
        if value is not None and value not in _STATUSES:
            self._refuse("status", value, ", ".join(_STATUSES), did_you_mean(value, _STATUSES))
        return _STATUSES.get(value or "")

    def _name(self) -> str:
        scalar = self.block.scalar("name")
        if scalar is None or not scalar.value or scalar.placeholder:
            self._note("name", "", "the step's name is missing", fatal=False)
            return ""
        if self.rich and not self.vocabulary.allows_name(scalar.value):
            allowed = RICH_NAMES | self.vocabulary.names
            message = f"name {shown(scalar.value)} is not a step name of the dialect"
            self._note("name", scalar.value, message, allowed=", ".join(sorted(allowed)), fatal=False)
        return scalar.value

    def _retry_count(self) -> int:
        if "retry_count" not in self.block.top:
            self._note(
                "retry_count", "", "retry_count is missing, so 0 is assumed", allowed="0 to 3", fatal=False
            )
            return 0
        value = self._value("retry_count") or ""
        if value not in _RETRIES:
            self._refuse("retry_count", value, f"0 to {MAX_RETRY}")
        return _RETRIES.get(value, 0)

    def _cycle(self, flow: str | None) -> int | None:
        if "cycle" not in self.block.top:
            self._note("cycle", "", "cycle is missing, so 1 is assumed", allowed="1 or more", fatal=False)
            return 1
        value = self._value("cycle") or ""
        if not _CYCLE.fullmatch(value):
            self._refuse("cycle", value, "1 or more")
            return None
        cycle = int(value)
        if cycle > 1 and flow in {"greenfield", "meta-repo"}:
            self._note("cycle", value, f"cycle is always 1 in {flow}", allowed="1", fatal=False)
        return cycle

    def _tracker(self) -> Tracker | None:
        scalar = self.block.scalar("tracker")
        if scalar is None or not scalar.value:
            return None
        if scalar.value not in _TRACKERS:
            message = f"tracker {shown(scalar.value)} is not known"
            self._note("tracker", scalar.value, message, allowed=", ".join(_TRACKERS), fatal=False)
        return _TRACKERS.get(scalar.value)

    def _sub_step(self) -> SubStep:
        found: tuple[SubStep, Problem | None]
        if self.autodev:
            found = autodev.read_sub_step(self.text, self.block)
        else:
            found = pointer.read_sub_step(self.text, self.block)
        if found[1] is not None:
            self.problems.append(found[1])
        return found[0]

    def _value(self, name: str) -> str | None:
        """Return the value of a required key; record a problem if it is missing."""
        scalar = self.block.scalar(name)
        if scalar is None:
            near = [key.name for key in self.block.unknown if key.name.lower() == name]
            hint = f"keys are lower case: '{near[0]}' is not read" if near else HINT
            self._note(name, "", f"{name} is missing", hint=hint)
            return None
        if scalar.placeholder:
            self._note(name, scalar.value, f"{name} still holds the template's placeholder", hint=HINT)
            return None
        return scalar.value

    def _refuse(self, name: str, value: str, allowed: str, hint: str = "") -> None:
        self._note(name, value, f"{name} {shown(value)} is not allowed", allowed=allowed, hint=hint or HINT)

    def _note(
        self,
        name: str,
        value: str,
        message: str,
        *,
        allowed: str = "",
        hint: str = "",
        fatal: bool = True,
        line: int = -1,
    ) -> None:
        key = self.block.top.get(name)
        offset = line if line >= 0 else key.line if key else self.block.start
        number = line_number(self.text, offset)
        self.problems.append(
            Problem(
                line=number, key=name, value=value, message=message, allowed=allowed, hint=hint, fatal=fatal
            )
        )


def _refusal(problems: list[Problem]) -> UnreadableStateError:
    worst = next(problem for problem in problems if problem.fatal)
    return UnreadableStateError(str(worst), problems=problems, hint=worst.hint)
