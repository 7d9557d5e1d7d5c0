"""What the machine has no more of is told as such, wherever in the program it shows."""

import errno
import subprocess
from pathlib import Path

import pytest

from runner.cli.main import _machine_fault
from tests.acceptance.program import command, write_story, writes


def test_too_few_open_files_are_no_internal_error(repo: Path) -> None:
    """The message names the limit; it asks for no bug report."""
    write_story(repo, "a", command=writes("a"))
    limited = ["sh", "-c", 'ulimit -n 12; exec "$@"', "sh", *command("run")]
    done = subprocess.run(limited, cwd=repo, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "too many open files" in done.stderr
    assert "internal error" not in done.stderr


def _imported() -> ImportError:
    error = ImportError("Failed to initialize")
    error.__cause__ = OSError(errno.EAGAIN, "Resource temporarily unavailable")
    return error


@pytest.mark.parametrize("bug", [_imported(), RuntimeError("can't start new thread")])
def test_a_limit_that_shows_as_another_error_is_found(bug: Exception) -> None:
    """A module that could not start a process, and a thread that could not be started."""
    fault = _machine_fault(bug)
    assert fault is not None
    assert fault.errno == errno.EAGAIN


def test_other_errors_are_bugs() -> None:
    """A missing file that nobody expected stays a bug, with its report."""
    assert _machine_fault(FileNotFoundError(errno.ENOENT, "no such file")) is None
