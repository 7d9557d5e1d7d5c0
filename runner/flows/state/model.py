"""A story's position as its state file records it: values only, the same for all three dialects.

A `StateFile` is what was read plus the text it was read from; rendering changed values returns that text
with only those values changed. Two states are equal when their values are, whatever their texts look like.
Cells of rows are single lines without surrounding blanks.
"""

import re
from enum import StrEnum

from msgspec import Struct

from isolation.patterns import pattern
from runner.core.work_items.tracker import Tracker

RESERVED_NAME = "awaiting-invocation"
DONE = "done"

_NUMBERED = pattern(r"([0-9]+[a-z]{0,2}(?:\.[0-9]+)?)(?:[ \t]*(?:[—\u2013:-]|\.[ \t])[ \t]*(.*))?", re.DOTALL)
_SKIPPED = pattern(r"([0-9]{1,3}[a-z]{0,3})(?![A-Za-z0-9])")
_BULLET = pattern(r"([0-9]{1,3}[a-z]{0,3}) — (.*?)(?: \(([0-9-]{10})\))?")


class Dialect(StrEnum):
    """The generations of the file."""

    RICH = "rich"
    POINTER = "pointer"
    AUTODEV = "autodev"


class StepStatus(StrEnum):
    """How far the current step is."""

    NOT_STARTED = "not_started"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"


# `gc=False`: text and numbers form no cycles, so the garbage collector need not track these values.
class Phase(Struct, frozen=True, kw_only=True, gc=False):
    """Where an autodev sub-skill is: an integer that rises by one with each save, and a token."""

    phase: int
    name: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.phase} — {self.name}" + (f" ({self.detail})" if self.detail else "")


AWAITING = Phase(phase=0, name=RESERVED_NAME)
"""The sub-skill was chained and has not started."""


class Position(Struct, frozen=True, kw_only=True, gc=False):
    """Where a sub-skill of the older dialects is: its own number and name, as one text."""

    text: str = "0"

    @property
    def number(self) -> str:
        """The sub-skill's own number, such as `4` or `1b`; empty when the text has none."""
        found = _NUMBERED.fullmatch(self.text)
        return found[1] if found else ""

    @property
    def name(self) -> str:
        """What follows the number."""
        found = _NUMBERED.fullmatch(self.text)
        return (found[2] or "") if found else self.text

    @property
    def idle(self) -> bool:
        """Whether the step is at its beginning."""
        return self.text in {"", "0"}

    def __str__(self) -> str:
        return self.text


IDLE = Position()

SubStep = Phase | Position | None
"""None: nothing trustworthy is known, and the folders decide the position."""


class StepRef(Struct, frozen=True, kw_only=True):
    """A step to go to: its number as the dialect writes it, and its name."""

    step: str
    name: str


class CompletedRow(Struct, frozen=True, kw_only=True, gc=False):
    """One row of Completed Steps."""

    step: str
    name: str
    completed: str
    outcome: str


SKIPPED_OUTCOME = "skipped"
"""How the outcome of a step begins that was not completed but skipped."""


def is_skipped(row: CompletedRow) -> bool:
    """Return whether a row of Completed Steps is that of a skipped step."""
    return row.outcome.lower().startswith(SKIPPED_OUTCOME)


def skipped_number(bullet: str) -> str:
    """Return the number of the step that a bullet of Skipped Steps names; empty if it names none."""
    found = _SKIPPED.match(bullet)
    return found[1] if found else ""


def skipped_row(bullet: str) -> CompletedRow:
    """Return a bullet of Skipped Steps as the row that the rich dialect has for it."""
    found = _BULLET.fullmatch(bullet)
    number, name, date = found.groups() if found else (skipped_number(bullet), bullet, None)
    outcome = f"{SKIPPED_OUTCOME} by the user"
    return CompletedRow(step=number, name=name, completed=date or "", outcome=outcome)


class RetryRow(Struct, frozen=True, kw_only=True, gc=False):
    """One row of the Retry Log."""

    attempt: str
    step: str
    name: str
    sub_step: str
    reason: str
    timestamp: str


class LastSession(Struct, frozen=True, kw_only=True, gc=False):
    """How the last session ended."""

    date: str = ""
    ended_at: str = ""
    reason: str = ""
    notes: str = ""


class Problem(Struct, frozen=True, kw_only=True):
    """A problem in a file: where, what, which values are allowed, and what to do.

    A fatal problem means that the file has no state; any other makes one value unknown.
    """

    line: int
    key: str
    message: str
    value: str = ""
    allowed: str = ""
    hint: str = ""
    fatal: bool = True

    def __str__(self) -> str:
        parts = [f"line {self.line}: {self.message}"]
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        if self.hint:
            parts.append(self.hint)
        return "; ".join(parts)


class StateFile(Struct, frozen=True, kw_only=True, eq=False):
    """One state file. `flow` is None in rich, `cycle` everywhere but in autodev.

    `story` is the id of the story that the file belongs to; None in files that do not say so. `skipped` are
    the bullets of Skipped Steps, a section of pointer and autodev; rich has rows of Completed Steps for them.
    """

    dialect: Dialect
    step: str
    name: str
    status: StepStatus
    flow: str | None = None
    story: str | None = None
    sub_step: SubStep = None
    retry_count: int = 0
    cycle: int | None = None
    tracker: Tracker | None = None
    completed: tuple[CompletedRow, ...] = ()
    decisions: tuple[str, ...] = ()
    last_session: LastSession | None = None
    retry_log: tuple[RetryRow, ...] = ()
    blockers: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    text: str = ""

    # Files with the same values are equal, however they were written.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateFile) and self._said() == other._said()

    def __ne__(self, other: object) -> bool:
        return not self == other  # Struct defines its own, which would win otherwise

    def __hash__(self) -> int:
        return hash(self._said())

    def _said(self) -> tuple[object, ...]:
        written = {"problems", "text"}
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in written)

    @property
    def done(self) -> bool:
        """Whether the story has finished its whole flow."""
        return self.step == DONE

    @property
    def skipped_steps(self) -> tuple[str, ...]:
        """The numbers of the steps that the user skipped, in every dialect; each once."""
        rows = [row.step for row in self.completed if is_skipped(row)]
        noted = [number for text in self.skipped if (number := skipped_number(text))]
        here = [self.step] if self.status is StepStatus.SKIPPED else []
        return tuple(dict.fromkeys((*rows, *noted, *here)))

    @property
    def needs_decision(self) -> bool:
        """Whether the step is out of retries: nothing may run before the user decides."""
        return self.status is StepStatus.FAILED
