"""The grammar of the command line: which commands exist, and strict parsing with suggestions.

Only the chosen command's module is imported, so `--help` and `status` stay instant.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NoReturn

DEFAULT_COMMAND = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: the module that holds it and its line in the overview."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "run": Command(module="run", summary="carry the backlog out (the default)"),
    "plan": Command(module="plan", summary="show what would run, in which order and why; change nothing"),
    "status": Command(module="status", summary="show the newest or a named run"),
    "resume": Command(module="resume", summary="go on after a crash or an interruption"),
    "logs": Command(module="logs", summary="show what a story's sessions printed"),
    "stop": Command(module="stop", summary="stop stories at their session's end, or now"),
    "gc": Command(module="gc", summary="show or remove finished worktrees; never anything of value"),
    "config": Command(module="config", summary="show every setting and where it came from"),
    "doctor": Command(module="doctor", summary="show what this machine offers"),
    "init": Command(module="init", summary="write a settings file and a first story"),
    "demo": Command(module="demo", summary="run a real sample in a throw-away repository"),
    "completion": Command(module="completion", summary="print a shell completion script"),
}


class CommandLineError(Exception):
    """The command line cannot be understood."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of leaving, and suggests the nearest name."""

    def error(self, message: str) -> NoReturn:
        """Turn argparse's complaint into ours."""
        raise CommandLineError(message, f"`{self.prog} --help` lists what it takes.")


def build(name: str, module: ModuleType) -> Parser:
    """Build the parser of one command from its module's `configure`."""
    prog = "autopilot-multi" if name == DEFAULT_COMMAND else f"autopilot-multi {name}"
    parser = Parser(
        prog=prog,
        description=module.__doc__,
        epilog=f"example:\n  {module.EXAMPLE}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.configure(parser)
    return parser


def parse(name: str, module: ModuleType, argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command's arguments; an unknown flag names its nearest relative."""
    parser = build(name, module)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        flag = unknown[0].partition("=")[0]
        raise CommandLineError(f"unknown argument '{flag}' for `{parser.prog}`", _nearest(parser, flag))
    return arguments


def common(parser: argparse.ArgumentParser) -> None:
    """Add the flags that every command takes."""
    parser.add_argument("-C", dest="directory", metavar="DIR", default=".", help="run as if started in DIR")
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document")
    parser.add_argument("-q", "--quiet", action="store_true", help="no narration")
    parser.add_argument("-v", "--verbose", action="store_true", help="more narration")
    parser.add_argument("--no-color", action="store_true", help="no colours")


def overview() -> str:
    """Give the text of `autopilot-multi --help`."""
    rows = "\n".join(f"  {name:<11}{command.summary}" for name, command in COMMANDS.items())
    return (
        "usage: autopilot-multi [COMMAND] [OPTIONS]\n\n"
        "Carries a backlog of stories through parallel git worktrees to verified commits.\n"
        "Without a command it runs the stories in `stories/`.\n\n"
        f"commands:\n{rows}\n\n"
        "  autopilot-multi COMMAND --help tells about one of them.\n\n"
        "example:\n  autopilot-multi --max-stories=3\n"
    )


def _nearest(parser: argparse.ArgumentParser, flag: str) -> str:
    from difflib import get_close_matches

    known = [name for action in parser._actions for name in action.option_strings]  # noqa: SLF001  argparse offers no list
    candidates = known if flag.startswith("-") else [*known, *COMMANDS]
    close = get_close_matches(flag, candidates, n=1)
    tail = f"`{parser.prog} --help` lists what it takes."
    return f"did you mean '{close[0]}'? {tail}" if close else tail
