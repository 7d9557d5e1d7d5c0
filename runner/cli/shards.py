"""Join shards for `aggregate` and `report`, and print the joined run with the problems of its shards."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from runner.cli.output import Output
from runner.core.errors import UsageError
from runner.core.model import StoryId
from runner.core.schedule.offers import without_offers
from runner.records.shards.shard import Shard, load_shards
from runner.remote.ci.balance import collect_records
from runner.remote.ci.join import JoinedRun, Wanted, join, require_known, with_problems
from runner.remote.ci.reader_view import reader_view
from runner.report.run_document import run_document
from runner.report.terminal.table import look_for
from runner.report.terminal.text import report
from runner.run.control.merged import with_merged


def load_joined(arguments: argparse.Namespace) -> JoinedRun:
    """Load and join the shards named on the command line; what cannot be used is a problem of the run."""
    here = Path(arguments.directory)
    folders = [here / path for path in arguments.paths]
    found = load_shards([folder for folder in folders if folder.is_dir()])
    absent = [f"no folder {folder} to read shards from" for folder in folders if not folder.is_dir()]
    return join(
        found.shards,
        wanted=_wanted(arguments, found.shards),
        problems=(*absent, *found.problems),
        torn=found.torn,
        now=time.time(),
    )


def join_shards(arguments: argparse.Namespace, output: Output) -> int:
    """Join the shards, import what the flags request, and print the run."""
    joined = load_joined(arguments)
    if arguments.branches or arguments.into_repo:
        joined = _import(joined, arguments, output)
    if arguments.records:
        collect_records(Path(arguments.directory) / arguments.records, joined.usable)
    if not arguments.into_repo:
        joined = reader_view(joined, arguments.branch_prefix)
    shards = {
        "count": len(joined.shards),
        "missing": list(joined.missing),
        "problems": list(joined.problems),
        "remarks": list(joined.remarks),
    }
    # Only what is saved in a repository can be landed there.
    run = with_merged(joined.run, arguments.directory) if arguments.into_repo else without_offers(joined.run)
    output.document({**run_document(run), "shards": shards}, success=joined.exit_code == 0)
    output.answer(report(run, look=look_for(sys.stdout, no_color=arguments.no_color)))
    for line in joined.remarks:
        output.say(f"note: {line}")
    for line in joined.problems:
        output.warn(line)
    return joined.exit_code


def _import(joined: JoinedRun, arguments: argparse.Namespace, output: Output) -> JoinedRun:
    """Import what the flags request; return the run with the problems of that."""
    from isolation.git.repository import Repository
    from runner.remote.ci.import_shards import import_branches, import_run

    repository = Repository.open(Path(arguments.directory))
    if arguments.branches:
        imported = import_branches(repository, joined.usable, joined.sources)
        for line in imported.renamed:
            output.say(line)
        for branch in imported.branches:
            output.say(f"imported branch {branch}")
        joined = with_problems(joined, imported.problems)
    if arguments.into_repo and joined.sources:
        new = import_run(repository, joined)
        output.say(f"run {joined.run.run_id} {'imported' if new else 'was already imported'}")
    return joined


def _wanted(arguments: argparse.Namespace, shards: Sequence[Shard]) -> Wanted:
    if arguments.matrix:
        return _from_matrix(Path(arguments.directory) / arguments.matrix)
    return Wanted(stories=require_known(shards, arguments.only) if arguments.only and shards else None)


def _from_matrix(path: Path) -> Wanted:
    try:
        loaded = json.loads(path.read_bytes())
        # `matrix --json` wraps the matrix in the usual document.
        matrix = loaded.get("data", loaded)
        stories = tuple(StoryId(str(name)) for name in matrix["stories"])
        return Wanted(stories=stories, base=str(matrix.get("base", "")))
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="pass the output of `matrix --format json`."
        ) from error
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is not the output of `matrix --format json`", hint="create it again with that command."
        ) from error
