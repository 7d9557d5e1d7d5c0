"""Errors of the operating system: users read what failed, never an error number."""

import errno
import os

import pytest

from runner.core.errors import system_message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.EROFS, os.strerror(errno.EROFS), "/srv/journal.db"),
            "cannot write to /srv/journal.db: read-only file system",
        ),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), b"/srv/log"),
            "cannot write to /srv/log: no space left on device",
        ),
        (
            PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/srv/stories"),
            "cannot access /srv/stories: permission denied",
        ),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "system error: too many open files"),
        (OSError("no terminal"), "system error: no terminal"),
    ],
)
def test_a_system_error_names_the_file_and_the_reason(error: OSError, message: str) -> None:
    """Only some errors tell that it was a write that failed."""
    assert system_message(error) == message
