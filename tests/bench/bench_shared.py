"""`examples/one-tree`, 40 packages, window 8: all in the one checkout, beside the same in 40 worktrees.

The checkout is grown to 4,000 files, as a small monorepo may have. Nothing is gated but that every story is
done and has its one commit: how the two compare depends on the size of the checkout, and is printed.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.program import command
from tests.bench import record
from tests.bench.disk import journaled
from tests.conftest import git

PACKAGES, FILES, WINDOW = 40, 97, 8
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "one-tree"
WAYS = {
    "40 worktrees": ("--bg-isolation=worktree",),
    "one tree, divert": ("--enforce=divert",),
    "one tree, deny": ("--enforce=deny",),
    "one tree, detect": ("--enforce=detect",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What one way took, in seconds; without a time the machine lacks the level."""

    name: str
    seconds: float | None
    sound: bool


def main() -> bool:
    """Measure and print; False when a story was not done."""
    ways = [_measured(name, flags) for name, flags in WAYS.items()]
    told = ", ".join(
        f"{way.name} {way.seconds:.2f} s" if way.seconds is not None else f"{way.name} is not available"
        for way in ways
    )
    print(f"shared: {PACKAGES} stories, window {WINDOW}, 4000 files: {told}")  # noqa: T201  a benchmark prints
    for way in ways[1:]:
        if way.seconds is None or not ways[0].seconds:
            record.left_out("shared", way.name, "this machine lacks the level")
        else:
            record.compare("shared", f"{way.name} / {ways[0].name}", [way.seconds / ways[0].seconds])
    return all(way.sound for way in ways)


def _measured(name: str, flags: tuple[str, ...]) -> Way:
    with journaled() as folder:
        root = folder / "repo"
        _prepare(root)
        argv = command(f"--max-stories={WINDOW}", "--window=fixed", "-q", "--json", *flags)
        began = time.perf_counter()
        done = subprocess.run(argv, cwd=root, check=False, capture_output=True)
        seconds = time.perf_counter() - began
        document = json.loads(done.stdout)
        if "error" in document and "is not available" in document["error"]["message"]:
            return Way(name=name, seconds=None, sound=True)
        stories = document["data"]["stories"]
        sound = all(story["status"] == "done" and story["commits"] == 1 for story in stories)
    return Way(name=name, seconds=seconds, sound=sound and len(stories) == PACKAGES)


def _prepare(root: Path) -> None:
    subprocess.run([sys.executable, EXAMPLE / "begin.py", root], check=True)
    for package in (root / "packages").iterdir():
        for number in range(FILES):
            (package / f"f{number:02}.txt").write_text(f"{package.name} {number}\n" * 20)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "more files")


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
