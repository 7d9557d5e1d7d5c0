"""Renders a state: changes only the values that differ, in the text that the state was read from.

The written text reads back as exactly the intended state, or it is not written. Rendering twice changes
nothing.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from runner.flows.state.dialects import autodev, pointer, rich, sections
from runner.flows.state.errors import StateError, UnreadableStateError
from runner.flows.state.model import Dialect, Phase, Position, StateFile, StepRef
from runner.flows.state.reading import parse_state, read
from runner.flows.state.text.block import Block, add_key, find_location, read_block, set_value
from runner.flows.state.text.codec import decode_text, encode_scalar
from runner.flows.state.text.edits import Edit, apply, insert_after, remove_line
from runner.flows.state.vocabulary import MAX_RETRY, STANDARD, Vocabulary, first_step

TEMPLATES = {
    Dialect.RICH: rich.TEMPLATE,
    Dialect.POINTER: pointer.TEMPLATE,
    Dialect.AUTODEV: autodev.TEMPLATE,
}


def new_state(
    dialect: Dialect,
    *,
    flow: str | None = None,
    first: StepRef | None = None,
    story: str | None = None,
    reference: Sequence[tuple[str, str, str]] = (),
    vocabulary: Vocabulary = STANDARD,
) -> StateFile:
    """Create the state of a new story: at step 0 (rich) or 1, not started.

    `reference` are the steps of its flow, of which a rich file holds a table: number, name, artifacts.
    """
    text = TEMPLATES[dialect]
    blank = parse_state(rich.with_reference(text, reference) if dialect is Dialect.RICH else text)
    start = first or StepRef(step=first_step(dialect), name=blank.name)
    named = None if dialect is Dialect.RICH else flow or blank.flow
    wanted = replace(blank, story=story, flow=named, step=start.step, name=start.name)
    return replace(wanted, text=render(wanted, vocabulary=vocabulary))


def render(state: StateFile, *, vocabulary: Vocabulary = STANDARD) -> str:
    """Return the file's text; raise `StateError` for a state that the dialect does not allow."""
    require_writable(state, vocabulary=vocabulary)
    try:
        reading = read(state.text, vocabulary)
    except UnreadableStateError:
        raise StateError(
            "a state can only be written into a text that contains one",
            hint="create a new one from the template",
        ) from None
    old = reading.state
    if old.dialect is not state.dialect:
        raise StateError(f"a {old.dialect} file cannot take a {state.dialect} state", hint="convert it first")
    text = apply(state.text, _sub_step_edits(state.text, reading.block, old, state))
    text = apply(text, _block_edits(text, read_block(text, find_location(text)), old, state))
    if state.dialect is Dialect.RICH:
        text = rich.write_history(text, old, state, find_location)
    elif old.skipped != state.skipped:
        known = sections.LIGHT_SECTIONS
        text = sections.write_bullets(text, find_location(text), sections.SKIPPED, state.skipped, known)
    if parse_state(text, vocabulary=vocabulary) != state:
        raise StateError(
            "the written state would read back differently", hint="`state check` shows what is unusual"
        )
    return text


def require_writable(state: StateFile, *, vocabulary: Vocabulary = STANDARD) -> None:
    """Raise `StateError` unless the dialect allows every value."""
    dialect, flow = state.dialect, state.flow
    if dialect is not Dialect.RICH and vocabulary.last_step(dialect, flow or "") is None:
        allowed = ", ".join(vocabulary.flow_names(dialect))
        raise StateError(f"flow '{flow}' is not allowed in {dialect}", hint=f"allowed: {allowed}")
    if not vocabulary.allows_step(dialect, flow, state.step):
        allowed = vocabulary.steps_in_words(dialect, flow)
        raise StateError(f"step '{state.step}' is not allowed in {dialect}", hint=f"allowed: {allowed}")
    if not 0 <= state.retry_count <= MAX_RETRY:
        raise StateError(f"retry_count {state.retry_count} is not allowed", hint=f"allowed: 0 to {MAX_RETRY}")
    if dialect is Dialect.AUTODEV:
        _require_autodev(state)
    elif isinstance(state.sub_step, Phase):
        raise StateError(f"a structured sub_step does not fit into {dialect}", hint="write it as a Position")


def _require_autodev(state: StateFile) -> None:
    if state.cycle is None or state.cycle < 1:
        raise StateError(f"cycle {state.cycle} is not allowed", hint="allowed: 1 or more")
    if isinstance(state.sub_step, Position):
        raise StateError("autodev needs a structured sub_step", hint="write it as a Phase")
    broken = autodev.broken_rule(state.sub_step) if state.sub_step else ""
    if broken:
        raise StateError(f"sub_step {broken}", hint="phase is an integer from 0, name is a kebab-case token")


def _block_edits(text: str, block: Block, old: StateFile, new: StateFile) -> list[Edit]:
    pairs = (
        ("story", old.story, new.story),
        ("flow", old.flow, new.flow),
        ("step", old.step, new.step),
        ("name", old.name, new.name),
        ("status", old.status, new.status),
        ("retry_count", str(old.retry_count), str(new.retry_count)),
        ("cycle", _text(old.cycle), _text(new.cycle)),
        ("tracker", old.tracker, new.tracker),
    )
    return [_key_edit(text, block, name, after) for name, before, after in pairs if before != after]


def _key_edit(text: str, block: Block, name: str, value: str | None) -> Edit:
    key = block.top.get(name)
    encoded = "" if value is None else encode_scalar(value)
    if key is None:
        return add_key(text, block, name, encoded)
    if value is None:
        return remove_line(text, key.line)
    scalar = block.scalar(name) or decode_text(key.raw)
    return set_value(text, key, scalar, encoded)


def _sub_step_edits(text: str, block: Block, old: StateFile, new: StateFile) -> list[Edit]:
    if old.sub_step == new.sub_step:
        return []
    wanted = new.sub_step
    if isinstance(wanted, Phase):
        if "sub_step" not in block.top:
            return [_add_phase(text, block, wanted)]
        before = old.sub_step if isinstance(old.sub_step, Phase) else None
        return autodev.edit_sub_step(text, block, before, wanted)
    if wanted is None:
        raise StateError("a known sub_step cannot become unknown", hint="reset it to its beginning")
    if "sub_step" not in block.top:
        return [add_key(text, block, "sub_step", encode_scalar(wanted.text))]
    return pointer.edit_sub_step(text, block, wanted)


def _add_phase(text: str, block: Block, phase: Phase) -> Edit:
    line = add_key(text, block, "sub_step", "")
    at = text.rfind("\n", 0, line.start) + 1
    return insert_after(text, at, [" " * block.indent + part for part in autodev.fresh_lines(phase)])


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
