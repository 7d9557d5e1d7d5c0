"""The autodev dialect: a flow, a structured `sub_step`, a cycle.

`sub_step` belongs to the running sub-skill. Its rules hold whenever it is written. If a file breaks them,
the position is not guessed: the sub-step is unknown, and the folders decide.
"""

from isolation.patterns import pattern
from runner.flows.state.model import RESERVED_NAME, Phase, Problem
from runner.flows.state.text.block import PARTS, Block, set_value
from runner.flows.state.text.codec import decode_text, decode_word, encode_scalar, quote
from runner.flows.state.text.edits import Edit, insert_after, remove_line
from runner.flows.state.text.layout import Key, line_number

TEMPLATE = """\
# Autodev State

## Current Step
flow: greenfield
step: 1
name: Problem
status: not_started
sub_step:
  phase: 0
  name: awaiting-invocation
  detail: ""
retry_count: 0
cycle: 1
"""

_INTEGER = pattern(r"0|[1-9][0-9]{0,8}")
_KEBAB = pattern(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_INLINE = pattern(r"\{[ \t]*phase:([^,{}]*),[ \t]*name:([^,{}]*)(?:,[ \t]*detail:(.*))?\}")
_STARTS = (0, 1)
_ALLOWED = "phase: an integer from 0, name: kebab-case, detail: any text"
_HINT = "the folders decide the position instead; the sub-skill writes the field at its next save point"


def broken_rule(phase: Phase) -> str:
    """Return the rule that a sub-step breaks; '' for none."""
    if not _INTEGER.fullmatch(str(phase.phase)):
        return f"phase {phase.phase} is not an integer from 0"
    return _broken_name(phase)


def _broken_name(phase: Phase) -> str:
    if not _KEBAB.fullmatch(phase.name):
        return f"name '{phase.name}' is not kebab-case"
    if phase.name == RESERVED_NAME and phase.phase:
        return f"'{RESERVED_NAME}' is reserved for phase 0"
    return ""


def broken_order(phase: Phase, recorded: Phase | None, *, first: bool) -> str:
    """Return why a sub-step cannot be saved after the recorded one; '' if it can.

    The phase rises by one with each save. Saving the same phase under the same name again changes its detail.
    The `first` save of a session may also start over, at 0 or 1: a retry does not know what was left.
    """
    if recorded is None or phase.name == RESERVED_NAME:
        return ""  # nothing is known that it could follow, or a new invocation begins
    again = (phase.phase, phase.name) == (recorded.phase, recorded.name)
    following = recorded.phase + 1
    if again or phase.phase == following or (first and phase.phase in _STARTS):
        return ""
    if phase.phase == recorded.phase:
        return f"phase {phase.phase} is '{recorded.name}' already; the next save point is phase {following}"
    more = f"; a new session may also start over at phase {_STARTS[-1]}" if first else ""
    return f"phase {phase.phase} does not follow {recorded.phase}: the next one is {following}{more}"


def read_sub_step(text: str, block: Block) -> tuple[Phase | None, Problem | None]:
    """Read the structured sub-step, or return why it cannot be trusted."""
    key = block.top.get("sub_step")
    if key is None:
        return None, _problem(line_number(text, block.start), "", "sub_step is missing")
    value = decode_text(key.raw).value
    parts = _inline_parts(value) if value and not block.nested else _nested_parts(block, value)
    if isinstance(parts, str):
        return None, _problem(line_number(text, key.line), value, parts)
    number, name, detail = parts
    if not _INTEGER.fullmatch(number):
        message = f"sub_step phase '{number}' is not an integer from 0"
        return None, _problem(line_number(text, key.line), number, message)
    phase = Phase(phase=int(number), name=name, detail=detail)
    broken = _broken_name(phase)
    if broken:
        return None, _problem(line_number(text, key.line), str(phase), f"sub_step {broken}")
    return phase, None


def _nested_parts(block: Block, value: str) -> tuple[str, str, str] | str:
    if value:
        return "sub_step has a value of its own and lines below it"
    lines: dict[str, Key] = {}
    indented = True
    for key in block.nested:
        if key.name in PARTS:
            if lines.setdefault(key.name, key) is not key:
                return "sub_step names a part twice"
            indented &= key.indent > block.indent
    if not indented:
        return "the lines below sub_step are not indented"
    if "phase" not in lines or "name" not in lines:
        return "sub_step needs `phase:` and `name:` below it"
    detail = decode_text(lines["detail"].raw).value if "detail" in lines else ""
    return (
        decode_word(lines["phase"].raw).value,
        decode_word(lines["name"].raw).value,
        detail,
    )


def _inline_parts(value: str) -> tuple[str, str, str] | str:
    found = _INLINE.fullmatch(value)
    if found is None:
        return "sub_step is not the structured form with `phase:`, `name:` and `detail:`"
    number, name, detail = (decode_word((part or "").strip(" \t")).value for part in found.groups())
    return number, name, detail


def _problem(line: int, value: str, message: str) -> Problem:
    return Problem(
        line=line, key="sub_step", value=value, message=message, allowed=_ALLOWED, hint=_HINT, fatal=False
    )


def edit_sub_step(text: str, block: Block, old: Phase | None, new: Phase) -> list[Edit]:
    """Change the parts that differ; a sub-step that could not be read is rewritten."""
    key = block.top["sub_step"]
    parts = {line.name: line for line in block.nested if line.name in PARTS}
    if old is None or len(parts) < len(PARTS):
        return _rewrite(text, block, key, new)
    changed = []
    for name, before, after in (
        ("phase", str(old.phase), str(new.phase)),
        ("name", encode_scalar(old.name), encode_scalar(new.name)),
        ("detail", quote(old.detail), quote(new.detail)),
    ):
        if before != after:
            scalar = (decode_text if name == "detail" else decode_word)(parts[name].raw)
            changed.append(set_value(text, parts[name], scalar, after))
    return changed


def _rewrite(text: str, block: Block, key: Key, new: Phase) -> list[Edit]:
    scalar = decode_text(key.raw)
    removed = [remove_line(text, line.line) for line in block.nested if line.name in PARTS]
    pad = " " * block.indent
    fresh = insert_after(text, key.line, [pad + line for line in fresh_lines(new)[1:]])
    # The new lines and the removed value touch at one offset, so they must be one edit.
    remark = text[key.start + scalar.length : fresh.start].strip(" \t")
    colon = text.rindex(":", key.line, key.start) + 1
    return [Edit(colon, fresh.end, (f" {remark}" if remark else "") + fresh.text), *removed]


def fresh_lines(phase: Phase) -> list[str]:
    """Return a sub-step's lines."""
    return [
        "sub_step:",
        f"  phase: {phase.phase}",
        f"  name: {encode_scalar(phase.name)}",
        f"  detail: {quote(phase.detail)}",
    ]
