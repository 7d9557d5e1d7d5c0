"""Write a run as a report: a page for people, or a file that a CI system reads.

RUN is a run's id or its beginning, by default the newest; DIR is a shard of a CI job, or a folder of
them, which are joined as `aggregate` joins them. Secrets of the environment are left out.

html      one page that needs nothing else: timeline, a card a story, what sessions printed last
markdown  a summary, as for $GITHUB_STEP_SUMMARY
github    annotations, as workflow commands
gitlab    a code quality report
junit     JUnit XML: a suite a story, a case a session
"""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import CommandLineError, common

if TYPE_CHECKING:
    from runner.report.material import Material

EXAMPLE = "autopilot-multi report --format html --output report.html"

FORMATS = ("html", "markdown", "github", "gitlab", "junit")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `report`."""
    parser.add_argument("paths", nargs="*", metavar="RUN|DIR", help="a run, or folders with shards")
    parser.add_argument("--format", choices=FORMATS, default="html", help="what to write (default: html)")
    parser.add_argument("--output", metavar="FILE", help="where to; it is replaced whole (default: stdout)")
    parser.add_argument("--matrix", metavar="FILE", help="of shards: these stories must be there")
    parser.add_argument("--only", metavar="ID", action="append", help="of shards: this story must be there")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Gather, render, write."""
    from runner.core.text.redaction import Redactor

    material = _material(arguments)
    text = Redactor(os.environ).text(_rendered(material, arguments.format))
    told = {
        "run_id": material.run.run_id,
        "format": arguments.format,
        "state": "running" if material.goes_on else "ended",
    }
    if material.goes_on:
        output.say(f"run {material.run.run_id} is still going on; this is how it is now")
    if arguments.output:
        path = Path(arguments.directory) / arguments.output
        _write(path, text)
        output.say(f"wrote {path}")
        output.document({**told, "output": str(path)})
    else:
        output.document({**told, "text": text})
        output.answer(text)
    return 0


def _material(arguments: argparse.Namespace) -> "Material":
    from runner.records.shards import find_shards

    here = Path(arguments.directory)
    if any(next(find_shards(here / path), None) for path in arguments.paths):
        from runner.ci.report_material import of_shards
        from runner.cli.shard_view import load_joined

        return of_shards(load_joined(arguments))
    if len(arguments.paths) > 1 or arguments.matrix or arguments.only:
        raise CommandLineError(
            f"there is no shard in {', '.join(arguments.paths) or 'no DIR'}",
            "give one RUN, or the folders that hold the artifacts of the jobs.",
        )
    from isolation.git.repository import Repository
    from runner.ci.report_material import of_repository
    from runner.cli.observer import Observer
    from runner.report.document import as_it_stands

    with Observer(arguments.directory, next(iter(arguments.paths), None)) as observer:
        sight = observer.look()
        events = observer.journal.events(observer.run_id)
    run = as_it_stands(sight.run, alive=not sight.over)
    return of_repository(Repository.open(here), run, events, now=None if sight.over else time.time())


def _rendered(material: "Material", form: str) -> str:
    match form:
        case "html":
            from runner.report.html.page import html

            return html(material)
        case "markdown":
            from runner.report.markdown import markdown

            return markdown(material)
        case "junit":
            from runner.report.junit import junit

            return junit(material)
        case _:
            from runner.report import annotations

            return annotations.github(material) if form == "github" else annotations.gitlab(material)


def _write(path: Path, text: str) -> None:
    from isolation.files.disk import replace_file
    from runner.core.errors import SystemFaultError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode(errors="replace"))
    except OSError as error:
        raise SystemFaultError(
            f"{path} cannot be written: {error.strerror}", hint="check the permissions of its folder."
        ) from error
