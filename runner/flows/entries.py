"""The tables of a flow file as pydantic reads them, with its errors in this program's words.

One file may hold a flow in several editions: then `number` (and `name`, where it differs) is a table
with one entry per edition, and a step without an entry is not part of that edition.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from isolation.claims import globs as claims
from isolation.errors import ClaimError
from runner.core.flow import (
    DOCS,
    PROJECT_DOCS,
    STORY_ID,
    Edition,
    FlowProblem,
    artifact_parts,
    in_cycle,
    number_key,
)
from runner.core.text.names import did_you_mean, one_line, shown

DIALECTS = tuple(edition.value for edition in Edition if edition is not Edition.ANY)

_GLOBS = "a glob or a list of globs"
_EDITIONED = f"text, or a table with entries for {', '.join(DIALECTS)}"
_FLAG = "true or false"
_WANTED: Mapping[str, str] = {
    "number": _EDITIONED,
    "name": _EDITIONED,
    "artifacts": _GLOBS,
    "work_items": _GLOBS,
    "breaks": "one line",
    "kind": '"work" or "verify"',
    "session_boundary": _FLAG,
    "optional": _FLAG,
    "tracker": _FLAG,
    "baseline": _FLAG,
    "command": "a shell command, or a list: the program and its arguments",
    "question": "a table with title, options, recommendation and reason",
    "options": "a list of 2 to 4 texts",
    "editions": f"a list of some of {', '.join(DIALECTS)}",
    "every": _GLOBS,
    "some": _GLOBS,
    "none": _GLOBS,
    "steps": "a list of tables, each under [[steps]]",
    "detect": "a list of tables, each under [[detect]]",
    "loop": "a table with from and to",
}
_M = TypeVar("_M", bound=BaseModel)


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    if "\0" in text:
        raise ValueError("holds a NUL character")
    return text


def _plain(text: str) -> str:
    if one_line(_filled(text)) != text:
        raise ValueError("is not one plain line")
    return text


def _number(text: str) -> str:
    if number_key(text) is None:
        raise ValueError(f"{shown(text)} is not a step number, such as 3 or 2ea")
    return text


def _edition(text: str) -> str:
    if text not in tuple(Edition):
        raise ValueError(f"has no edition {shown(text)}. {did_you_mean(text, DIALECTS)}".rstrip())
    return text


def _artifact(text: str) -> str:
    glob, _ = artifact_parts(in_cycle(_filled(text), 1).replace(DOCS, PROJECT_DOCS).replace(STORY_ID, "id"))
    if glob.startswith("!"):
        raise ValueError(f"has the glob '{glob}', which is negated; name what must exist")
    if glob.split("/")[0] == ".git":
        raise ValueError(f"has the glob '{glob}', which is inside git's own folder")
    try:
        claims.compile([glob])
    except ClaimError as error:
        raise ValueError(f"cannot be used: {error.message}; {error.hint.rstrip('.')}") from error
    return text


def _by_edition(value: Any) -> Any:
    """Turn one text into an entry for every edition; an integer becomes its digits."""
    table = value if isinstance(value, dict) else {Edition.ANY.value: value}
    return {key: str(one) if type(one) is int else one for key, one in table.items()}


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _argv(value: Any) -> Any:
    return ["sh", "-c", value] if isinstance(value, str) and value.strip() else value


Filled = Annotated[str, AfterValidator(_filled)]
Plain = Annotated[str, AfterValidator(_plain)]
Globs = Annotated[list[Annotated[str, AfterValidator(_artifact)]], BeforeValidator(_listed)]
EditionKey = Annotated[str, AfterValidator(_edition)]
Editions = list[EditionKey]
Numbers = Annotated[
    dict[EditionKey, Annotated[str, AfterValidator(_number)]],
    BeforeValidator(_by_edition),
    Field(min_length=1),
]
Names = Annotated[dict[EditionKey, Plain], BeforeValidator(_by_edition), Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class QuestionEntry(_Table):
    """The question of a session boundary, where the default one does not fit."""

    title: Plain
    options: list[Plain]
    recommendation: Plain
    reason: Plain
    pauses: Plain = ""


class StepEntry(_Table):
    """One table under [[steps]]."""

    number: Numbers
    name: Names
    prompt: Filled = ""
    artifacts: Globs = []
    kind: Literal["work", "verify"] = "work"
    session_boundary: bool = False
    optional: bool = False
    tracker: bool = False
    work_items: Globs = []
    breaks: Plain = ""
    baseline: bool = False
    command: Annotated[list[Filled] | None, BeforeValidator(_argv), Field(min_length=1)] = None
    question: QuestionEntry | None = None


class RuleEntry(_Table):
    """One table under [[detect]]."""

    every: Globs = []
    some: Globs = []
    none: Globs = []
    editions: Editions = []


class LoopEntry(_Table):
    """The table [loop]."""

    start: Annotated[str, Field(alias="from")]
    to: str
    editions: Editions = []


class Top(_Table):
    """A whole file; steps and rules are read one by one so that each reports its own problems."""

    name: Plain = ""
    summary: Plain = ""
    steps: list[Any] = []
    detect: list[Any] = []
    loop: dict[str, Any] | None = None


def validated(model: type[_M], data: Any, where: str, problems: list[FlowProblem]) -> _M | None:
    """Read one table; add all of its problems to `problems`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems.extend(_problem(model, where, one) for one in error.errors(include_url=False))
        return None


def _problem(model: type[BaseModel], where: str, error: Mapping[str, Any]) -> FlowProblem:
    """Turn one pydantic error into a problem."""
    keys = [str(part) for part in error["loc"] if not isinstance(part, int) and part != "[key]"]
    # A text for every edition has no edition in its location.
    dotted = ".".join(key for key in keys if key != Edition.ANY.value)
    value = error["input"]
    match error["type"]:
        case _ if not keys:
            message, hint = f"this is not a table but {shown(value)}", "write its keys below the heading."
        case "extra_forbidden":
            known = _known(model, keys)
            message = f"unknown key '{dotted}'"
            hint = did_you_mean(keys[-1], known) or f"known here: {', '.join(known)}."
        case "missing":
            message, hint = f"'{dotted}' is missing", f"it is {_wanted(keys)}."
        case "value_error":
            message, hint = f"'{dotted}' {error['ctx']['error']}", f"it must be {_wanted(keys)}."
        case _:
            message = f"'{dotted}' must be {_wanted(keys)}, not {shown(value)}"
            hint = did_you_mean(str(value), ("work", "verify")) or f"change '{dotted}'."
    return FlowProblem(where=where, message=message, hint=hint)


def _known(model: type[BaseModel], keys: Sequence[str]) -> list[str]:
    fields = (QuestionEntry if len(keys) > 1 else model).model_fields
    return [item.alias or name for name, item in fields.items()]


def _wanted(keys: Sequence[str]) -> str:
    return _WANTED.get(keys[-1]) or _WANTED.get(keys[0]) or "text"
