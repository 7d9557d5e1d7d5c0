"""The errors that a user can cause or must know about, each with exit code, machine-readable code and hint.

Raise them low; only the command line prints them. `message` says what happened and where,
`hint` what to do next.
"""

import errno
import os
from typing import ClassVar


class RunnerError(Exception):
    """Something that a user can act on; never shown as a traceback."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(RunnerError):
    """The command line itself is wrong."""

    code = "usage"


class SettingsError(RunnerError):
    """A settings file, variable or flag holds a value that cannot be used."""

    code = "settings"


class BacklogError(RunnerError):
    """A story cannot be read, or the stories do not fit together."""

    code = "backlog"


class EmptyBacklogError(BacklogError):
    """There is no story where stories are looked for."""


class UnknownStoryError(BacklogError):
    """A word names neither a file nor a story."""

    def __init__(self, message: str, *, name: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.name = name


class NotFoundError(RunnerError):
    """What the user named does not exist: a run, a story, a log."""

    code = "not-found"


class AgentError(RunnerError):
    """No agent can be started for a story."""

    code = "agent"


class JournalError(RunnerError):
    """The journal cannot be read or written."""

    code = "journal"
    exit_code = 2


class SystemFaultError(RunnerError):
    """The machine denied something that the run needs: disk, processes, permissions."""

    code = "system"
    exit_code = 2


def system_message(error: OSError) -> str:
    """Return what failed, without the error number: "cannot write to /some/file: read-only file system"."""
    if error.strerror is None:
        return f"system error: {error}"
    reason = error.strerror[:1].lower() + error.strerror[1:]
    if error.filename is None:
        return f"system error: {reason}"
    verb = "write to" if error.errno in {errno.EROFS, errno.ENOSPC, errno.EDQUOT} else "access"
    return f"cannot {verb} {os.fsdecode(error.filename)}: {reason}"
