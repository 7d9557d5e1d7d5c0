"""Write a report of a run: an HTML page, a Markdown summary, or a file for a CI system.

RUN is the id of a run or its first characters (default: the newest run). DIR is a shard of a CI job,
or a folder of shards, which are joined as `aggregate` does; a page of them has diffs where the commits are
known, as after `aggregate --branches`. Secrets from the environment are removed.
"""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import CommandLineError, common
from runner.cli.run_options import add_branch_prefix

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.report.report_data import ReportData

EXAMPLE = "autopilot-multi report --format html --output report.html"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `report`."""
    from runner.report.formats import FORMATS, format_help

    parser.description = f"{__doc__}\n{format_help()}\n"
    parser.add_argument("paths", nargs="*", metavar="RUN|DIR", help="a run, or folders that contain shards")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), default="html", help="the output format (default: html)"
    )
    parser.add_argument("--output", metavar="FILE", help="write to this file, replacing it (default: stdout)")
    parser.add_argument(
        "--matrix", metavar="FILE", help="with shards: every story in this matrix must have a shard"
    )
    parser.add_argument(
        "--only", metavar="ID", action="append", help="with shards: require a shard only for this story"
    )
    add_branch_prefix(parser)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Collect the data, render it, write it."""
    from runner.core.text.redaction import Redactor
    from runner.report.formats import FORMATS

    data = _load(arguments)
    # Logs are redacted when written, but with the environment of that time; keys may have been added since.
    named = os.environ.get("AUTOPILOT_MULTI_SECRET_VARIABLES", "").split(",")
    text = Redactor(os.environ, named=[name.strip() for name in named]).text(
        FORMATS[arguments.format].write(data)
    )
    summary = {
        "run_id": data.run.run_id,
        "format": arguments.format,
        "state": "running" if data.in_progress else "ended",
    }
    if data.in_progress:
        output.say(f"run {data.run.run_id} is still active; this report shows its current state")
    if arguments.output:
        path = Path(arguments.directory) / arguments.output
        _write(path, text)
        output.say(f"wrote {path}")
        output.document({**summary, "output": str(path)})
    else:
        output.document({**summary, "text": text})
        output.answer(text)
    return 0


def _load(arguments: argparse.Namespace) -> "ReportData":
    here = Path(arguments.directory)
    asked = bool(arguments.matrix or arguments.only)
    if asked and not arguments.paths:
        raise CommandLineError(
            "no folder with shards is named", "pass the folder that contains the artifacts of the CI jobs."
        )
    folders = [path for path in arguments.paths if (here / path).is_dir()]
    if arguments.matrix or folders:
        from runner.cli.shards import load_joined
        from runner.remote.ci.reader_view import reader_view
        from runner.remote.ci.report_data import load_from_shards

        joined = reader_view(load_joined(arguments), arguments.branch_prefix)
        return load_from_shards(joined, _repository_at(here))
    if len(arguments.paths) > 1 or arguments.only:
        raise CommandLineError(
            f"no shards found in {', '.join(arguments.paths)}",
            "pass one RUN, or the folders that contain the artifacts of the CI jobs.",
        )
    from msgspec.structs import replace

    from isolation.git.repository import Repository
    from runner.remote.ci.report_data import load_from_repository
    from runner.report.run_document import settled
    from runner.run.control.merged import with_merged
    from runner.run.control.reader import RunReader

    with RunReader(arguments.directory, next(iter(arguments.paths), None)) as reader:
        current = reader.read()
        events = reader.journal.events(reader.run_id)
        _, landing = reader.landing(current.run)
    run = with_merged(settled(current.run, alive=not current.over), here)
    now = None if current.over else time.time()
    return replace(load_from_repository(Repository.open(here), run, events, now=now), landing=landing)


def _repository_at(folder: Path) -> "Repository | None":
    """Return the repository around a folder; shards can be read without one."""
    from isolation.errors import IsolationError
    from isolation.git.repository import Repository

    try:
        return Repository.open(folder)
    except IsolationError:
        return None


def _write(path: Path, text: str) -> None:
    from isolation.files.disk import replace_file
    from runner.core.errors import SystemFaultError

    data = text.encode(errors="replace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a device or a pipe is written to; as root it would be replaced by a file
        else:
            replace_file(path, data)
    except OSError as error:
        raise SystemFaultError(
            f"cannot write {path}: {error.strerror}", hint="check the permissions of its folder."
        ) from error
