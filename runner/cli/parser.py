"""Parse the arguments of one command; an unknown name suggests the closest known one."""

import argparse
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from runner.cli.overview import COMMANDS, DEFAULT_COMMAND

PROGRAM = "autopilot-multi"
_LITERAL = "\0"  # cannot occur in a command-line argument


class CommandLineError(Exception):
    """The command line is invalid."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise argparse's error as our own."""
        raise CommandLineError(message, _see_help(self.prog))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            nearest = _did_you_mean(str(value), map(str, action.choices or ()))
            raise CommandLineError(str(error), f"{nearest} {_see_help(self.prog)}".strip()) from error

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        return super()._get_value(action, arg_string.removeprefix(_LITERAL))


def build(name: str, module: ModuleType) -> Parser:
    """Build the parser of one command from its module's `configure`."""
    prog = PROGRAM if name == DEFAULT_COMMAND else f"{PROGRAM} {name}"
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
    """Parse the arguments of a command; the error for an unknown flag suggests the closest one."""
    parser = build(name, module)
    arguments, rest = parser.parse_known_intermixed_args(_marked(argv))
    if unknown := [argument for argument in rest if argument != "--"]:
        names = list(dict.fromkeys(item.removeprefix(_LITERAL).partition("=")[0] for item in unknown))
        # What follows an unknown flag is probably its value.
        names = [name for name in names if name.startswith("-")] or names
        listed = ", ".join(f"'{name}'" for name in names)
        word = "argument" if len(names) == 1 else "arguments"
        raise CommandLineError(f"unknown {word} {listed} for `{parser.prog}`", _nearest(parser, names))
    arguments.typed = (name, *argv)
    return arguments


def _marked(argv: Sequence[str]) -> list[str]:
    """Mark the arguments after `--`: argparse loses that position when it parses intermixed arguments."""
    if "--" not in argv:
        return list(argv)
    end = argv.index("--")
    return [*argv[: end + 1], *(_LITERAL + argument for argument in argv[end + 1 :])]


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the closest name; the rule is loaded only for an error."""
    from runner.core.text import names

    return names.did_you_mean(name, known)


def _folder(text: str) -> str:
    """Accept only an existing folder: with a missing one, git would find a repository further up."""
    import os

    if not os.path.isdir(text):  # noqa: PTH112  a name that cannot be one is no folder, and no error
        raise argparse.ArgumentTypeError(f"no such folder: {text!r}")
    return text


def common(parser: argparse.ArgumentParser) -> None:
    """Add the flags that every command takes."""
    parser.add_argument(
        "-C", dest="directory", metavar="DIR", default=".", type=_folder, help="run as if started in DIR"
    )
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document to stdout")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print no progress, only the answer, warnings and errors"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also print the output of sessions; no dashboard"
    )
    parser.add_argument("--no-color", action="store_true", help="no colors")


def _see_help(prog: str) -> str:
    # `autopilot-multi --help` is the overview; the flags of the default command are one level down.
    command = f"{prog} {DEFAULT_COMMAND}" if prog == PROGRAM else prog
    return f"see `{command} --help`."


def nearest_command(word: str) -> str | None:
    """Return the command that a word was probably meant to be."""
    from difflib import get_close_matches

    # Closer than elsewhere: the word may also be a story's id.
    return next(iter(get_close_matches(word.casefold(), COMMANDS, n=1, cutoff=0.7)), None)


def _nearest(parser: argparse.ArgumentParser, names: Sequence[str]) -> str:
    known = [name for action in parser._actions for name in action.option_strings]  # noqa: SLF001  argparse offers no list
    close = [_did_you_mean(name, known if name.startswith("-") else [*known, *COMMANDS]) for name in names]
    return " ".join([*filter(None, close), _see_help(parser.prog)])
