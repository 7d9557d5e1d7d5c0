"""Join shards for `aggregate` and `report`, and print the joined run with the problems of its shards."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.ci.join import JoinedRun, join, require_known
from runner.cli.output import Output
from runner.core.errors import UsageError
from runner.core.model import StoryId
from runner.records.shards import Shard, load_shards
from runner.report.run_document import run_document
from runner.report.terminal.table import look_for
from runner.report.terminal.text import report


def load_joined(arguments: argparse.Namespace) -> JoinedRun:
    """Load and join the shards named on the command line."""
    here = Path(arguments.directory)
    shards = load_shards([here / path for path in arguments.paths])
    return join(shards, expected=_expected(arguments, shards))


def join_shards(arguments: argparse.Namespace, output: Output) -> int:
    """Join the shards, import what the flags request, and print the run."""
    joined = load_joined(arguments)
    if arguments.branches or arguments.into_repo:
        _import(joined, arguments, output)
    shards = {
        "count": len(joined.shards),
        "missing": list(joined.missing),
        "problems": list(joined.problems),
        "remarks": list(joined.remarks),
    }
    output.document({**run_document(joined.run), "shards": shards}, success=joined.exit_code == 0)
    output.answer(report(joined.run, look=look_for(sys.stdout, no_color=arguments.no_color)))
    for line in joined.remarks:
        output.say(f"note: {line}")
    for line in joined.problems:
        output.warn(line)
    return joined.exit_code


def _import(joined: JoinedRun, arguments: argparse.Namespace, output: Output) -> None:
    from isolation.git.repository import Repository
    from runner.ci.import_shards import import_branches, import_run

    repository = Repository.open(Path(arguments.directory))
    if arguments.branches:
        for branch in import_branches(repository, joined.shards, joined.sources):
            output.say(f"imported branch {branch}")
    if arguments.into_repo:
        new = import_run(repository, joined)
        output.say(f"run {joined.run.run_id} {'imported' if new else 'was already imported'}")


def _expected(arguments: argparse.Namespace, shards: Sequence[Shard]) -> tuple[StoryId, ...] | None:
    if arguments.matrix:
        return _from_matrix(Path(arguments.directory) / arguments.matrix)
    return require_known(shards, arguments.only) if arguments.only else None


def _from_matrix(path: Path) -> tuple[StoryId, ...]:
    try:
        loaded = json.loads(path.read_bytes())
        # `matrix --json` wraps the matrix in the usual document.
        names = loaded.get("data", loaded)["stories"]
        return tuple(StoryId(str(name)) for name in names)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="pass the output of `matrix --format json`."
        ) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is not the output of `matrix --format json`", hint="create it again with that command."
        ) from error
