"""Run a real sample in a throwaway repository: six stories, up to three in parallel.

It shows a dependency, a retry that passes, a failure, a story that is skipped because of it, and a
background process that gets killed. Then `land` brings the done stories to main, unless with --json. The
repository is kept, so that you can explore it.
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
  1-greeting and 3-second-try ran in parallel, each in its own worktree
  2-translation waited for 1-greeting and started from its commit
  3-second-try failed its verify command once; the next prompt contained the output, and it passed
  4-hopeless failed all four attempts; its worktree is kept
  5-never-started was skipped because 4-hopeless failed
  6-daemon left a background process behind, which was killed"""
LANDED = """
what you saw:
  the branches of the done stories were merged, and their verify commands passed on the result
  only then did main move to it, and the files of the checkout with it"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `demo`."""
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Create the repository, run the program in it, and explain what happened."""
    from isolation.git.repository import init_repository
    from runner.cli.main import run_program

    home = Path(tempfile.mkdtemp(prefix="autopilot-multi-demo-")) / "repository"
    init_repository(home)
    stories = home / "stories"
    stories.mkdir()
    for file in resources.files("runner.cli.commands.setup").joinpath("demo_stories").iterdir():
        (stories / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    output.say(f"$ cd {home}\n$ autopilot-multi --max-stories=3 --trust\n")
    argv = ["run", "-C", str(home), "--max-stories=3", "--trust"]
    switches = {"json": "--json", "quiet": "-q", "verbose": "-v", "no_color": "--no-color"}
    chosen = [flag for name, flag in switches.items() if getattr(arguments, name)]
    argv += chosen
    code = run_program(argv)
    output.say(SHOWN)
    output.say(f"\nthe run exited with code {code} (4 means that some stories failed, as intended)")
    if code == EXPECTED_EXIT and not arguments.json:  # with --json stdout is one document
        output.say("\n$ autopilot-multi land\n")
        code += run_program(["land", "-C", str(home), *chosen])
        output.say(LANDED)
    output.say(f"\nexplore it: cd {shlex.quote(str(home))} && git log --oneline --all --graph")
    return 0 if code == EXPECTED_EXIT else 1
