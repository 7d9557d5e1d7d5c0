"""Join the shards of CI jobs into one run, or list the state files of many stories in one table.

If a PATH contains shards (see `run --shard-out`), they are joined and shown the way `status` shows a
run. The exit code is that of a single run; a missing or contradictory shard is never a success.
Nothing is changed unless you pass --into-repo or --branches.

Otherwise a PATH is a state file, or a folder to search for `_autodev_state.md` and
`_autopilot_state.md`. Without a PATH, the command searches the worktrees of this repository's stories
and the checkout itself. A file that cannot be read is listed with its problem, and the exit code is 1
after all files are shown.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import CommandLineError, common

if TYPE_CHECKING:
    from runner.flows.state.aggregate import Row
    from runner.report.terminal.table import Cell, Look

EXAMPLE = "autopilot-multi aggregate artifacts/ ../shop.worktrees"

NAMES = ("_autodev_state.md", "_autopilot_state.md")
STORIES = "stories"
DOCS = "_docs"
NOT_SEARCHED = frozenset({".git", ".venv", "node_modules", "__pycache__"})
UNREADABLE = "unreadable"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `aggregate`."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="a folder with shards, a state file, or a folder to search for state files",
    )
    shards = parser.add_argument_group("shards")
    shards.add_argument(
        "--matrix",
        metavar="FILE",
        help="the output of `matrix --format json`: each of its stories needs a shard (default: the backlog)",
    )
    shards.add_argument(
        "--only", metavar="ID", action="append", help="require a shard only for this story; repeatable"
    )
    shards.add_argument(
        "--branches", action="store_true", help="import the branches of the stories into this clone"
    )
    shards.add_argument(
        "--into-repo",
        action="store_true",
        help="save the run in this repository, so that status, report and resume can use it",
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Join shards if any folder contains some, otherwise list state files."""
    from runner.records.shards import find_shards

    here = Path(arguments.directory)
    if any(next(find_shards(here / path), None) for path in arguments.paths):
        from runner.cli.shards import join_shards

        return join_shards(arguments, output)
    for flag in ("matrix", "only", "branches", "into_repo"):
        if getattr(arguments, flag):
            raise CommandLineError(
                f"--{flag.replace('_', '-')} needs shards, and {_list_paths(arguments.paths)} contains none",
                "pass the folder that contains the artifacts of the CI jobs.",
            )
    return _aggregate_states(arguments, output)


def _list_paths(paths: Sequence[str]) -> str:
    return ", ".join(paths) or "the command line"


def _aggregate_states(arguments: argparse.Namespace, output: Output) -> int:
    """Read every file once; show blockers and retries first, then the table."""
    from runner.flows.state.aggregate import state_json
    from runner.report.terminal.table import look_for

    rows = _rows(arguments)
    readable = all(row.state is not None for row in rows)
    states = [{"story": row.story, **state_json(row.found)} for row in rows]
    counts = Counter(row.state.status.value if row.state else UNREADABLE for row in rows)
    output.document({"states": states, "counts": _counts(counts)}, success=readable)
    if not rows:
        output.answer("no state files")
        return 0
    output.answer(_text(rows, look_for(sys.stdout, no_color=arguments.no_color)))
    return 0 if readable else 1


def _counts(counted: "Counter[str]") -> dict[str, int]:
    from runner.flows.state.model import StepStatus

    names = (*(status.value for status in StepStatus), UNREADABLE)
    return {"total": counted.total(), **{name: counted[name] for name in names}}


def _rows(arguments: argparse.Namespace) -> "list[Row]":
    from runner.flows.overview import vocabulary_of
    from runner.flows.state.aggregate import Row
    from runner.flows.state.disk.collection import Found, collect
    from runner.flows.state.vocabulary import STANDARD

    here = Path(arguments.directory)
    top = _top(here)
    wanted = [here / path for path in arguments.paths] if arguments.paths else _default_folders(here)
    paths: dict[str, Path] = {}
    empty: list[Found] = []
    for path in wanted:
        found = list(_search(path)) if path.is_dir() else [path]
        for one in found:
            # The same file may be reachable through a link or two overlapping arguments.
            paths.setdefault(os.path.realpath(one), one)
        if not found and arguments.paths:
            empty.append(Found(path=path, problem="folder contains no state file"))
    vocabulary = vocabulary_of(top) if top is not None else STANDARD
    collected = [*collect(paths.values(), vocabulary=vocabulary), *empty]
    return [Row(story=_story(found.path), found=found) for found in collected]


def _top(here: Path) -> Path | None:
    """Return the checkout that contains a folder; its state files may name the flows defined there."""
    from isolation.errors import RepositoryError
    from isolation.paths import find_repository

    try:
        return find_repository(here).top
    except RepositoryError:
        return None


def _default_folders(here: Path) -> list[Path]:
    """Return the document folders of all story worktrees and of the checkout itself."""
    from isolation.git.repository import Repository
    from runner.plan.plan import worktree_root_of
    from runner.plan.settings.load import load_settings

    repository = Repository.open(here)
    root = worktree_root_of(
        repository, load_settings(top=repository.top, flags={}, environ=os.environ).settings
    )
    worktrees = sorted(root.iterdir()) if root.is_dir() else []
    return [folder / DOCS for folder in (*worktrees, repository.top) if (folder / DOCS).is_dir()]


def _search(folder: Path) -> Iterator[Path]:
    """Find the state files below a folder, in order; symbolic links to folders are not followed."""
    for inside, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in NOT_SEARCHED)
        yield from (Path(inside, name) for name in NAMES if name in files)


def _story(path: Path) -> str:
    """Return the name of the story that a file belongs to, from its path or from its own file name."""
    if path.name not in NAMES:
        return path.stem
    parts = Path(os.path.realpath(path)).parts[:-1]
    if parts[-2:-1] == (STORIES,):
        return parts[-1]
    owner = parts[-2] if len(parts) > 1 and parts[-1] == DOCS else parts[-1]
    return path.stem if owner == os.sep else owner


def _text(rows: "Sequence[Row]", look: "Look") -> str:
    """Format blockers and failed attempts, then the table, then the files that could not be read."""
    from runner.core.text.screen import neutral
    from runner.report.terminal.table import Column, layout

    readable = [row for row in rows if row.state is not None]
    lines: list[str] = []
    for row in readable:
        for text in row.all_blockers():
            lines += look.wrapped(neutral(f"blocker: {row.story}: {text}"), color="red")
    for row in readable:
        for entry in row.all_retries():
            tried = f"attempt {entry.attempt} at step {entry.step} failed: {entry.reason}"
            lines += look.wrapped(neutral(f"retry: {row.story}: {tried}"), color="yellow")
    if readable:
        titles = ("STORY", "DIALECT", "FLOW", "STEP", "STATUS", "RETRIES", "FILE")
        columns = [Column(title=title, limit=None if title == "FILE" else 28) for title in titles]
        lines += [*([""] if lines else []), *layout(columns, [_cells(row) for row in readable], look)]
    for row in rows:
        if row.state is None:
            lines += look.wrapped(neutral(f"{UNREADABLE}: {row.found.path}: {row.found.problem}"))
    return "\n".join(lines)


def _cells(row: "Row") -> "list[Cell]":
    from runner.core.text.screen import neutral
    from runner.report.terminal.table import Cell

    state = row.state
    if state is None:
        return []
    cycle = f" (cycle {state.cycle})" if (state.cycle or 1) > 1 else ""
    texts = (
        row.story,
        state.dialect.value,
        (state.flow or "") + cycle,
        f"{state.step} {state.name}",
        state.status.replace("_", " "),
        str(state.retry_count),
        str(row.found.path),
    )
    return [Cell(text=neutral(text)) for text in texts]
