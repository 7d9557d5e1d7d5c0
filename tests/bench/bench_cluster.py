"""Stories on a cluster beside what their sessions alone would take: 200 of one second, 4 workers of 2 slots.

The time is that from the first placing to the last result, to the ideal of as many slots that never wait. The
gate is 1.15. All workers are on this machine, which also pays for four clones and for the coordinator: with
fewer cores than slots the ratio says more about the machine than about the cluster. `bench_cluster N` takes
another number of stories.
"""

import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from tests.acceptance.program import commit_stories, run, write_story
from tests.bench import record
from tests.cluster.machines import moments
from tests.conftest import begin_repository

STORIES, WORKERS, SLOTS, SECONDS = 200, 4, 2, 1.0
GATE = 1.15


def main() -> bool:
    """Measure and print; False when the gate is missed."""
    count = next((int(each) for each in sys.argv[1:] if each.isdigit()), STORIES)
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder:
        repo = Path(folder) / "repo"
        begin_repository(repo)
        for number in range(count):
            name = f"s{number:03}"
            write_story(repo, name, command=f"sleep {SECONDS}; echo {number} > {name}")
        commit_stories(repo)
        flags = ("--cluster", f"local:{WORKERS}", f"--max-stories={SLOTS}", "--window", "fixed")
        ran = run(repo, *flags, env={"XDG_DATA_HOME": str(Path(folder) / "share")}, limit=1800.0)
        if ran.code != 0:
            raise RuntimeError(ran.err[-2000:])
        placed, finished = moments(repo, "StoryPlaced"), moments(repo, "StoryFinished")
    ideal = count * SECONDS / (WORKERS * SLOTS)
    took = max(finished) - min(placed)
    longest = max((later - earlier for earlier, later in pairwise(sorted(finished))), default=0.0)
    sys.stdout.write(f"{count} stories in {took:.1f} s, ideal {ideal:.1f} s, longest pause {longest:.1f} s\n")
    record.compare("cluster", f"{count} stories on {WORKERS} workers / ideal", [took / ideal], GATE)
    return took / ideal <= GATE


if __name__ == "__main__":
    sys.exit(not main())
