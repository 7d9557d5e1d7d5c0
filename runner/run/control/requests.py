"""What other processes may ask of an active run: one class per request, as the journal keeps it.

A request is a row in the journal; the coordinator answers each with one `RequestAnswered`. A kind is a
format: the sender and the run may be of different versions, so a kind that the run does not know is refused
by name.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from isolation.decoding import from_values
from runner.core.model import StoryId
from runner.records.journal import Request


class Stop(Struct, frozen=True, kw_only=True):
    """End a story, or the run: after the current session, or now."""

    story_id: StoryId | None = None
    now: bool = False


class Answer(Struct, frozen=True, kw_only=True):
    """Answer a decision."""

    story_id: StoryId
    decision: str
    letter: str


class Pause(Struct, frozen=True, kw_only=True):
    """Start no more stories; those that run are not disturbed."""


class Unpause(Struct, frozen=True, kw_only=True):
    """Start stories again."""


class Add(Struct, frozen=True, kw_only=True):
    """Take stories into the run, or replace ones that have not started; JSON entries of `story_json`."""

    stories: tuple[dict[str, Any], ...]


class Retry(Struct, frozen=True, kw_only=True):
    """Try a story again that has ended; `note` goes into its prompt, `fresh` starts from the base."""

    story_id: StoryId
    note: str = ""
    fresh: bool = False


class TakeOver(Struct, frozen=True, kw_only=True):
    """End a story after its current session, so that a person can continue in its workspace."""

    story_id: StoryId


ControlRequest: TypeAlias = Stop | Answer | Pause | Unpause | Add | Retry | TakeOver

_KINDS: dict[str, Any] = {
    "stop": Stop,
    "answer": Answer,
    "pause": Pause,
    "unpause": Unpause,
    "add": Add,
    "retry": Retry,
    "take-over": TakeOver,
}
_KIND_OF = {request: kind for kind, request in _KINDS.items()}


class UnknownRequestError(ValueError):
    """The request is of a kind that this version does not know, or its data cannot be read."""


def encode(request: ControlRequest) -> tuple[str, StoryId | None, dict[str, Any]]:
    """Turn a request into its kind, its story and its data, as the journal keeps them."""
    data: dict[str, Any] = msgspec.to_builtins(request)
    return _KIND_OF[type(request)], data.pop("story_id", None), data


def decode(row: Request) -> ControlRequest:
    """Read a request from the journal."""
    known = _KINDS.get(row.kind)
    if known is None:
        raise UnknownRequestError(f"this version does not know '{row.kind}'")
    data: Mapping[str, Any] = {**row.data, **({"story_id": row.story_id} if row.story_id else {})}
    try:
        request: ControlRequest = from_values(data, known)
    except msgspec.ValidationError as error:
        raise UnknownRequestError(f"'{row.kind}' cannot be read: {error}") from error
    return request
