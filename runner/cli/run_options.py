"""The flags of `run`: those of the declared settings, and those that are about one run only.

Values stay text. They are checked together with those of files and the environment, so that every error has
one form. Nothing heavy is imported here.
"""

import argparse
from pathlib import Path

from runner.cli.parser import CommandLineError
from runner.core.declaration import Declared, shown_value
from runner.core.schedule.budget_share import Share
from runner.core.settings import SETTINGS


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add the stories and every flag of `run`."""
    add_plan_flags(parser)
    what = parser.add_argument_group("what it does")
    doing = what.add_mutually_exclusive_group()
    doing.add_argument("--dry-run", action="store_true", help="show the plan and change nothing")
    doing.add_argument("--apply", action="store_true", help="run the plan; this is the default")
    what.add_argument(
        "--fresh",
        action="store_true",
        help="with --again or --retry-failed: start over from the base; the old branches are kept under "
        "refs/autopilot/old/",
    )
    what.add_argument(
        "--from",
        dest="from_sources",
        metavar="SOURCE",
        action="append",
        default=[],
        help="take the stories from issues or a checklist, without story files: "
        "github:owner/repo?label=autopilot, gitlab:group/project, jira:JQL, ado:QUERY, checklist:FILE; "
        "repeatable",
    )
    what.add_argument("--events", action="store_true", help="stream every event as one line of JSON")
    add_detach(what)
    what.add_argument(
        "--web", action="store_true", help="also serve a page that shows the run live; see `web`"
    )
    what.add_argument(
        "--shard-out",
        metavar="DIR",
        help="at the end, write what other jobs need of this one to DIR, which must not exist yet",
    )
    what.add_argument(
        "--budget-share",
        metavar="1/N[@K]",
        default="1",
        help="this job may use only this part of what is left of the budgets; with @K, for the K-th of N "
        "jobs, if there is money for so many; `matrix` prints it",
    )
    what.add_argument(
        "--push", action="store_true", help="at the end, push the branches of the stories, never by force"
    )
    what.add_argument(
        "--remote", metavar="NAME", default="origin", help="the remote to push to (default: origin)"
    )


def add_detach(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add the flag by which a run continues without its terminal."""
    parser.add_argument(
        "--detach",
        action="store_true",
        help="continue without this terminal once everything is checked; `attach` follows the run",
    )


def add_branch_prefix(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add the flag that says under which names the branches of a pipeline were pushed."""
    parser.add_argument(
        "--branch-prefix",
        metavar="PREFIX",
        help="with shards: name the branches PREFIX<id>, as they were pushed (default: autopilot/)",
    )


def add_plan_flags(parser: argparse.ArgumentParser) -> None:
    """Add the stories and the flags that say what runs, and how."""
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="STORY_OR_PATH",
        help=f"story files, folders, ids, or prompts in quotes (default: {SETTINGS['stories'].default}/)",
    )
    limits = parser.add_argument_group("limits")
    how = parser.add_argument_group("how stories run")
    for declared in _flagged():
        _add_setting(limits if declared.is_number else how, declared)
    _add_choices(parser)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the flag that agrees to what the files of the repository ask for."""
    _add_setting(parser, SETTINGS["trust"])


def trust_of(arguments: argparse.Namespace) -> dict[str, str | tuple[str, ...]]:
    """Return that flag as a setting."""
    return {"trust": arguments.trust} if arguments.trust else {}


def flags_of(arguments: argparse.Namespace) -> dict[str, str | tuple[str, ...]]:
    """Return the settings that were given as flags, by their keys."""
    flags: dict[str, str | tuple[str, ...]] = {}
    for declared in _flagged():
        value = getattr(arguments, declared.field, None)
        if value is not None:
            flags[declared.key] = tuple(value) if isinstance(value, list) else value
    return flags


def _flagged() -> list[Declared]:
    return [declared for declared in SETTINGS.values() if declared.option]


def _add_setting(group: "argparse.ArgumentParser | argparse._ArgumentGroup", declared: Declared) -> None:
    help_text = declared.setting.flag_help or declared.setting.help
    if declared.is_switch or declared.setting.flag_value:
        # A switch's flag says the opposite of the default.
        const = declared.setting.flag_value or shown_value(not declared.default)
        group.add_argument(
            declared.option, dest=declared.field, action="store_const", const=const, help=help_text
        )
        return
    group.add_argument(
        declared.option,
        dest=declared.field,
        metavar=declared.metavar,
        action="append" if declared.is_list else "store",
        help=help_text + _ending(declared),
    )


def _ending(declared: Declared) -> str:
    """Return what the help adds: bounds, choices and default, or that a flag can be repeated."""
    if declared.is_list:
        return "; repeatable"
    default = declared.shown(declared.default)
    facts = [f"default: {default}" if default else "", declared.range, declared.alternatives]
    ending = "; ".join(fact for fact in facts if fact)
    return f" ({ending})" if ending else ""


def _add_choices(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what runs")
    what.add_argument(
        "--only",
        metavar="ID",
        action="append",
        default=[],
        help="only this story and what it depends on; repeatable",
    )
    what.add_argument(
        "--retry-failed", action="store_true", help="retry the stories that failed in the newest run"
    )
    what.add_argument(
        "--again",
        action="store_true",
        help="run stories again even if an earlier run finished them; if some are named, only these",
    )
    what.add_argument(
        "--shard-in",
        metavar="DIR",
        action="append",
        help="a shard of another job, or a folder of shards; stories done there are done; repeatable",
    )


def budget_share(arguments: argparse.Namespace) -> Share:
    """Return the part of the budgets that a job may use."""
    text = arguments.budget_share
    part, _, number = text.partition("@")
    above, _, below = part.partition("/")
    try:
        share = Share(part=float(above) / float(below or "1"), number=int(number or "0"))
    except (ValueError, ZeroDivisionError):
        share = Share(part=-1.0)
    if not 0 <= share.part <= 1 or share.number < 0 or (share.number and not share.part):
        raise CommandLineError(
            f"--budget-share must be a fraction from 0 to 1, not '{text}'",
            "for example `--budget-share 1/4`, as `matrix` prints it.",
        )
    return share


def shard_folders(arguments: argparse.Namespace) -> tuple[Path, ...] | None:
    """Return the folders of `--shard-in`, relative to the directory of `-C`; None without any."""
    if arguments.shard_in is None:
        return None
    return tuple(Path(arguments.directory) / folder for folder in arguments.shard_in)
