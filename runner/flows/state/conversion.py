"""Converts a state into another dialect: the same story at the same step, and nothing lost.

What the target cannot hold is listed, and the whole source is kept verbatim in an `## Imported` section. A
step is found by its name; if that is ambiguous, the conversion is refused and the user names the step.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from runner.flows.state.dialects.rich import without_reference
from runner.flows.state.errors import StateError
from runner.flows.state.merging import keep_whole
from runner.flows.state.model import (
    AWAITING,
    DONE,
    IDLE,
    CompletedRow,
    Dialect,
    Phase,
    Position,
    StateFile,
    StepRef,
    SubStep,
    is_skipped,
    skipped_row,
)
from runner.flows.state.reading import parse_state
from runner.flows.state.text.block import find_location
from runner.flows.state.vocabulary import NAMED_STEPS, STANDARD, Vocabulary
from runner.flows.state.writing import TEMPLATES, new_state, render

IMPORTED = "Imported"


class Conversion(Struct, frozen=True, kw_only=True):
    """The converted state, and what it could not hold."""

    state: StateFile
    unheld: tuple[str, ...]


def convert_state(
    state: StateFile,
    to: Dialect,
    *,
    flow: str | None = None,
    step: str | None = None,
    steps: Mapping[str, str] | None = None,
    vocabulary: Vocabulary = STANDARD,
) -> Conversion:
    """Convert a state into another dialect.

    `flow` is needed to convert a rich file. `step` names the target step explicitly; `steps` maps names to
    the target's step numbers, in addition to those that the dialects fix.
    """
    if state.dialect is to:
        return Conversion(state=state, unheld=())
    target_flow = _flow(state, to, flow, vocabulary)
    number = step or _step(state, to, target_flow or flow or state.flow or "", steps or {})
    blank = new_state(
        to, flow=target_flow, first=StepRef(step=number, name=_name(state.name, to)), vocabulary=vocabulary
    )
    sub_step, kept = _sub_step(state.sub_step, to)
    known = {**NAMED_STEPS.get((to, target_flow or flow or state.flow or ""), {}), **(steps or {})}
    skipped = _skipped(state, to, known)
    wanted = replace(
        blank,
        story=state.story,
        status=state.status,
        retry_count=state.retry_count,
        tracker=state.tracker,
        sub_step=sub_step,
        skipped=() if to is Dialect.RICH else tuple(map(_bullet, skipped)),
        completed=tuple(skipped) if to is Dialect.RICH else (),
        cycle=None if blank.cycle is None else state.cycle or 1,
    )
    lost = len(skipped) < len(state.skipped) + sum(map(is_skipped, state.completed))
    unheld = (
        *_unheld(state, to, vocabulary),
        *(() if kept else ("sub_step",)),
        *(("skipped steps",) if lost else ()),
    )
    text = render(wanted, vocabulary=vocabulary)
    if unheld:
        text = keep_whole(text, IMPORTED, state.text)
    return Conversion(state=parse_state(text, vocabulary=vocabulary), unheld=unheld)


def _flow(state: StateFile, to: Dialect, flow: str | None, vocabulary: Vocabulary) -> str | None:
    if to is Dialect.RICH:
        return None
    wanted = flow or state.flow
    if wanted is None:
        allowed = ", ".join(vocabulary.flow_names(to))
        raise StateError("a rich file does not name its flow", hint=f"name it with --flow: {allowed}")
    if vocabulary.last_step(to, wanted) is None:
        allowed = ", ".join(vocabulary.flow_names(to))
        raise StateError(
            f"flow '{wanted}' is not allowed in {to}", hint=f"name another with --flow: {allowed}"
        )
    return wanted


def _step(state: StateFile, to: Dialect, flow: str, steps: Mapping[str, str]) -> str:
    if state.step == DONE:
        return DONE
    known = {**NAMED_STEPS.get((to, flow), {}), **steps}
    number = known.get(_name(state.name, to))
    if number is None:
        raise StateError(f"it is ambiguous which step of {to} '{state.name}' is", hint="name it with --step")
    return number


def _name(name: str, to: Dialect) -> str:
    """Return a step's name in the target dialect: one step was renamed between them."""
    if to is Dialect.RICH:
        return "Blackbox Test Spec" if name == "Test Spec" else name
    return "Test Spec" if name == "Blackbox Test Spec" else name


def _sub_step(sub_step: SubStep, to: Dialect) -> tuple[SubStep, bool]:
    """Return the sub-step in the target's form, and whether nothing was lost."""
    if to is not Dialect.AUTODEV:
        if isinstance(sub_step, Phase):
            return (IDLE if sub_step == AWAITING else Position(text=str(sub_step))), True
        return sub_step or IDLE, True
    idle = sub_step is None or (isinstance(sub_step, Position) and sub_step.idle)
    return (sub_step, True) if isinstance(sub_step, Phase) else (AWAITING, idle)


def _skipped(state: StateFile, to: Dialect, known: Mapping[str, str]) -> list[CompletedRow]:
    """Return the skipped steps with their numbers in the target, found by their names."""
    rows = [row for row in state.completed if is_skipped(row)]
    rows += [skipped_row(text) for text in state.skipped]
    named = [(row, _name(row.name, to)) for row in rows]
    return [replace(row, step=known[name], name=name) for row, name in named if name in known]


def _bullet(row: CompletedRow) -> str:
    return f"{row.step} — {row.name}" + (f" ({row.completed})" if row.completed else "")


def _unheld(state: StateFile, to: Dialect, vocabulary: Vocabulary) -> tuple[str, ...]:
    lists = {
        "completed steps": state.completed,
        "key decisions": state.decisions,
        "last session": state.last_session,
        "retry log": state.retry_log,
        "blockers": state.blockers,
    }
    missing = [name for name, value in lists.items() if value]
    if to is Dialect.RICH:
        missing.append("flow")
    if to is not Dialect.AUTODEV and state.cycle not in {None, 1}:
        missing.append("cycle")
    if _is_more_than_values(state, vocabulary):
        missing.append("text of its own")
    return tuple(missing)


def _is_more_than_values(state: StateFile, vocabulary: Vocabulary) -> bool:
    """Return whether the file holds more text than a new file with the same values."""
    if state.sub_step is None:
        return True
    text = state.text
    if state.dialect is Dialect.RICH:
        text = without_reference(text, find_location(text))
    return render(replace(state, text=TEMPLATES[state.dialect]), vocabulary=vocabulary) != text
