"""Let a run continue without this terminal: the same command, started as a process of its own."""

import argparse
import time
from pathlib import Path

from isolation.files.lease import read_holder
from isolation.paths import find_repository, journal_path
from runner.cli.output import Output
from runner.core.errors import JournalError, NotFoundError, SystemFaultError
from runner.records.journal import Journal
from runner.run.control.launch import Launched, launch

START_SECONDS = 60.0
_POLL_SECONDS = 0.05
_FLAG = "--detach"


def detach(arguments: argparse.Namespace, output: Output, *, run_id: str = "") -> int:
    """Start the command that was typed again, detached; return once its run is recorded.

    `run_id` is the run that it continues, which may have nothing left to do and end at once.
    """
    directory = Path(arguments.directory).absolute()
    common_dir = find_repository(directory).common_dir
    before = _runs(common_dir)
    launched = launch(directory, _argv(arguments.typed, directory))
    run_id = _wait(common_dir, launched, before, run_id)
    output.document({"run_id": run_id, "pid": launched.pid, "log": str(launched.log)})
    output.answer(f"run {run_id} continues without this terminal (pid {launched.pid})")
    output.say("follow it with `autopilot-multi attach`, end it with `autopilot-multi stop`")
    output.say(f"what it prints is in {launched.log}")
    return 0


def _argv(typed: tuple[str, ...], directory: Path) -> list[str]:
    """Return the command without the flag, wherever it is started."""
    end = typed.index("--") if "--" in typed else len(typed)
    options = [word for word in typed[:end] if word != _FLAG]
    return [*options, "-C", str(directory), *typed[end:]]


def _wait(common_dir: Path, launched: Launched, before: set[str], continued: str) -> str:
    """Return the id of the run that the process has started or `continued`."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        # Look at the process first: one that has just ended has recorded its run.
        alive = launched.alive
        holder = read_holder(common_dir)
        runs = _runs(common_dir)
        if holder is not None and holder.pid == launched.pid and holder.run_id in runs:
            return holder.run_id
        if not alive:
            if new := runs - before:
                return max(new)
            break
        time.sleep(_POLL_SECONDS)
    lines = launched.last_lines().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    if continued and lines and not errors and not launched.alive:
        return continued
    reason = (errors or lines or ["it printed nothing"])[-1].removeprefix("error: ")
    raise SystemFaultError(f"the detached run did not start: {reason}", hint=f"see {launched.log}")


def _runs(common_dir: Path) -> set[str]:
    try:
        with Journal.open_readonly(journal_path(common_dir)) as journal:
            return set(journal.runs())
    except (JournalError, NotFoundError):  # no run yet
        return set()
