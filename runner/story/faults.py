"""The result of a story that an error ended: a fault of the machine says nothing about the story's work."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from isolation.errors import CommandKilledError, GitCommandError, IsolationError
from runner.core.errors import RunnerError, system_message
from runner.core.events.events import StoryFinished
from runner.core.model import RunId, Status, StoryId
from runner.story import results

_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
# What git says in its own words, without those of the system.
_BY_GIT = (
    "insufficient permission for adding an object to repository database",
    "unable to write file",
)
"""Not any denied permission: a session can make its own files unreadable."""
_HINT = "when the machine is well again, resume the run; what was committed is safe"


def ended_by(error: IsolationError | RunnerError, story_id: StoryId, run_id: RunId) -> StoryFinished:
    """Return the result: failed, or stopped by a bad disk or a kill; then `resume` continues the story."""
    if any(map(_of_the_machine, _chain(error))):
        return _stopped(story_id, run_id, f"{error.message}; {error.hint or _HINT}")
    return results.failed(story_id, error.message, next_=error.hint)


def crashed(error: Exception, story_id: StoryId, run_id: RunId, report: Path) -> StoryFinished:
    """Return the result of a story that an unexpected error ended; `report` has its details."""
    reason = f"crashed: {type(error).__name__}: {error}"
    if isinstance(error, OSError):
        reason = system_message(error)
    if _of_the_machine(error):
        return _stopped(story_id, run_id, f"{reason}; {_HINT}")
    return results.failed(story_id, reason, next_=f"see {report}")


def _stopped(story_id: StoryId, run_id: RunId, reason: str) -> StoryFinished:
    next_ = f"autopilot-multi resume {run_id}"
    return StoryFinished(story_id=story_id, verdict=Status.STOPPED, reason=reason, next=next_)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it, down to the first cause."""
    while error is not None:
        yield error
        error = error.__cause__


def _of_the_machine(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _MACHINE
    if not isinstance(error, GitCommandError):
        return isinstance(error, CommandKilledError)
    words = (*_BY_GIT, *map(os.strerror, _MACHINE))
    return any(word in error.stderr for word in words)
