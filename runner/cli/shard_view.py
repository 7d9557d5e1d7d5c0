"""`aggregate` over shards: one run, told like any other, and what is wrong with its parts."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.ci.join import Joined, join, narrowed
from runner.cli.output import Output
from runner.core.errors import UsageError
from runner.core.model import StoryId
from runner.records.shards import Shard, load_shards
from runner.report.document import document
from runner.report.terminal.table import look_for
from runner.report.terminal.text import report


def load_joined(arguments: argparse.Namespace) -> Joined:
    """Read the shards that the arguments name, and join them."""
    here = Path(arguments.directory)
    shards = load_shards([here / path for path in arguments.paths])
    return join(shards, expected=_expected(arguments, shards))


def join_shards(arguments: argparse.Namespace, output: Output) -> int:
    """Join, put into the repository what was asked for, and show the run."""
    joined = load_joined(arguments)
    if arguments.branches or arguments.into_repo:
        _take(joined, arguments, output)
    shards = {
        "count": len({shard.run_id for shard in joined.sources.values()}),
        "missing": list(joined.missing),
        "problems": list(joined.problems),
        "remarks": list(joined.remarks),
    }
    output.document({**document(joined.run), "shards": shards}, success=joined.exit_code == 0)
    output.answer(report(joined.run, look=look_for(sys.stdout, no_color=arguments.no_color)))
    for line in joined.remarks:
        output.say(f"note: {line}")
    for line in joined.problems:
        output.warn(line)
    return joined.exit_code


def _take(joined: Joined, arguments: argparse.Namespace, output: Output) -> None:
    from isolation.git.repository import Repository
    from runner.ci.import_run import take_in, take_joined_branches

    repository = Repository.open(Path(arguments.directory))
    if arguments.branches:
        for branch in take_joined_branches(repository, joined):
            output.say(f"branch {branch} is here")
    if arguments.into_repo:
        new = take_in(repository, joined)
        output.say(f"run {joined.run.run_id} is {'now' if new else 'already'} in the journal")


def _expected(arguments: argparse.Namespace, shards: Sequence[Shard]) -> tuple[StoryId, ...] | None:
    if arguments.matrix:
        return _from_matrix(Path(arguments.directory) / arguments.matrix)
    return narrowed(shards, arguments.only) if arguments.only else None


def _from_matrix(path: Path) -> tuple[StoryId, ...]:
    try:
        loaded = json.loads(path.read_bytes())
        # With `--json` the matrix stands inside the one document.
        names = loaded.get("data", loaded)["stories"]
        return tuple(StoryId(str(name)) for name in names)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="give the file of `matrix`."
        ) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is not what `matrix --format json` prints", hint="write it anew with that command."
        ) from error
