"""The command line as data for the completion scripts: commands, flags, and what each value may be.

What a value names follows from its metavar in the help, so that a new flag is completed without further work.
"""

import argparse
from importlib import import_module

from msgspec import Struct

from runner.cli.overview import COMMANDS, DEFAULT_COMMAND, module_of
from runner.cli.parser import build
from runner.core.settings import SETTINGS

_BY_METAVAR = {
    "STORY": ("stories",),
    "ID": ("stories",),
    "STORY_OR_PATH": ("stories", "files"),
    "RUN": ("runs",),
    "RUN|DIR": ("runs", "folders"),
    "DIR": ("folders",),
    "FILE": ("files",),
    "PATH": ("files",),
    "NAME|FILE": ("flows", "files"),
    "REF": ("branches",),
}
_BY_NAME = {("quarantine", "name"): ("quarantines",), (DEFAULT_COMMAND, "remote"): ("remotes",)}
_FOR_GIT = {"merge-driver"}


class Values(Struct, frozen=True, kw_only=True):
    """What may be typed: `words`, or names of the given kinds; with neither, anything."""

    title: str
    words: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


class Flag(Struct, frozen=True, kw_only=True):
    """A flag with all its spellings; a switch has no values."""

    names: tuple[str, ...]
    help: str
    values: Values | None
    repeats: bool


class Positional(Struct, frozen=True, kw_only=True):
    """An argument without a flag; one that `repeats` is the last."""

    values: Values
    repeats: bool


class Command(Struct, frozen=True, kw_only=True):
    """A command with its arguments."""

    name: str
    summary: str
    flags: tuple[Flag, ...]
    positionals: tuple[Positional, ...]


def commands() -> tuple[Command, ...]:
    """Return every command, as its own parser describes it."""
    return tuple(_command(name, summary) for name, summary in COMMANDS.items())


def _command(name: str, summary: str) -> Command:
    actions = build(name, import_module(module_of(name)))._actions  # noqa: SLF001  argparse offers no list
    flags = tuple(
        Flag(
            names=tuple(action.option_strings),
            help=_plain(action.help),
            values=None if action.nargs == 0 else _values(name, action),
            repeats=isinstance(action, argparse._AppendAction),  # noqa: SLF001  it has no public name
        )
        for action in actions
        if action.option_strings
    )
    positionals = tuple(
        Positional(values=_values(name, action), repeats=action.nargs == "*")
        for action in actions
        if not action.option_strings
    )
    return Command(name=name, summary=summary, flags=flags, positionals=positionals)


def _values(command: str, action: argparse.Action) -> Values:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    words = tuple(str(choice) for choice in action.choices or _choices(action.dest))
    kinds = _BY_NAME.get((command, action.dest)) or _BY_METAVAR.get(metavar, ())
    return Values(
        title=metavar,
        words=tuple(word for word in words if word not in _FOR_GIT),
        kinds=() if words else kinds,
    )


def _choices(dest: str) -> tuple[str, ...]:
    """Return the words that are known for a setting, or for the names of settings and agents."""
    if dest == "keys":
        return tuple(SETTINGS)
    if dest == "agent":
        from runner.agents.catalog import KNOWN

        return ("auto", *KNOWN)
    declared = SETTINGS.get(dest.rstrip("_").replace("_", "-"))
    return declared.choices if declared else ()


def _plain(text: str | None) -> str:
    """Return a help text without what only a terminal's width needs."""
    return " ".join((text or "").replace("%%", "%").split())
