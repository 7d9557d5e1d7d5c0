"""The state files that skills keep for themselves, such as `_docs/02_document/state.json`.

Each skill has its own format, so only what most of them share is read: the number and name of the current
step. What cannot be read is reported, never guessed.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from isolation.files.plain import read_plain
from isolation.patterns import pattern
from runner.core.text.names import one_line, shown

_MOST = 1 << 20
_DEEPEST = 5
_HERE = ("current", "progress", "sub_step", "current_step", "current_phase", "step", "phase")
_NUMBERS = ("phase", "step", "number", "current_phase", "current_step", "sub_step")
_NAMES = ("name", "phase_name", "step_name", "current_step_name", "current_phase_name")
_SUB_STEP = pattern(r"(?:(?P<number>[0-9]+(?:\.[0-9]+)?[a-z]?)\b)?[\s—–:.-]*(?P<name>.*)")  # noqa: RUF001  people write both dashes


class SkillState(Struct, frozen=True, kw_only=True):
    """Where a skill says it is; empty means unknown. `problem` says why nothing could be read."""

    number: str = ""
    name: str = ""
    problem: str = ""


class Comparison(Struct, frozen=True, kw_only=True):
    """Whether a skill's own state and the `sub_step` of a state file agree, with a text for the log."""

    consistent: bool
    words: str


def read_skill_state(path: Path) -> SkillState | None:
    """Read a skill's own state; None if it has none."""
    try:
        data = json.loads(read_plain(path, _MOST))
    except FileNotFoundError:
        return None
    except OSError as error:
        return SkillState(problem=f"{path.name} cannot be read: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return SkillState(problem=f"{path.name} is not valid JSON: {error}")
    if not isinstance(data, dict):
        return SkillState(problem=f"{path.name} holds {shown(data)}, not a table")
    state = _state(data)
    return state or SkillState(problem=f"{path.name} names neither a step nor a phase")


def compare(state: SkillState | None, sub_step: str) -> Comparison:
    """Compare a skill's own state with a `sub_step` such as `4 — Verification` or `4 verification`."""
    if state is None:
        return Comparison(consistent=True, words="the skill has no state file of its own")
    if state.problem:
        return Comparison(consistent=False, words=state.problem)
    recorded = _split(sub_step)
    numbers = not (state.number and recorded.number) or state.number == recorded.number
    names = not (state.name and recorded.name) or kebab(state.name) == kebab(recorded.name)
    nothing = not (state.number and recorded.number) and not (state.name and recorded.name)
    theirs, ours = _words(state), _words(recorded)
    if numbers and names and not nothing:
        return Comparison(consistent=True, words=f"the skill and the state file agree on {theirs}")
    return Comparison(
        consistent=False,
        words=f"the skill says {theirs}, the state file {ours}; the skill's own state counts",
    )


def _state(data: Mapping[str, Any], depth: int = 0) -> SkillState | None:
    """Find the number and name, at the top level or in a nested table."""
    number = next((text for key in _NUMBERS if (text := _scalar(data.get(key)))), "")
    name = next((text for key in _NAMES if (text := _scalar(data.get(key)))), "")
    if number or name:
        split = _split(number)
        return SkillState(number=split.number, name=name or split.name)
    for key in _HERE if depth < _DEEPEST else ():
        inner = data.get(key)
        if isinstance(inner, dict) and (found := _state(inner, depth + 1)):
            return found
    return None


def _scalar(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    return one_line(str(value))


def _split(text: str) -> SkillState:
    read = _SUB_STEP.fullmatch(one_line(text))
    if read is None:
        return SkillState(name=one_line(text))
    return SkillState(number=read.group("number") or "", name=read.group("name"))


def kebab(text: str) -> str:
    """Return a name as a kebab-case token."""
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


def _words(state: SkillState) -> str:
    return " — ".join(part for part in (state.number, state.name) if part) or "nothing"
