"""The process of `autopilot-multi worker`: a Dask worker without threads for tasks, with our preload."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from runner.remote.cluster.wire.messages import ClusterError
from runner.remote.cluster.worker.preload import FOLDER, LABELS, SLOTS

if TYPE_CHECKING:
    from distributed import Security

CONNECT_SECONDS = 60


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """What a worker was started with."""

    address: str
    security: "Security | None"
    name: str = ""
    slots: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    folder: str = ""


def serve(options: WorkerOptions, say: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    os.environ[SLOTS] = str(options.slots)
    os.environ[LABELS] = ",".join(options.labels)
    if options.folder:
        os.environ[FOLDER] = options.folder
    return asyncio.run(_serve(options, say))


async def _serve(options: WorkerOptions, say: Callable[[str], None]) -> int:
    from distributed import Worker

    name = options.name or f"{socket.gethostname()}-{os.getpid()}"
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    try:
        worker = await Worker(
            options.address,
            name=name,
            nthreads=1,
            memory_limit=0,  # sessions are not Dask's; their memory is watched by the run's settings
            resources=dict(options.resources),
            preload=["runner.remote.cluster.worker.preload"],
            security=options.security,
            death_timeout=CONNECT_SECONDS,
        )
    except (OSError, TimeoutError, RuntimeError) as error:
        reason = str(error.__cause__ or error) or "nothing answers there"
        raise ClusterError(
            f"cannot join the cluster at {options.address}: {reason}",
            hint="does its scheduler run there, and has this machine the certificates of "
            "`autopilot-multi cluster init`?",
        ) from error
    say(f"worker {name} waits for stories at {options.address}; Ctrl-C ends it")
    finished = asyncio.ensure_future(worker.finished())
    waiting = [asyncio.ensure_future(ended.wait()), finished]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if ended.is_set():
        say("ending its sessions; their stories start again elsewhere")
    await worker.close(reason="autopilot-multi worker ends")
    for task in waiting:
        task.cancel()
    return 0
