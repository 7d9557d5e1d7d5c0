"""The flags of `run`, as the command line has them.

Values stay text: the settings judge them together with those of files and the environment, so
that every complaint has one form. Nothing heavy is imported here.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from runner.core.settings import BOUNDS, Settings

_NUMBERS: Mapping[str, tuple[str, str]] = {
    "max-stories": ("N", "how many stories may run at once"),
    "max-sessions": ("N", "how many sessions a story may have"),
    "max-hours": ("H", "how long the whole run may take"),
    "inactivity-timeout": ("S", "end the run when no story gives a sign of life for S seconds"),
    "stall-seconds": ("S", "stop a session that is silent for S seconds"),
    "confidence-threshold": ("X", "how sure the next step must be to go on alone"),
    "grace-seconds": ("S", "how long a session that is stopped may take to leave"),
}
_BUDGETS: Mapping[str, tuple[str, str]] = {
    "token-budget": ("N", "start no session once the run has used N tokens"),
    "cost-budget": ("USD", "start no session once the run has cost this much"),
    "story-token-budget": ("N", "the same for each story alone"),
    "story-cost-budget": ("USD", "the same for each story alone"),
}
_TEXTS: Mapping[str, tuple[str, str]] = {
    "window": ("MODE", "adaptive: as many as the machine can bear; fixed: always --max-stories"),
    "bg-isolation": ("MODE", "where stories work: worktree (each in its own) or none"),
    "enforce": ("LEVEL", "how claims in a shared tree are enforced: auto, divert, deny or detect"),
    "base": ("REF", "the commit that stories start from"),
    "continue": (
        "POLICY",
        "what starts after a failure: never, dependencies-successful, or always",
    ),
    "agent": ("NAME", "the agent for stories that name none"),
    "dialect": ("NAME", "the form of new state files: rich, pointer or autodev"),
    "decide-default": ("HOW", "what becomes of decisions: ask, or recommended for the unattended"),
    "model": ("NAME", "the model that the agent is to use"),
    "selector": ("CMD", "a command that says before each session what comes next, and how sure that is"),
}


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add the stories and every flag of `run`."""
    add_plan_flags(parser)
    what = parser.add_argument_group("what it does")
    doing = what.add_mutually_exclusive_group()
    doing.add_argument("--dry-run", action="store_true", help="show the plan and change nothing")
    doing.add_argument("--apply", action="store_true", help="run; this is the default, said aloud")
    what.add_argument("--events", action="store_true", help="stream every event as a line of JSON")
    what.add_argument(
        "--shard-out",
        metavar="DIR",
        help="at the end, write what other jobs need of this one into DIR, which must not be there yet",
    )
    what.add_argument(
        "--push", action="store_true", help="at the end, push the branches of the stories; never by force"
    )
    what.add_argument("--remote", metavar="NAME", default="origin", help="where to (default: origin)")


def add_plan_flags(parser: argparse.ArgumentParser) -> None:
    """Add the stories and the flags that say what is to run, and how."""
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="STORY_OR_PATH",
        help=f"story files, folders, ids, or prompts in quotes (default: {Settings().stories}/)",
    )
    limits = parser.add_argument_group("limits")
    for key, (metavar, text) in _NUMBERS.items():
        limits.add_argument(f"--{key}", metavar=metavar, help=f"{text} ({_range(key)})")
    for key, (metavar, text) in _BUDGETS.items():
        limits.add_argument(f"--{key}", metavar=metavar, help=f"{text} (default: off)")
    how = parser.add_argument_group("how stories run")
    for key, (metavar, text) in _TEXTS.items():
        default = str(_default(key))
        shown = f" (default: {default})" if default else ""
        how.add_argument(f"--{key}", metavar=metavar, help=text + shown)
    how.add_argument(
        "--verify",
        metavar="CMD",
        action="append",
        help="a command that must pass for stories that name none; repeatable",
    )
    how.add_argument(
        "--deconflict-paths",
        metavar="SPEC",
        action="append",
        help="who owns what: a GLOB around all claims, a pattern with {id}, or ID=GLOB,GLOB; repeatable",
    )
    how.add_argument(
        "--cross-boundaries",
        action="store_const",
        const="true",
        help="go on at session boundaries in a fresh session, without asking",
    )
    how.add_argument(
        "--no-guard",
        dest="guard",
        action="store_const",
        const="false",
        help="let sessions write into the main checkout and other worktrees; for agents whose own "
        "sandbox, sudo or ssh does not work under the guard",
    )
    _add_choices(parser)


def flags_of(arguments: argparse.Namespace) -> dict[str, str | tuple[str, ...]]:
    """Give the settings that were given as flags, by their keys; what was not given is left out."""
    flags: dict[str, str | tuple[str, ...]] = {}
    for key in (*_NUMBERS, *_BUDGETS, *_TEXTS, "verify", "deconflict-paths", "cross-boundaries", "guard"):
        value = getattr(arguments, key.replace("-", "_"), None)
        if value is not None:
            flags[key] = tuple(value) if isinstance(value, list) else value
    return flags


def _add_choices(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what runs")
    what.add_argument(
        "--only",
        metavar="ID",
        action="append",
        default=[],
        help="only this story and what it depends on; repeatable",
    )
    what.add_argument("--retry-failed", action="store_true", help="try stories again that failed before")
    what.add_argument("--again", action="store_true", help="run stories again that an earlier run finished")
    what.add_argument(
        "--shard-in",
        metavar="DIR",
        action="append",
        help="a shard of an earlier job, or a folder of them: its stories are done here too; repeatable",
    )


def shard_folders(arguments: argparse.Namespace) -> tuple[Path, ...] | None:
    """Give the folders of `--shard-in`, as they are from where the program was sent; None without any."""
    if arguments.shard_in is None:
        return None
    return tuple(Path(arguments.directory) / folder for folder in arguments.shard_in)


def _default(key: str) -> object:
    return getattr(Settings(), "continue_" if key == "continue" else key.replace("-", "_"))


def _range(key: str) -> str:
    bounds = BOUNDS[key]
    return f"default: {_default(key):g}; {bounds.low:g} to {bounds.high:g}"
