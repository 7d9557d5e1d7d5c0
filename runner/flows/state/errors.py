"""What can go wrong with a state file."""

from collections.abc import Sequence

from runner.core.errors import RunnerError, SystemFaultError
from runner.flows.state.model import Problem


class StateError(RunnerError):
    """A state that must not be written, or a change that the protocol forbids."""

    code = "state"


class UnreadableStateError(StateError):
    """A file without a trustworthy state. It is left unchanged."""

    code = "state-unreadable"

    def __init__(self, message: str, *, problems: Sequence[Problem], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


class StateBusyError(SystemFaultError):
    """Another process holds the state file's lock, or keeps rewriting the file."""

    code = "state-busy"
