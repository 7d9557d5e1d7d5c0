"""Print a completion script for your shell.

bash: autopilot-multi completion bash > ~/.local/share/bash-completion/completions/autopilot-multi
zsh:  autopilot-multi completion zsh > ~/.zfunc/_autopilot-multi  (any folder in $fpath)
"""

import argparse
from importlib import import_module

from runner.cli.output import Output
from runner.cli.overview import COMMANDS, DEFAULT_COMMAND, module_of
from runner.cli.parser import common

EXAMPLE = 'eval "$(autopilot-multi completion bash)"'

SHELLS = ("bash", "zsh", "tcsh")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `completion`."""
    parser.add_argument("shell", choices=SHELLS, help="your shell")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the script."""
    import shtab

    script = shtab.complete(_whole_grammar(), shell=arguments.shell)
    output.document({"shell": arguments.shell, "script": script})
    output.answer(script)
    return 0


def _whole_grammar() -> argparse.ArgumentParser:
    """Build one parser for all commands; the flags of the default command work without its name."""
    parser = argparse.ArgumentParser(prog="autopilot-multi", add_help=True)
    parser.add_argument("--version", action="version", version="")
    modules = {name: import_module(module_of(name)) for name in COMMANDS}
    default = argparse.ArgumentParser(add_help=False)
    modules[DEFAULT_COMMAND].configure(default)
    for action in default._actions:  # noqa: SLF001  argparse offers no list
        if action.option_strings:
            parser._add_action(action)  # noqa: SLF001  nor a way to share a flag
    commands = parser.add_subparsers()
    for name, summary in COMMANDS.items():
        modules[name].configure(commands.add_parser(name, help=summary))
    return parser
