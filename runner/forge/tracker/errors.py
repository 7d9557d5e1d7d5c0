"""What goes wrong between this program and a tracker."""

from collections.abc import Iterator
from contextlib import contextmanager

from isolation.errors import IsolationError
from runner.core.errors import RunnerError


class TrackerError(RunnerError):
    """A tracker, or the MCP server that leads to it, did not do what was asked; what it did is unknown."""

    code = "tracker"


class AccessError(TrackerError):
    """The tracker denies access."""


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the first expected error of a group in its place; leave every other group as it is."""
    try:
        yield
    except BaseExceptionGroup as group:
        found = group.subgroup((RunnerError, IsolationError))
        if found is None:
            raise
        error: BaseException = found
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
