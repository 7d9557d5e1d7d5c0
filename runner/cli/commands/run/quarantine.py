"""List, show or restore what stories wrote outside their claims.

`restore` writes to a new folder, or with --apply to the checkout. It never overwrites a file that is not
saved in git. Restoring does not delete the quarantine.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from isolation.shared_tree.quarantine import ForeignChange, Quarantine

EXAMPLE = "autopilot-multi quarantine restore 20260101-000000-0a1b2c3d/api-3/1 --to ../kept"

_ACTIONS = ("list", "show", "restore")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `quarantine`."""
    parser.add_argument(
        "action", nargs="?", choices=_ACTIONS, default="list", help="what to do (default: list)"
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="the name of a quarantine, as shown by `list`"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--to", metavar="DIR", help="restore: write to this folder")
    where.add_argument(
        "--apply", action="store_true", help="restore: write to the checkout, where it is clean"
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """List, show or restore."""
    from isolation.git.repository import Repository
    from isolation.shared_tree.restore import load
    from runner.core.errors import UsageError

    action, name = arguments.action, arguments.name
    if (action == "list") == (name is not None):
        raise UsageError(
            "`quarantine list` takes no name" if name else f"`quarantine {action}` needs a NAME",
            hint="list the names with `autopilot-multi quarantine`.",
        )
    if action != "restore" and (arguments.to or arguments.apply):
        raise UsageError(
            f"`quarantine {action}` does not take --to or --apply", hint="use them with `restore`."
        )
    if action == "restore" and not (arguments.to or arguments.apply):
        raise UsageError(
            "`quarantine restore` needs --to or --apply",
            hint="--to DIR writes to a new folder, --apply to the checkout.",
        )
    repository = Repository.open(Path(arguments.directory))
    if name is None:
        return _list(repository, output)
    quarantine = load(repository, name)
    if action == "show":
        return _show(quarantine, output)
    return _restore(repository, quarantine, arguments, output)


def _list(repository: "Repository", output: Output) -> int:
    from isolation.shared_tree.restore import load_all
    from runner.core.text.screen import neutral

    found = load_all(repository)
    output.document({"quarantines": [_to_json(one) for one in found]})
    lines = [f"{_name(one)}  {' or '.join(one.story_ids)}  {neutral(_paths(one))}" for one in found]
    output.answer("\n".join(lines) or "no quarantined files")
    return 0


def _show(quarantine: "Quarantine", output: Output) -> int:
    from runner.core.text.screen import neutral

    output.document(_to_json(quarantine))
    lines = [f"run {quarantine.run_id}, by {' or '.join(quarantine.story_ids)}"]
    lines += [f"{change.what:<13} {neutral(change.path)}{_how_kept(change)}" for change in quarantine.changes]
    lines.append(f"print a file with `git show {quarantine.ref}:files/PATH`.")
    output.answer("\n".join(lines))
    return 0


def _restore(
    repository: "Repository", quarantine: "Quarantine", arguments: argparse.Namespace, output: Output
) -> int:
    from isolation.files.lease import acquire
    from isolation.shared_tree.restore import apply, export

    if arguments.apply:
        where = repository.top
        with acquire(repository.common_dir, "quarantine"):  # keeps a run from starting in the meantime
            written = apply(repository, quarantine)
    else:
        where = Path(arguments.directory, arguments.to).resolve()
        written = export(repository, quarantine, where)
    output.document({"name": _name(quarantine), "where": str(where), "written": list(written)})
    output.answer(f"{len(written)} file{'s' * (len(written) != 1)} written to {where}")
    return 0


def _name(quarantine: "Quarantine") -> str:
    from isolation.shared_tree.quarantine import REFS

    return quarantine.ref.removeprefix(REFS)


def _paths(quarantine: "Quarantine") -> str:
    from isolation.git.commits import named

    return named(quarantine.paths)


def _how_kept(change: "ForeignChange") -> str:
    return "" if change.blob or not change.needs_content else "  (content not saved: too large or unreadable)"


def _to_json(quarantine: "Quarantine") -> dict[str, Any]:
    return {
        "name": _name(quarantine),
        "ref": quarantine.ref,
        "run_id": quarantine.run_id,
        "story_ids": list(quarantine.story_ids),
        "changes": [
            {"path": _printable(change.path), "what": change.what.value, "blob": change.blob}
            for change in quarantine.changes
        ],
    }


def _printable(path: str) -> str:
    """Return a path that JSON can hold; bytes that are not UTF-8 are escaped."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
