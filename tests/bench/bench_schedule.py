"""200 stories that depend on each other, window 12: the run beside an ideal scheduler of the same backlog.

The ideal one knows every duration, starts the critical path first whenever a place is free, and needs no
time for anything else; the gate is 1.1 times its makespan. No scheduler can be faster than the lower
bound, the critical path or all work spread over the window. What the ideal one would need in the order of
the ids is printed beside it. The graph is random, from a seed that is printed and may be given.
"""

import heapq
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from runner.core.model import Story, StoryId
from runner.core.schedule.graph import critical_path, ordered
from tests.acceptance.program import command
from tests.bench import record
from tests.conftest import git

STORIES, WINDOW = 200, 12
GATE = 1.1
SECONDS_A_MINUTE = 60
# The machine's tier is not what is measured.
GENEROUS = """
[tiers]
green = { memory-gb = 0, swap-gb = 999999 }
warn = { memory-gb = 0, swap-gb = 999999 }
degraded = { memory-gb = 0, swap-gb = 999999 }
"""


def main(seed: int | None = None) -> bool:
    """Measure and print; False when the gate is missed."""
    seed = random.SystemRandom().randrange(1 << 20) if seed is None else seed
    backlog = _backlog(random.Random(seed))  # noqa: S311  a graph, not a secret
    seconds = {story.id: (story.estimate or 0) * SECONDS_A_MINUTE for story in backlog}
    path = max(critical_path(backlog, seconds).values())
    bound = max(path, sum(seconds.values()) / WINDOW)
    ideal = _makespan(ordered(backlog, seconds), seconds)
    plain = _makespan(sorted(backlog, key=lambda story: story.id), seconds)
    with tempfile.TemporaryDirectory() as folder:
        took = _program(Path(folder) / "repo", backlog, seconds)
    print(  # noqa: T201  a benchmark prints
        f"schedule: {STORIES} stories, window {WINDOW}, seed {seed}: {took:.1f} s; "
        f"ideal list scheduler {ideal:.1f} s, by id {plain:.1f} s, lower bound {bound:.1f} s "
        f"(critical path {path:.1f} s); ratio {took / ideal:.3f} (gate {GATE})"
    )
    record.compare("schedule", "run / ideal schedule", [took / ideal], GATE)
    return took / ideal <= GATE


def _backlog(chance: random.Random) -> list[Story]:
    """Draw stories of 0.5 to 8 s; most wait for one or two that were drawn shortly before them."""
    names = [StoryId(f"s{number:03}") for number in chance.sample(range(STORIES), STORIES)]
    stories = []
    for place, name in enumerate(names):
        near = names[max(0, place - 60) : place]
        needs = chance.sample(near, min(len(near), chance.choice((0, 0, 1, 1, 1, 2))))
        minutes = round(chance.triangular(0.5, 8, 0.5), 2) / SECONDS_A_MINUTE
        stories.append(
            Story(id=name, title=name, prompt="", estimate=minutes, depends_on=tuple(sorted(needs)))
        )
    return stories


def _makespan(order: Sequence[Story], seconds: Mapping[StoryId, float]) -> float:
    """Return what a scheduler without any overhead needs: a free place goes to the first that is ready."""
    waiting, over, now = list(order), set[StoryId](), 0.0
    running: list[tuple[float, StoryId]] = []
    while waiting or running:
        for story in [story for story in waiting if over.issuperset(story.depends_on)]:
            if len(running) < WINDOW:
                heapq.heappush(running, (now + seconds[story.id], story.id))
                waiting.remove(story)
        now, ended = heapq.heappop(running)
        over.add(ended)
    return now


def _program(root: Path, backlog: Sequence[Story], seconds: Mapping[StoryId, float]) -> float:
    """Run the backlog for real, and give the seconds from the run's first record to its last."""
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for name, value in (("user.name", "Bench"), ("user.email", "bench@example.com")):
        git(root, "config", name, value)
    entries = [
        {
            "id": story.id,
            "command": f"sleep {seconds[story.id]:.2f}; echo x > {story.id}.txt",
            "estimate": story.estimate,
            "depends_on": list(story.depends_on),
        }
        for story in backlog
    ]
    # One file: how long 200 worktrees with 200 files each take is not what is measured.
    (root / "stories").mkdir()
    (root / "stories" / "backlog.json").write_text(json.dumps({"stories": entries}))
    (root / "autopilot-multi.toml").write_text(GENEROUS)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    done = subprocess.run(
        command(f"--max-stories={WINDOW}", "-q", "--json"), cwd=root, check=True, capture_output=True
    )
    data = json.loads(done.stdout)["data"]
    began, ended = (datetime.fromisoformat(data[name]) for name in ("started_at", "ended_at"))
    return (ended - began).total_seconds()


if __name__ == "__main__":
    sys.exit(0 if main(*map(int, sys.argv[1:2])) else 1)
