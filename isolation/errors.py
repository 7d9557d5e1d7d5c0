"""The `IsolationError` family: what can go wrong where a story works.

Each carries an exit code, a machine-readable code and a hint, so that the command line can
print it without knowing the class.
"""

from typing import ClassVar


class IsolationError(Exception):
    """A workspace, a process or the repository cannot be used; never shown as a traceback."""

    code: ClassVar[str] = "isolation"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RepositoryError(IsolationError):
    """No usable git repository was found, or git itself failed."""

    code = "repository"


class GitCommandError(RepositoryError):
    """A git command failed unexpectedly."""

    code = "git"
    exit_code = 2

    def __init__(self, message: str, *, returncode: int, stderr: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.returncode = returncode
        self.stderr = stderr


class SigningError(RepositoryError):
    """Git is configured to sign commits, and could not."""

    code = "signing"


class WorkspaceError(IsolationError):
    """A story's workspace cannot be opened; nothing of the user's was touched."""

    code = "workspace"


class UncommittableError(WorkspaceError):
    """What a session left cannot be committed as it is; `words` tell the next session what to do about it."""

    def __init__(self, message: str, *, words: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.words = words


class MergeConflictError(WorkspaceError):
    """The tips of a story's dependencies do not merge."""

    code = "merge-conflict"

    def __init__(self, message: str, *, paths: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.paths = paths


class TargetError(WorkspaceError):
    """The target of a landing cannot move, as a rule because of what is in a checkout of it."""

    code = "target"


class ClaimError(IsolationError):
    """A claim's glob cannot be used."""

    code = "claim"


class UnprovenError(ClaimError):
    """Claims are too complex to compare; `pair` are their positions among those given."""

    pair: tuple[int, int] = (0, 1)


class GuardError(IsolationError):
    """A story cannot be kept within its paths as asked."""

    code = "guard"
    exit_code = 2


class LeaseHeldError(IsolationError):
    """Another coordinator holds the repository."""

    code = "lease-held"


class KeeperError(IsolationError):
    """The process that supervises the sessions cannot be started, or died."""

    code = "keeper"
    exit_code = 2


class CommandKilledError(KeeperError):
    """A command of ours was killed from outside; done again, it does the same."""


class CommandLimitError(KeeperError):
    """A command was ended because it took too long, or wrote too much."""
