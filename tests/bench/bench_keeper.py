"""What a keeper costs: `/bin/true` started and run through it, beside trio and `subprocess` alone.

`start` is until the program runs, `run` until it is known to have ended. The ways take turns, so that
what else the machine does falls on all of them alike.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from isolation.keeper.client import Keeper, open_keeper
from isolation.model import SessionSpec
from tests.bench import record

ROUNDS = 200
PROGRAM = "/bin/true"

Timing = tuple[float, float]


async def through_keeper(keeper: Keeper, spec: SessionSpec) -> Timing:
    """Time one session."""
    begun = time.perf_counter()
    async with keeper.start(spec) as session:
        started = time.perf_counter()
        while await session.receive():
            pass
        await session.wait()
        ended = time.perf_counter()
    return started - begun, ended - begun


async def through_trio(environment: dict[str, str]) -> Timing:
    """Time one `trio.Process` with captured output."""
    begun = time.perf_counter()
    process = await trio.lowlevel.open_process(
        [PROGRAM], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    started = time.perf_counter()
    assert process.stdout is not None
    async with process.stdout as output:
        while await output.receive_some():
            pass
    await process.wait()
    return started - begun, time.perf_counter() - begun


async def through_popen(environment: dict[str, str]) -> Timing:
    """Time one `subprocess.Popen`, blocking."""
    begun = time.perf_counter()
    process = subprocess.Popen(  # noqa: ASYNC220  the blocking call is what is measured
        [PROGRAM], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    started = time.perf_counter()
    process.communicate()
    return started - begun, time.perf_counter() - begun


async def measure(rounds: int = ROUNDS) -> dict[str, Timing]:
    """Return the median seconds to start and to run, by each way."""
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prompt = folder / "prompt"
        prompt.touch()
        spec = SessionSpec(argv=(PROGRAM,), cwd=folder, env=environment, prompt=prompt)
        async with open_keeper(alive_lock=folder / "alive.lock") as keeper:
            ways: dict[str, Callable[[], Awaitable[Timing]]] = {
                "keeper": lambda: through_keeper(keeper, spec),
                "trio": lambda: through_trio(environment),
                "Popen": lambda: through_popen(environment),
            }
            taken: dict[str, list[Timing]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, once in ways.items():
                    taken[way].append(await once())
    return {
        way: (statistics.median(start for start, _ in times), statistics.median(run for _, run in times))
        for way, times in taken.items()
    }


def main() -> None:
    """Print the medians, and the keeper's beside the others'."""
    medians = trio.run(measure)
    lines = [f"{'':8}{'start':>10}{'run':>10}"]
    lines += [f"{way:8}{start * 1e3:7.2f} ms{run * 1e3:7.2f} ms" for way, (start, run) in medians.items()]
    for way in ("trio", "Popen"):
        for kind, mine, other in zip(("start", "run"), medians["keeper"], medians[way], strict=True):
            record.compare("keeper", f"{kind} / {way}", [mine / other])
            lines.append(f"keeper - {way}, {kind}: {(mine - other) * 1e3:+.2f} ms, ratio {mine / other:.2f}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
