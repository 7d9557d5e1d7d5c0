"""The workers of `local:N`: processes of this program under the run's keeper, so that they end with it."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from isolation.git.repository import scrubbed
from isolation.keeper.client import Keeper
from isolation.model import SessionSpec
from runner.core.text.screen import LineTail
from runner.remote.cluster.wire.messages import ClusterError
from runner.run.control.launch import program_command

GRACE_SECONDS = 5.0


@asynccontextmanager
async def local_workers(keeper: Keeper, address: str, count: int, folder: Path) -> AsyncIterator[None]:
    """Run so many workers for the time of the block; each has a folder and a clone of its own."""
    with tempfile.NamedTemporaryFile(prefix="autopilot-multi-worker-") as nothing:
        async with trio.open_nursery() as nursery:
            for number in range(1, count + 1):
                name = f"local-{number}"
                options = ("--name", name, "--folder", str(folder / name), "--quiet")
                spec = SessionSpec(
                    argv=(*program_command(), "worker", address, *options),
                    cwd=folder.parent,
                    env=scrubbed(os.environ),
                    prompt=Path(nothing.name),
                )
                nursery.start_soon(_keep, keeper, spec, name)
            yield
            nursery.cancel_scope.cancel()


async def _keep(keeper: Keeper, spec: SessionSpec, name: str) -> None:
    """Keep one worker running; one that was killed is started again, one that cannot start ends the run."""
    while True:
        tail, begun = LineTail(), trio.current_time()
        async with keeper.start(spec) as session:
            while chunk := await session.receive():
                tail.feed(chunk)
            code = (await session.wait()).returncode
        if code > 0 and trio.current_time() < begun + GRACE_SECONDS:
            raise ClusterError(
                f"worker {name} ended with exit code {code}: {tail.line}",
                hint="`autopilot-multi worker ADDRESS` shows more.",
            )
