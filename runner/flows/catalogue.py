"""The flows there are: those of the program, and the user's own in `flows/*.toml` at the repository's top.

A flow is called as its file is. A file of the user's that has the name of a flow of the program is an
error, wherever it would be used: neither replaces the other. A broken file of the user's only matters
to who asks for it.
"""

import shlex
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from msgspec import Struct

from runner.core.errors import SettingsError
from runner.core.flow import USER_FOLDER, Edition, Flow
from runner.core.text.names import did_you_mean, id_problem
from runner.flows.document import Document, read
from runner.flows.entries import Problem

BUILT_IN = ("quick", "greenfield", "existing-code", "meta-repo")

_SUFFIX = ".toml"


class FlowError(SettingsError):
    """A flow does not exist, or its file cannot be used."""

    code = "flow"


class Listed(Struct, frozen=True, kw_only=True):
    """One flow that there is: its editions, or the problems that keep it from being used."""

    name: str
    file: str | None
    flows: tuple[Flow, ...] = ()
    problems: tuple[Problem, ...] = ()


def load_flow(name: str, edition: Edition, top: Path | None = None) -> Flow:
    """Give a flow as an edition numbers it; with `top` also one of the user's own there."""
    own = None if top is None else top / USER_FOLDER / f"{name}{_SUFFIX}"
    if own is not None and id_problem(name) is None and own.is_file():
        return load_flow_file(own, edition)
    if name not in BUILT_IN:
        known = (*BUILT_IN, *(path.stem for path in user_files(top)))
        hint = f"{did_you_mean(name, known)} known flows: {', '.join(known)}.".strip()
        raise FlowError(f"unknown flow '{name}'", hint=hint)
    return _edition_of(name, _built_in(name), edition)


def load_flow_file(path: Path, edition: Edition = Edition.ANY) -> Flow:
    """Read one flow file; the first of its problems is raised, and how many more there are."""
    document = _load(path)
    if not document.problems:
        return _edition_of(path.stem, document, edition)
    first, more = document.problems[0], len(document.problems) - 1
    rest = f" (`autopilot-multi flows check {shlex.quote(str(path))}` tells {more} more)" if more else ""
    raise FlowError(f"{path.name}: {first}", hint=first.hint + rest)


def check_flow(path: Path) -> tuple[Problem, ...]:
    """Tell everything that is wrong with a flow file; nothing when it can be used."""
    return _load(path).problems


def user_files(top: Path | None) -> tuple[Path, ...]:
    """List the flow files of the user, by name."""
    if top is None:
        return ()
    return tuple(sorted(path for path in (top / USER_FOLDER).glob(f"*{_SUFFIX}") if path.is_file()))


def list_flows(top: Path | None = None) -> tuple[Listed, ...]:
    """List the flows of the program, then the user's; a broken file is listed with its problems."""
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
    """Read a flow file of the user's, with the problems of its name and of the file itself."""
    problems = []
    if path.stem in BUILT_IN:
        message = f"'{path.stem}' is the name of a flow of the program"
        problems.append(Problem(where="", message=message, hint="rename the file, and with it the flow."))
    elif problem := id_problem(path.stem):
        message = f"the file's name '{path.stem}' cannot name a flow"
        problems.append(Problem(where="", message=message, hint=f"rename it: {problem}."))
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise FlowError(
            f"{path} cannot be read: {error.strerror}", hint="check the name and rights."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        problems.append(Problem(where="", message=f"not valid TOML: {error}", hint="strings need quotes."))
        return Document(flows={}, problems=tuple(problems))
    document = read(data, path.stem)
    return Document(flows=document.flows, problems=(*problems, *document.problems))


def _edition_of(name: str, document: Document, edition: Edition) -> Flow:
    """Pick an edition; a flow that suits every dialect has only one."""
    flow = document.flows.get(edition) or document.flows.get(Edition.ANY)
    if flow is not None:
        return flow
    known = ", ".join(document.flows)
    raise FlowError(
        f"the flow '{name}' has no steps for the edition '{edition}'",
        hint=f"use a state file of one of its editions: {known}.",
    )
