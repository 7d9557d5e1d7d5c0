"""Which errors are the machine's, so that `resume` continues the story, and which are the story's."""

import errno
import os
from pathlib import Path

import pytest

from isolation.errors import CommandKilledError, GitCommandError, WorkspaceError
from runner.core.model import RunId, StoryId
from runner.records.crash_log import write_crash_log
from runner.story.faults import crashed, ended_by

STORY, RUN = StoryId("a"), RunId("r")


@pytest.mark.parametrize(
    ("stderr", "verdict"),
    [
        ("fatal: unable to write loose object file: No space left on device", "stopped"),
        ("error: unable to create temporary file: Read-only file system", "stopped"),
        (
            "error: insufficient permission for adding an object to repository database .git",
            "stopped",
        ),
        ("error: unable to write file stories/a.md", "stopped"),
        ('error: open("secret"): Permission denied', "failed"),
        ("error: pathspec 'x' did not match any files", "failed"),
    ],
)
def test_what_git_says_decides(stderr: str, verdict: str) -> None:
    """A file that a session made unreadable is the story's; a disk that refuses objects is the machine's."""
    error = GitCommandError("git failed", returncode=128, stderr=stderr)
    wrapped = WorkspaceError("cannot open")
    wrapped.__cause__ = error
    for shown in (error, wrapped):
        result = ended_by(shown, STORY, RUN)
        assert result.verdict == verdict
        assert result.next == f"autopilot-multi {'resume r' if verdict == 'stopped' else 'logs a'}"


def test_a_command_that_was_killed_stops_the_story_however_often_it_is_explained() -> None:
    """A workspace that cannot be opened because git was killed is opened by `resume`."""
    first = CommandKilledError("`git add` was killed from outside (signal 9)", hint="resume the run")
    second = GitCommandError(first.message, returncode=-1, stderr="")
    third = WorkspaceError("cannot open")
    second.__cause__, third.__cause__ = first, second
    assert [ended_by(error, STORY, RUN).verdict for error in (first, second, third)] == ["stopped"] * 3


def test_an_unexpected_error_of_the_disk_is_the_machines(tmp_path: Path) -> None:
    """Its report goes elsewhere where the run's own folder cannot be written."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/srv/log")
    (tmp_path / "file").touch()
    report = write_crash_log(full, tmp_path / "file" / "below")
    assert "No space left" in report.read_text()
    report.unlink()
    result = crashed(full, STORY, RUN, report)
    assert result.verdict == "stopped"
    assert result.reason.startswith("cannot write to /srv/log: no space left on device; ")
    assert crashed(OSError(errno.ENOENT, "gone"), STORY, RUN, report).verdict == "failed"
    assert crashed(ValueError("bug"), STORY, RUN, report).next == f"see {report}"
