"""A real control group with a memory limit, and the program run inside it on stories that take memory."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from tests.acceptance.program import Ran, wait_until, write_story

MB = 1 << 20
ROOT = Path("/sys/fs/cgroup")
HOG = """
import sys, time
size = int(sys.argv[1])
held = bytearray(size)
for page in range(0, size, 4096):
    held[page] = 1
time.sleep(float(sys.argv[2]))
print("done", file=open(sys.argv[3], "w"))
"""
# The program as a user starts it, but with looks at the machine that come as often as a test needs.
_BOOT = """
import sys
from runner.run import window as window_keeper
from runner.__main__ import main
window_keeper.TICK_SECONDS = float(sys.argv.pop(1))
sys.exit(main())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A control group with a limit; `kills_file` is where the kernel counts its kills for lack of memory."""

    folder: Path
    kills_file: str

    @property
    def kills(self) -> int:
        """How often the kernel has killed in here."""
        words = (self.folder / self.kills_file).read_text().split()
        return int(words[words.index("oom_kill") + 1])

    def run(self, cwd: Path, *arguments: str, tick: float) -> Ran:
        """Run the program inside the group, to its end."""
        enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        program = [sys.executable, "-c", _BOOT, str(tick), *arguments]
        done = subprocess.run(
            ["sh", "-c", enter, str(self.folder), *program],
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


@contextmanager
def memory_group(limit: int) -> Iterator[Group]:
    """Make a group that may hold `limit` bytes and no swap; skip the test where that cannot be done."""
    try:
        group = _made(limit)
    except OSError as error:
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    try:
        yield group
    finally:
        wait_until(lambda: _removed(group.folder), what="the control group is empty")


def _made(limit: int) -> Group:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    names = {line.split(":")[1]: line.split(":", 2)[2] for line in lines}
    name = f"autopilot-test-{os.getpid()}"
    if "memory" in names:
        folder = ROOT / "memory" / names["memory"].lstrip("/") / name
        _make(folder, ("memory.limit_in_bytes", limit), swap=("memory.memsw.limit_in_bytes", limit))
        return Group(folder=folder, kills_file="memory.oom_control")
    own = PurePosixPath(names[""].lstrip("/"))
    # A group that holds processes cannot have limited children, so the new one stands beside ours.
    for parent in (ROOT / part for part in own.parents or (own,)):
        if "memory" in (parent / "cgroup.subtree_control").read_text().split():
            _make(parent / name, ("memory.max", limit), swap=("memory.swap.max", 0))
            return Group(folder=parent / name, kills_file="memory.events")
    raise OSError("no group above this process hands the memory controller down")


def _make(folder: Path, memory: tuple[str, int], *, swap: tuple[str, int]) -> None:
    folder.mkdir()
    try:
        (folder / memory[0]).write_text(str(memory[1]))
        if (folder / swap[0]).exists():  # else the kernel does not count swap, or has none
            (folder / swap[0]).write_text(str(swap[1]))
    except OSError:
        folder.rmdir()
        raise


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def write_hog(
    repo: Path, name: str, *, size: int, seconds: float, after: str = "", when: Path | None = None
) -> None:
    """Write a story that takes `size` bytes, page by page, and holds them for a while.

    It fails as long as there is no file `when`.
    """
    hog = shlex.join([sys.executable, "-S", "-c", HOG, str(size), str(seconds), f"{name}.txt"])
    command = f"test -f {when} && exec {hog}" if when else f"exec {hog}"
    write_story(repo, name, command=command, depends_on=[after] if after else [])


def told(ran: Ran, group: Group) -> str:
    """Say how a run came out."""
    data = json.loads(ran.out)["data"]
    spans = [(story["started_at"], story["ended_at"]) for story in data["stories"] if story["started_at"]]
    most = max(sum(1 for begin, end in spans if begin <= moment < end) for moment, _ in spans)
    sessions = sum(story["sessions"] for story in data["stories"])
    counts = {name: number for name, number in data["counts"].items() if number}
    return f"{counts}, {sessions} sessions, at most {most} at once, the kernel killed {group.kills}"
