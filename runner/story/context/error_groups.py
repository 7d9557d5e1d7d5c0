"""Nurseries wrap errors in groups; the code that opens one raises the error that the user can act on."""

from collections.abc import Iterator
from contextlib import contextmanager

from isolation.errors import IsolationError
from runner.core.errors import RunnerError


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the first expected error of a group in its place; leave every other group as it is."""
    try:
        yield
    except BaseExceptionGroup as group:
        expected = group.subgroup(lambda error: isinstance(error, RunnerError | IsolationError))
        if expected is None or group.split((RunnerError, IsolationError, _cancelled()))[1] is not None:
            raise
        raise _first(expected) from group


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _cancelled() -> type[BaseException]:
    import trio

    return trio.Cancelled
