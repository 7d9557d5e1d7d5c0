"""The page of `run --web`: a process of its own beside the run, which ends with it."""

import argparse
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.cli.output import Output

START_SECONDS = 10.0
_POLL_SECONDS = 0.05


@contextmanager
def page_beside(arguments: argparse.Namespace, output: Output) -> Iterator[None]:
    """Serve the page during the run, if asked; one that cannot start does not stop the run."""
    if not arguments.web:
        yield
        return
    from isolation.paths import find_repository
    from runner.run.control.launch import launch
    from runner.serve.web.access.address import read_address

    directory = Path(arguments.directory)
    started = launch(directory, ["web", "--while", str(os.getpid())])
    common_dir = find_repository(directory).common_dir
    deadline = time.monotonic() + START_SECONDS
    address = None
    while started.alive and time.monotonic() < deadline:
        found = read_address(common_dir)
        if found is not None and found.pid == started.pid:
            address = found
            break
        time.sleep(_POLL_SECONDS)
    if address is None:
        output.warn(f"the page has not started; see {started.log}")
    else:
        output.say(f"page: {address.url}")
    try:
        yield
    finally:
        with suppress(OSError):
            os.kill(started.pid, signal.SIGTERM)
