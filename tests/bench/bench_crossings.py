"""How often control crosses from one module to another while one trivial story runs.

A story of one command and one verify command runs in a real repository, from `start_run` to the end of the
program: once without and once with the check of the base, which is a session of its own. Counted are the
calls, also those that resume a coroutine, whose module differs from that of the nearest caller in these
packages. The number varies by a few percent, since a wait may or may not be needed.
"""

import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

from tests.acceptance.program import write_story
from tests.conftest import git

ROOT = Path(__file__).parents[2]
PACKAGES = ("runner", "isolation")
FIRST = "start_run"
INSIDE = "--inside"


class Crossings:
    """Counts crossings from the first call of `FIRST` on, in every thread."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.modules: set[str] = set()
        self._began = False

    def __call__(self, frame: FrameType, event: str, _value: object) -> None:
        """Take note of one event of the interpreter's profiler."""
        module = _module(frame)
        name = frame.f_code.co_name
        if event != "call" or not module or name == "<module>":
            return
        self._began = self._began or name == FIRST
        if not self._began:
            return
        self.modules.add(module)
        caller = frame.f_back
        while caller is not None and not _module(caller):
            caller = caller.f_back
        if caller is not None and _module(caller) != module:
            self.pairs[_module(caller), f"{module}.{name}"] += 1


def _module(frame: FrameType) -> str:
    """Return the module of a frame; empty for one that is not ours."""
    name: str = frame.f_globals.get("__name__", "")
    return name if name.partition(".")[0] in PACKAGES else ""


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "repo")
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        for name, value in (("user.name", "Bench"), ("user.email", "bench@example.com")):
            git(root, "config", name, value)
        write_story(root, "a", command="echo x > x.txt", verify=["true"])
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "first")
        for variant in (["--no-base-check"], ["--again"]):
            done = subprocess.run(
                [sys.executable, "-m", "tests.bench.bench_crossings", INSIDE, "--max-stories=1", *variant],
                cwd=root,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                check=True,
                capture_output=True,
                text=True,
            )
            what = "without" if variant == ["--no-base-check"] else "with"
            counted = done.stdout[done.stdout.index("crossings:") :]
            sys.stdout.write(f"{what} a check of the base, {counted}")


def inside(arguments: list[str]) -> None:
    """Run the program in this process, and print what was counted."""
    from runner.cli.main import run_program

    crossings = Crossings()
    threading.setprofile(crossings)
    sys.setprofile(crossings)
    try:
        code = run_program(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    total = crossings.pairs.total()
    sys.stdout.write(f"crossings: {total} between {len(crossings.modules)} modules for one trivial story\n")
    if os.environ.get("CROSSINGS_SHOWN"):
        for (caller, called), count in crossings.pairs.most_common(int(os.environ["CROSSINGS_SHOWN"])):
            sys.stdout.write(f"{count:6} {caller} -> {called}\n")
    sys.exit(code)


if __name__ == "__main__":
    if INSIDE in sys.argv:
        inside(sys.argv[2:])
    else:
        main()
