"""Let an agent or an editor drive the runner: a server for the Model Context Protocol.

It speaks on standard input and output, so its client starts it: see `docs/how-to/drive-it-from-an-agent.md`.
Its tools plan, start and follow runs, answer questions, add stories and land. What would ask for your
agreement at a terminal is refused; only you can agree, with `autopilot-multi trust`.
"""

import argparse
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi mcp -C ~/projects/shop"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `mcp`."""
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Serve until the client closes the input."""
    from isolation.paths import find_repository
    from runner.serve.mcp.server import serve

    directory = Path(arguments.directory).absolute()
    find_repository(directory)  # outside of a repository, it says so at the start
    output.say("an MCP server for the program that has started it; Ctrl-C ends it")
    serve(directory)
    return 0
