"""All flows: the built-in ones, and the user's own in `flows/*.toml` at the top of the repository.

A flow has the name of its file. A user's file with the name of a built-in flow is an error wherever it
would be used; neither replaces the other. A broken user file only matters when that flow is used.
"""

import shlex
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from msgspec import Struct

from runner.core.errors import SettingsError
from runner.core.flow import USER_FOLDER, Edition, Flow, FlowProblem
from runner.core.text.names import did_you_mean, id_problem
from runner.flows.document import Document, read

BUILT_IN = ("quick", "greenfield", "existing-code", "meta-repo")

_SUFFIX = ".toml"


class FlowError(SettingsError):
    """A flow does not exist, or its file cannot be used."""

    code = "flow"


class Listed(Struct, frozen=True, kw_only=True):
    """One flow: its editions, or the problems that make it unusable."""

    name: str
    file: str | None
    flows: tuple[Flow, ...] = ()
    problems: tuple[FlowProblem, ...] = ()


def load_flow(name: str, edition: Edition, top: Path | None = None) -> Flow:
    """Return a flow as an edition numbers it; with `top`, the user's own flows there too."""
    own = None if top is None else top / USER_FOLDER / f"{name}{_SUFFIX}"
    if own is not None and id_problem(name) is None and own.is_file():
        return load_flow_file(own, edition)
    if name not in BUILT_IN:
        known = (*BUILT_IN, *(path.stem for path in user_files(top)))
        hint = f"{did_you_mean(name, known)} known flows: {', '.join(known)}.".strip()
        raise FlowError(f"unknown flow '{name}'", hint=hint)
    return _edition_of(name, _built_in(name), edition)


def load_flow_file(path: Path, edition: Edition = Edition.ANY) -> Flow:
    """Read one flow file; raise with its first problem and the number of others."""
    document = _load(path)
    if not document.problems:
        return _edition_of(path.stem, document, edition)
    first, more = document.problems[0], len(document.problems) - 1
    rest = f" (`autopilot-multi flows check {shlex.quote(str(path))}` shows {more} more)" if more else ""
    raise FlowError(f"{path.name}: {first}", hint=first.hint + rest)


def check_flow(path: Path) -> tuple[FlowProblem, ...]:
    """Return every problem of a flow file; empty when it can be used."""
    return _load(path).problems


def user_files(top: Path | None) -> tuple[Path, ...]:
    """List the user's flow files by name."""
    if top is None:
        return ()
    return tuple(sorted(path for path in (top / USER_FOLDER).glob(f"*{_SUFFIX}") if path.is_file()))


def list_flows(top: Path | None = None) -> tuple[Listed, ...]:
    """List the built-in flows, then the user's; a broken file is listed with its problems."""
    listed = [Listed(name=name, file=None, flows=tuple(_built_in(name).flows.values())) for name in BUILT_IN]
    for path in user_files(top):
        document = _load(path)
        flows = () if document.problems else tuple(document.flows.values())
        file = f"{USER_FOLDER}/{path.name}"
        listed.append(Listed(name=path.stem, file=file, flows=flows, problems=document.problems))
    return tuple(listed)


@cache
def _built_in(name: str) -> Document:
    text = (resources.files("runner.flows.builtin") / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    return read(tomllib.loads(text), name)


def _load(path: Path) -> Document:
    """Read a user's flow file, including the problems of its name and of the file itself."""
    problems = []
    if path.stem in BUILT_IN:
        message = f"'{path.stem}' is the name of a built-in flow"
        problems.append(FlowProblem(where="", message=message, hint="rename the file and with it the flow."))
    elif problem := id_problem(path.stem):
        message = f"the file's name '{path.stem}' is not a valid flow name"
        problems.append(FlowProblem(where="", message=message, hint=f"rename it: {problem}."))
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise FlowError(
            f"{path} cannot be read: {error.strerror}", hint="check its name and permissions."
        ) from error
    except (ValueError, RecursionError) as error:  # also bytes that are not text, and endless numbers
        problems.append(
            FlowProblem(where="", message=f"not valid TOML: {error}", hint="strings need quotes.")
        )
        return Document(flows={}, problems=tuple(problems))
    document = read(data, path.stem)
    return Document(flows=document.flows, problems=(*problems, *document.problems))


def _edition_of(name: str, document: Document, edition: Edition) -> Flow:
    """Choose an edition; a flow for every dialect has only one."""
    flow = document.flows.get(edition) or document.flows.get(Edition.ANY)
    if flow is not None:
        return flow
    known = ", ".join(document.flows)
    raise FlowError(
        f"the flow '{name}' has no steps for the edition '{edition}'",
        hint=f"use a state file of one of its editions: {known}.",
    )
