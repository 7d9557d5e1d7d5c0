"""The pointer dialect: a flow and the current step, with a sub-step as plain text.

The rich dialect has the same sub-step and uses these functions too.
"""

from runner.flows.state.model import Position, Problem
from runner.flows.state.text.block import Block, set_value
from runner.flows.state.text.codec import decode_text, encode_scalar
from runner.flows.state.text.edits import Edit
from runner.flows.state.text.layout import line_number

TEMPLATE = """\
# Autopilot State

## Current Step
flow: greenfield
step: 1
name: Problem
status: not_started
sub_step: 0
retry_count: 0
"""


def read_sub_step(text: str, block: Block) -> tuple[Position | None, Problem | None]:
    """Read the sub-step; it may be missing, but it must not be the template's placeholder."""
    key = block.top.get("sub_step")
    if key is None:
        return None, None
    scalar = decode_text(key.raw)
    if scalar.placeholder:
        problem = Problem(
            line=line_number(text, key.line),
            key="sub_step",
            value=scalar.value,
            message="sub_step still holds the template's placeholder",
            allowed="0, or the sub-skill's own number and name, as in `4 — Review`",
            fatal=False,
        )
        return None, problem
    return Position(text=scalar.value), None


def edit_sub_step(text: str, block: Block, new: Position) -> list[Edit]:
    """Change the sub-step's value."""
    key = block.top["sub_step"]
    return [set_value(text, key, decode_text(key.raw), encode_scalar(new.text))]
