"""What a long past costs: `status` and `history` after 1,000 runs, beside the same after ten.

The past is made from one real run of the program, repeated in the journal and the records under other ids.
All commands take turns, and their processor time counts: it has less noise than the clock.
"""

import os
import re
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.acceptance.program import command, write_story
from tests.bench import record
from tests.conftest import begin_repository

FEW, MANY = 10, 1000
ROUNDS = 15
LIMIT = 1.5
STORIES = 5
_ENVIRONMENT = {"AUTOPILOT_MULTI_TRUST": "always"}


def repeat_run(repo: Path, times: int) -> None:
    """Repeat the one run that a repository has, in its journal and its records."""
    journal = repo / ".git" / "autopilot" / "journal.db"
    records = repo / ".orchestrator" / "metrics" / "autopilot.jsonl"
    lines = records.read_text()
    with sqlite3.connect(journal) as connection:
        ((run_id,),) = connection.execute("SELECT DISTINCT run_id FROM events").fetchall()
        rows = connection.execute("SELECT at, kind, story_id, data FROM events ORDER BY seq").fetchall()
        texts = []
        for number in range(1, times):
            # One minute later each, so that the order is that of the numbers.
            name, later = f"{run_id}-{number:05}", 60.0 * number
            insert = "INSERT INTO events (run_id, at, kind, story_id, data) VALUES (?, ?, ?, ?, ?)"
            copies = [
                (name, at + later, kind, story, data.replace(run_id, name)) for at, kind, story, data in rows
            ]
            connection.executemany(insert, copies)
            texts.append(re.sub(r"(\d{4})-(\d\d)-(\d\d)T", _moved(number), lines.replace(run_id, name)))
    connection.close()
    records.write_text(lines + "".join(texts))


def _moved(days: int) -> str:
    year, rest = divmod(days, 336)
    month, day = divmod(rest, 28)
    return f"{2030 + year}-{month + 1:02}-{day + 1:02}T"


def make(root: Path, runs: int) -> Path:
    """Make a repository with that many runs."""
    begin_repository(root)
    for number in range(STORIES):
        write_story(root, f"s{number}", command=f"echo {number} > f{number}", verify=["true"])
    subprocess.run(command("-q"), cwd=root, check=True, env={**os.environ, **_ENVIRONMENT})
    repeat_run(root, runs)
    return root


def measure(folder: Path) -> dict[str, float]:
    """Return the median seconds of processor time of each command in each repository."""
    repos = {runs: make(folder / str(runs), runs) for runs in (FEW, MANY)}
    cases = {f"{name} {runs}": (name, repo) for name in ("status", "history") for runs, repo in repos.items()}
    taken: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(ROUNDS):
        for case, (name, repo) in cases.items():
            before = _worked()
            subprocess.run(command(name), cwd=repo, check=True, capture_output=True)
            taken[case].append(_worked() - before)
    return {case: statistics.median(times) for case, times in taken.items()}


def _worked() -> float:
    """Return the processor time of all programs so far that were started from here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> bool:
    """Print the times and their ratios; return whether they are within the limit."""
    with tempfile.TemporaryDirectory() as folder:
        median = measure(Path(folder))
    ratios = {name: median[f"{name} {MANY}"] / median[f"{name} {FEW}"] for name in ("status", "history")}
    said = ", ".join(
        f"{name} {median[f'{name} {FEW}'] * 1e3:.0f} and {median[f'{name} {MANY}'] * 1e3:.0f} ms, "
        f"ratio {ratio:.2f}"
        for name, ratio in ratios.items()
    )
    for name, ratio in ratios.items():
        record.compare("many runs", f"{name} after {MANY} / after {FEW}", [ratio], LIMIT)
    print(f"after {FEW} and {MANY} runs: {said} (gate {LIMIT:g})")  # noqa: T201  a benchmark prints
    return max(ratios.values()) <= LIMIT


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
