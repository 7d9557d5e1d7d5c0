"""Run a real sample in a throw-away repository: six stories, three at once, real git, real processes.

Shows a dependency, a retry that passes, a failure, a story that is skipped because of it, and a
background process that is ended. The repository is kept, so that you can look around in it.
"""

import argparse
import shlex
import tempfile
from importlib import resources
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi demo"
EXPECTED_EXIT = 4
SHOWN = """
what you saw:
  1-greeting and 3-second-try ran at once, each in a worktree of its own
  2-translation waited for 1-greeting and started from its commit
  3-second-try failed its verify command once; the output went into the next prompt, and it passed
  4-hopeless failed all four attempts; its worktree is kept
  5-never-started was skipped because of 4-hopeless
  6-daemon left a process behind, which is dead"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `demo`."""
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Make the repository, run the program in it, and tell what was shown."""
    from isolation.git.repository import init_repository
    from runner.cli.main import run_program

    home = Path(tempfile.mkdtemp(prefix="autopilot-multi-demo-")) / "repository"
    init_repository(home)
    stories = home / "stories"
    stories.mkdir()
    for file in resources.files("runner").joinpath("data", "demo_stories").iterdir():
        (stories / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    output.say(f"$ cd {home}\n$ autopilot-multi --max-stories=3\n")
    argv = ["run", "-C", str(home), "--max-stories=3"]
    argv += [flag for flag, given in (("--json", arguments.json), ("-q", arguments.quiet)) if given]
    code = run_program(argv)
    output.say(SHOWN)
    output.say(f"\nthe run's own exit code was {code} (4: some stories failed, as they should)")
    output.say(f"look around: cd {shlex.quote(str(home))} && git log --oneline --all --graph")
    return 0 if code == EXPECTED_EXIT else 1
