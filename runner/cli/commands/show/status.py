"""Show the state of a run: the active one, else the newest, or the one that you name.

If this repository has had no run yet, the command shows where its stories are by their state files, and which
have not begun. Nothing is started or changed.

With --watch the display follows the run until it ends, or a landing; with --json --watch the document is
printed at the end.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.core.model import RunSnapshot
    from runner.core.outlook.left import Outlook
    from runner.core.progress.landing import LandingProgress
    from runner.flows.state.aggregate import Row
    from runner.report.terminal.table import Look
    from runner.run.control.reader import RunReader

EXAMPLE = "autopilot-multi status --watch"

POLL_SECONDS = 0.25
EXIT_INTERRUPTED = 130
LANDING_HINT = "Ctrl-C: stop watching; the landing continues"
_SIGNS = ("stories", "_docs", "autopilot-multi.toml", ".config", "AGENTS.md", "CLAUDE.md")
"""What a repository has in which stories may be found although nothing has run."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `status`."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="the id of a run or its first characters")
    parser.add_argument("--watch", action="store_true", help="follow the run, or a landing, until it ends")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Show the run once, or until it ends."""
    from runner.core.errors import NotFoundError
    from runner.run.control.reader import RunReader

    try:
        opened = RunReader(arguments.directory, arguments.run)
    except NotFoundError:
        if arguments.run is None and _show_positions(arguments, output):
            return 0
        raise
    with opened as reader:
        if arguments.watch:
            try:
                if watch(reader, arguments, output):
                    return 0
            except KeyboardInterrupt:
                return EXIT_INTERRUPTED
        _show(reader, arguments, output)
    return 0


def _show_positions(arguments: argparse.Namespace, output: Output) -> bool:
    """Show where the stories are although nothing has run; return whether there are any."""
    if not _may_have_stories(Path(arguments.directory)):
        return False
    from runner.cli.positions import positions_document, positions_text, rows_without_run
    from runner.report.terminal.table import look_for

    rows = rows_without_run(Path(arguments.directory))
    if rows:
        output.document(positions_document(rows))
        output.answer(positions_text(rows, look_for(sys.stdout, no_color=arguments.no_color)))
        output.say("nothing has run here yet; start with `autopilot-multi`")
    return bool(rows)


def _may_have_stories(directory: Path) -> bool:
    """Whether a look for stories is worth it: reading the settings takes longer than everything else."""
    from isolation.paths import find_repository

    top = find_repository(directory).top
    return "AUTOPILOT_MULTI_STORIES" in os.environ or any((top / name).exists() for name in _SIGNS)


def _show(reader: "RunReader", arguments: argparse.Namespace, output: Output) -> None:
    from runner.core.schedule.offers import without_offers
    from runner.core.text.words import count
    from runner.report.run_document import run_document, with_outlook
    from runner.report.terminal.table import look_for
    from runner.report.terminal.text import status
    from runner.run.control.merged import with_merged

    current = reader.read()
    run = with_merged(current.run, arguments.directory) if current.over else current.run
    rows = _flow_rows(run, arguments.directory)
    landing, active = reader.landing(run)
    if active:
        run = without_offers(run)
    now = time.time()
    expected = _outlook(reader, run, now) if not current.over else None
    if output.as_json:
        document = run_document(run, alive=current.alive, landing=active)
        if expected is not None:
            document = with_outlook(document, run, expected, now)
        output.document(
            {
                **document,
                **_attention_document(rows),
                "last_landing": _landing_document(landing, active),
                "spare_worktrees": _spares(arguments.directory),
            }
        )
    else:
        look = look_for(sys.stdout, no_color=arguments.no_color)
        run = reader.with_last_lines(run)
        urgent = _attention(rows, look)
        lines = _landing_lines(landing, active, run)
        text = status(
            run,
            look=look,
            now=now,
            alive=current.alive,
            urgent=urgent,
            landing=lines,
            outlook=expected,
        )
        spares = _spares(arguments.directory)
        ready = f"\n{count(spares, 'spare worktree')} ready for stories" if spares else ""
        output.answer(text + ready)
        output.say_where(arguments.directory)


def _outlook(reader: "RunReader", run: "RunSnapshot", now: float) -> "Outlook":
    from runner.core.outlook.left import outlook

    return outlook(run, reader.past_samples(), now)


def _spares(directory: str) -> int:
    """Count the worktrees that are kept ready."""
    from isolation.paths import find_repository, pool_dir

    return sum(1 for _ in pool_dir(find_repository(Path(directory)).common_dir).glob("*.seal"))


# Most runs have neither a landing nor such rows, and what these import takes longer than everything else.


def _landing_lines(landing: "LandingProgress | None", active: str, run: "RunSnapshot") -> list[str]:
    if landing is None:
        return []
    from runner.report.terminal.train import landing_lines

    alive = landing.id == active
    head, *more = landing_lines(landing, now=time.time(), alive=alive, besides=run.stories)
    return [head, *(f"  {line}" for line in more)]


def _landing_document(landing: "LandingProgress | None", active: str) -> dict[str, Any] | None:
    if landing is None:
        return None
    from runner.report.landing_document import landing_document

    return landing_document(landing, alive=landing.id == active)


def _flow_rows(run: "RunSnapshot", directory: str) -> "list[Row]":
    from runner.run.control.reader import has_more

    if not any(map(has_more, run.stories.values())):
        return []
    from isolation.paths import find_repository
    from runner.cli.positions import flow_rows

    return flow_rows(run, find_repository(Path(directory)).top)


def _attention(rows: "list[Row]", look: "Look") -> list[str]:
    if not rows:
        return []
    from runner.cli.positions import attention

    return attention(rows, look)


def _attention_document(rows: "list[Row]") -> dict[str, Any]:
    if not rows:
        return {"blockers": [], "retries": []}
    from runner.cli.positions import attention_document

    return attention_document(rows)


def watch(reader: "RunReader", arguments: argparse.Namespace, output: Output) -> bool:
    """Follow the run until it ends, and a landing; return whether the user left before.

    The caller prints the final state.
    """
    if output.as_json:
        while not reader.read().over or reader.landing(reader.read().run)[1]:
            time.sleep(POLL_SECONDS)
    elif sys.stdout.isatty():
        from runner.cli.live.watch import watch_run

        if watch_run(reader, Path(arguments.directory), no_color=arguments.no_color):
            return True
        _draw_landing(reader, no_color=arguments.no_color)
    else:
        _repeat(reader, arguments, output)
    return False


def _draw_landing(reader: "RunReader", *, no_color: bool) -> None:
    landing, active = reader.landing(reader.read().run)
    if landing is None or not active:
        return
    from rich.console import Console

    from runner.report.terminal.train import TrainBoard

    console = Console(no_color=no_color or None, highlight=False)
    with TrainBoard(landing, console=console, hint=LANDING_HINT) as board:
        while landing is not None and active:
            board.landing = landing
            board.refresh(time.time())
            time.sleep(POLL_SECONDS)
            landing, active = reader.landing(reader.read().run)


def _repeat(reader: "RunReader", arguments: argparse.Namespace, output: Output) -> None:
    """Print the table again whenever the run, or the landing, has changed."""
    current, shown = reader.read(), None
    while not current.over or reader.landing(current.run)[1]:
        state = (current.run, reader.landing(current.run))
        if state != shown:
            _show(reader, arguments, output)
            output.answer("\n")
            shown = state
        time.sleep(POLL_SECONDS)
        current = reader.read()
