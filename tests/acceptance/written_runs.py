"""A repository whose journal, lease and logs were written for a test, and the program run over it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isolation.paths import autopilot_dir, find_repository, journal_path
from runner.core.events.events import Event
from runner.records.journal import Journal
from tests.acceptance.program import run
from tests.records.sample_runs import RUN

PROGRAM = [sys.executable, "-m", "runner"]
HOLDER = """
import sys
from pathlib import Path
from isolation.files.lease import acquire
lease = acquire(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
sys.stdin.read()
lease.release()
"""


def autopilot(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    ran = run(cwd, *arguments)
    return subprocess.CompletedProcess(arguments, ran.code, ran.out, ran.err)


def document(cwd: Path, *arguments: str) -> dict[str, Any]:
    """Run the program with --json; stdout must be exactly one document."""
    done = autopilot(cwd, *arguments, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schema"] == 1
    assert found["command"] == arguments[0]
    return found


def rest_of(process: subprocess.Popen[str]) -> str:
    """Read on to the end of a program that must end by itself.

    Not `communicate`: that loses what an earlier `readline` has buffered.
    """
    assert process.stdout is not None
    late = threading.Timer(20, process.kill)
    late.start()
    with process.stdout:
        text = process.stdout.read()
    process.wait()
    late.cancel()
    return text


def write_events(repo: Path, events: Sequence[Event]) -> None:
    """Append events to the repository's journal, as a coordinator does."""
    with Journal.open(journal_path(find_repository(repo).common_dir)) as journal:
        journal.append(events)


def write_log(repo: Path, name: str, data: bytes, *, session: int = 1, run: str = RUN) -> Path:
    """Append to the log of one of a story's sessions."""
    path = autopilot_dir(find_repository(repo).common_dir) / "runs" / run / name / f"{session}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        log.write(data)
    return path


@contextmanager
def coordinator(repo: Path, run: str = RUN) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold the repository's lease, as a coordinator does."""
    common = find_repository(repo).common_dir
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(common), run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()
