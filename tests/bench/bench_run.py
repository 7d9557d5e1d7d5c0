"""30 stories of 100 ms, window 3: the whole program beside GNU parallel in ready-made worktrees.

The ideal is 1.0 s of work. Workspace time is what plain git needs to add and remove 30 worktrees one
after another, measured in the same run; the gate is 1.25 times (ideal + workspace time).
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.program import command, write_story
from tests.conftest import git

STORIES, WINDOW, SECONDS = 30, 3, 0.1
GATE = 1.25


def main() -> bool:
    """Measure and print; False when the gate is missed."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "repo"
        root.mkdir()
        _prepare(root)
        ideal = STORIES * SECONDS / WINDOW
        workspace = _timed(lambda: _plain_worktrees(root))
        parallel = _timed(lambda: _parallel(root)) if shutil.which("parallel") else None
        ours = _timed(lambda: _program(root))
    ratio = ours / (ideal + workspace)
    peer = f"{parallel:.2f} s" if parallel is not None else "not installed"
    print(  # noqa: T201  a benchmark prints
        f"run: 30 stories of 100 ms, window 3: {ours:.2f} s; "
        f"ideal {ideal:.2f} s + worktrees {workspace:.2f} s; "
        f"ratio {ratio:.2f} (gate {GATE}); GNU parallel in ready-made worktrees: {peer}"
    )
    return ratio <= GATE


def _prepare(root: Path) -> None:
    git(root, "init", "-q", "-b", "main")
    for name, value in (("user.name", "Bench"), ("user.email", "bench@example.com")):
        git(root, "config", name, value)
    for number in range(STORIES):
        write_story(root, f"s{number:02}", command=f"sleep {SECONDS}; echo x > s{number}.txt")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")


def _program(root: Path) -> None:
    subprocess.run(command(f"--max-stories={WINDOW}", "-q"), cwd=root, check=True, stdout=subprocess.DEVNULL)


def _plain_worktrees(root: Path) -> None:
    """Add and remove as many worktrees with plain git, which fails when two do it at once."""
    for number in range(STORIES):
        path = str(root.parent / f"plain-{number}")
        git(root, "worktree", "add", "-q", "-b", f"plain-{number}", path)
        git(root, "worktree", "remove", path)


def _parallel(root: Path) -> None:
    trees = root.parent / "ready"
    if not trees.exists():
        for number in range(STORIES):
            git(root, "worktree", "add", "-q", "--detach", str(trees / str(number)))
    line = f"cd {trees}/{{}} && sleep {SECONDS} && echo x > x.txt && git add -A && git commit -q -m x"
    numbers = [str(number) for number in range(STORIES)]
    subprocess.run(["parallel", f"-j{WINDOW}", line, ":::", *numbers], check=True, stderr=subprocess.DEVNULL)


def _timed(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
