"""Print a completion script for your shell.

It completes commands, flags, their choices and files, and the ids of your stories and runs.

bash: autopilot-multi completion bash > ~/.local/share/bash-completion/completions/autopilot-multi
zsh:  autopilot-multi completion zsh > ~/.zfunc/_autopilot-multi  (any folder in $fpath)
fish: autopilot-multi completion fish > ~/.config/fish/completions/autopilot-multi.fish
"""

import argparse

from runner.cli.output import Output
from runner.cli.overview import COMMANDS
from runner.cli.parser import common

EXAMPLE = 'eval "$(autopilot-multi completion bash)"'

SHELLS = ("bash", "zsh", "fish", "tcsh")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `completion`."""
    parser.add_argument("shell", choices=SHELLS, help="your shell; in tcsh without the ids")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the script."""
    from runner.cli.completion import bash, fish, zsh
    from runner.cli.completion.grammar import commands

    writers = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}
    writer = writers.get(arguments.shell)
    script = writer(commands()) if writer else _for_tcsh()
    output.document({"shell": arguments.shell, "script": script})
    output.answer(script)
    return 0


def _for_tcsh() -> str:
    from importlib import import_module

    import shtab

    from runner.cli.overview import module_of

    parser = argparse.ArgumentParser(prog="autopilot-multi")
    subparsers = parser.add_subparsers()
    for name, summary in COMMANDS.items():
        import_module(module_of(name)).configure(subparsers.add_parser(name, help=summary))
    return shtab.complete(parser, "tcsh")
