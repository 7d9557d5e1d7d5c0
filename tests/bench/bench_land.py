"""100 stories that land together: four are red only in company (two pairs), ten pairs conflict.

Gates: verify runs whose answers count at most 1.5 x log2 C(100, 4) + 4, that is 37; wall time with four slots
at most 0.35 of landing one by one, which is what landing a single story took, times the stories that are
left; the start of the program does not count. Everything that can be on main is there. The time with one slot
is printed for comparison.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.acceptance.program import command
from tests.bench import record
from tests.bench.bench_schedule import GENEROUS
from tests.conftest import git

STORIES, CONFLICTS, SLOTS = 100, 10, 4
MOST_RUNS = math.ceil(1.5 * math.log2(math.comb(STORIES, 4)) + 4)
MOST_TIME = 0.35
PAIRS = ((21, 77), (48, 71))


def main() -> bool:
    """Measure and print; False when a gate is missed."""
    with tempfile.TemporaryDirectory() as folder:
        repo = Path(folder) / "repo"
        _prepare(repo)
        start, _ = _timed(repo, "land", "s000", "--dry-run", "--json")
        alone, _ = _timed(repo, "land", "s000", "--json")
        one_slot, slow = _timed(repo, "land", "--json", slots=1)
        _timed(repo, "undo", "--yes", "--json")
        together, data = _timed(repo, "land", "--json")
    ahead = data["unused_runs"] + data["canceled_runs"]
    runs, landed = data["verify_runs"], len(data["landed"]) + 1
    single = alone - start
    ratio = (together - start) / (single * (STORIES - 1))
    record.compare("land", f"{STORIES} together / one by one", [ratio], MOST_TIME)
    print(  # noqa: T201  a benchmark prints
        f"land: {STORIES} stories, {CONFLICTS} conflicting pairs, 4 red only in company: {landed} landed in "
        f"{together:.1f} s with {SLOTS} slots and {runs} verify runs (gate {MOST_RUNS}; {ahead} more ahead); "
        f"one slot {one_slot:.1f} s, one by one {single * STORIES:.1f} s, "
        f"ratio {ratio:.3f} (gate {MOST_TIME})"
    )
    complete = landed == STORIES - CONFLICTS - len(PAIRS) and data["landed"] == slow["landed"]
    return complete and runs <= MOST_RUNS and ratio <= MOST_TIME


def _prepare(repo: Path) -> None:
    """Run the backlog, so that every story is done."""
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    for key, value in (("user.name", "bench"), ("user.email", "bench@localhost")):
        git(repo, "config", key, value)
    red = "".join(f"test -e s{one:03} && test -e s{two:03} && exit 1; " for one, two in PAIRS)
    settings = f"verify = ['sleep 1; {red}true']\nwindow = 'fixed'\n{GENEROUS}"
    (repo / "autopilot-multi.toml").write_text(settings)
    (repo / "stories").mkdir()
    for number in range(STORIES):
        name = f"s{number:03}"
        shared = f"; echo {name} > shared-{number // 2}" if number >= STORIES - 2 * CONFLICTS else ""
        text = f"---\ncommand: echo x > {name}{shared}\n---\nx\n"
        (repo / "stories" / f"{name}.md").write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "stories")
    subprocess.run(command("--max-stories=16", "-q"), cwd=repo, check=True, stdout=subprocess.DEVNULL)


def _timed(repo: Path, *args: str, slots: int = SLOTS) -> tuple[float, dict[str, Any]]:
    env = {**os.environ, "AUTOPILOT_MULTI_MAX_STORIES": str(slots)}
    began = time.monotonic()
    ran = subprocess.run(command(*args), cwd=repo, check=False, capture_output=True, env=env)
    took = time.monotonic() - began
    data: dict[str, Any] = json.loads(ran.stdout)["data"]
    return took, data


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
