"""What aggregating costs: a thousand state files collected, beside reading their bytes and splitting lines.

Three dialects in equal parts, with the history that real files have. `again` is the second look of a
live status, which reads only what changed. The ways take turns, so that what else the machine does
falls on all of them alike; the best round of each counts.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from runner.flows.state.aggregate import Row, aggregate_markdown
from runner.flows.state.disk.collection import Cache, collect
from runner.flows.state.model import (
    CompletedRow,
    Dialect,
    LastSession,
    Phase,
    Position,
    RetryRow,
    StateFile,
    StepStatus,
)
from runner.flows.state.writing import new_state, render
from tests.bench import record

FILES = 1000
ROUNDS = 15
LIMIT = 3.0


def sample(number: int) -> StateFile:
    """Return one story's state; every third one is rich."""
    dialect = list(Dialect)[number % 3]
    state = replace(new_state(dialect), name="Plan", status=StepStatus.IN_PROGRESS, retry_count=number % 3)
    if dialect is Dialect.AUTODEV:
        return replace(
            state, step="3", sub_step=Phase(phase=number % 9, name="batch-loop", detail=f"batch {number}")
        )
    state = replace(state, step="3", sub_step=Position(text=f"{number % 9} — Architecture Review"))
    if dialect is Dialect.POINTER:
        return state
    done = (("0", "Problem"), ("1", "Research"), ("2", "Plan"))
    rows = (
        CompletedRow(step=step, name=name, completed="2026-04-20", outcome=f"{number} pages")
        for step, name in done
    )
    log = RetryRow(
        attempt="1",
        step="3",
        name="Plan",
        sub_step="4",
        reason="docker is not running",
        timestamp="2026-04-22T10:00Z",
    )
    return replace(
        state,
        completed=tuple(rows),
        decisions=("Tech stack: Python and Postgres", "One worktree a story"),
        last_session=LastSession(
            date="2026-04-22", ended_at="Step 2 Plan", reason="session boundary", notes="ready"
        ),
        retry_log=(log,),
        blockers=("The licence is missing",),
    )


def write_files(folder: Path) -> list[Path]:
    """Put the files on disk, long unchanged."""
    paths = []
    for number in range(FILES):
        path = folder / f"{number}" / "_state.md"
        path.parent.mkdir()
        path.write_bytes(render(sample(number)).encode())
        os.utime(path, (1, 1))
        paths.append(path)
    return paths


def split(paths: list[Path]) -> int:
    """Read every file's bytes and split them into lines: what nobody can do without."""
    return sum(len(path.read_bytes().decode().splitlines()) for path in paths)


def page(paths: list[Path], cache: Cache | None = None) -> str:
    """Make the aggregated page."""
    found = collect(paths, cache=cache)
    assert all(item.state for item in found)
    return aggregate_markdown(Row(story=item.path.parent.name, found=item) for item in found)


def measure() -> dict[str, float]:
    """Return the best seconds of each way."""
    with tempfile.TemporaryDirectory() as name:
        paths = write_files(Path(name))
        cache: Cache = {}
        collect(paths, cache=cache)
        ways: dict[str, Callable[[], object]] = {
            "split": lambda: split(paths),
            "collect": lambda: collect(paths),
            "again": lambda: collect(paths, cache=cache),
            "page": lambda: page(paths),
        }
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for way, once in ways.items():
                begun = time.perf_counter()
                once()
                best[way] = min(best[way], time.perf_counter() - begun)
    return best


def main() -> bool:
    """Print the times and their ratio to reading and splitting; tell whether it is within the limit."""
    best = measure()
    lines = [
        f"{way:8}{seconds * 1e3:8.1f} ms  ratio {seconds / best['split']:.2f}"
        for way, seconds in best.items()
    ]
    ratio = best["collect"] / best["split"]
    record.compare("state", f"{FILES} files collected / read and split", [ratio], LIMIT)
    verdict = "ok" if ratio <= LIMIT else "too slow"
    lines.append(f"{FILES} state files collected / read and split: {ratio:.2f}, at most {LIMIT:g}: {verdict}")
    sys.stdout.write("\n".join(lines) + "\n")
    return ratio <= LIMIT


if __name__ == "__main__":
    main()
