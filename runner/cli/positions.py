"""Where stories are in their flows, as commands show it: by state files, by the backlog, or in a run."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from isolation.errors import RepositoryError
from isolation.git.repository import Repository
from isolation.paths import find_repository
from runner.core.errors import RunnerError
from runner.core.flow import PROJECT_DOCS, STATE_NAMES
from runner.core.model import RunSnapshot, Story, StoryId
from runner.core.settings import Settings
from runner.core.text.screen import neutral
from runner.flows.overview import rows_of, unbegun, vocabulary_of
from runner.flows.state.aggregate import Row, state_json
from runner.flows.state.disk.collection import Found, collect
from runner.flows.state.model import StepStatus
from runner.flows.state.vocabulary import STANDARD
from runner.report.terminal.table import Cell, Column, Look, layout
from runner.run.control.reader import has_more

STORIES = "stories"
NOT_SEARCHED = frozenset({".git", ".venv", "node_modules", "__pycache__"})
UNREADABLE = "unreadable"


def rows_in(here: Path, named: Sequence[Path] = ()) -> list[Row]:
    """Return a row for every state file: those that are named, else those of this repository's stories."""
    top = _top(here)
    wanted = named or _default_folders(here)
    paths: dict[str, Path] = {}
    empty: list[Found] = []
    for path in wanted:
        found = list(_search(path)) if path.is_dir() else [path]
        for one in found:
            # The same file may be reachable through a link or two overlapping arguments.
            paths.setdefault(os.path.realpath(one), one)
        if not found and named:
            empty.append(Found(path=path, problem="folder contains no state file"))
    vocabulary = vocabulary_of(top) if top is not None else STANDARD
    collected = [*collect(paths.values(), vocabulary=vocabulary), *empty]
    return [Row(story=_story(found.path), found=found) for found in collected]


def rows_without_run(here: Path) -> list[Row]:
    """Return a row for every story of a repository: its state file, or that it has not begun."""
    from runner.plan.settings.load import load_settings

    repository = Repository.open(here)
    settings = load_settings(top=repository.top, flags={}, environ=os.environ).settings
    rows = rows_in(here)
    known = {row.story for row in rows}
    backlog = _backlog(repository.top, settings)
    return [*rows, *(unbegun(story, settings.dialect) for story in backlog if story.id not in known)]


def _backlog(top: Path, settings: Settings) -> tuple[Story, ...]:
    """Return the stories of the backlog; none if there is none that can be read, which `plan` explains."""
    from runner.plan.stories.sources import load_stories

    try:
        return tuple(load_stories((), top=top, default=settings.stories, cwd=top))
    except RunnerError:
        return ()


def flow_rows(run: RunSnapshot, top: Path) -> list[Row]:
    """Return the rows of a run's stories about which more is known than in the run: `has_more` says which."""
    return [
        row
        for row in rows_of(run, vocabulary=vocabulary_of(top))
        if has_more(run.stories[StoryId(row.story)])
    ]


def attention(rows: Sequence[Row], look: Look) -> list[str]:
    """Return what blocks stories, and their failed attempts, a line each."""
    lines: list[str] = []
    for row in rows:
        for text in row.all_blockers():
            lines += look.wrapped(neutral(f"blocker: {row.story}: {text}"), color="red")
    for row in rows:
        for entry in row.all_retries():
            where = f"{entry.step}, sub-step {entry.sub_step}," if entry.sub_step else entry.step
            tried = f"attempt {entry.attempt} at step {where} failed: {entry.reason}"
            lines += look.wrapped(neutral(f"retry: {row.story}: {tried}"), color="yellow")
    return lines


def attention_document(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the same as JSON values."""
    return {
        "blockers": [{"story_id": row.story, "text": text} for row in rows for text in row.all_blockers()],
        "retries": [
            {"story_id": row.story, **structs.asdict(entry)} for row in rows for entry in row.all_retries()
        ],
    }


def positions_document(rows: Sequence[Row]) -> dict[str, Any]:
    """Return state files as JSON values, and how many are in which status."""
    states = [{"story": row.story, **state_json(row.found)} for row in rows]
    counts = Counter(row.state.status.value if row.state else UNREADABLE for row in rows)
    return {"states": states, "counts": _counts(counts)}


def positions_text(rows: Sequence[Row], look: Look) -> str:
    """Format blockers and failed attempts, then the table, then the files that could not be read."""
    readable = [row for row in rows if row.state is not None]
    lines = attention(readable, look)
    if readable:
        titles = ("STORY", "DIALECT", "FLOW", "STEP", "STATUS", "RETRIES", "FILE")
        columns = [Column(title=title, limit=None if title == "FILE" else 28) for title in titles]
        lines += [*([""] if lines else []), *layout(columns, [_cells(row) for row in readable], look)]
    for row in rows:
        if row.state is None:
            lines += look.wrapped(neutral(f"{UNREADABLE}: {row.found.path}: {row.found.problem}"))
    return "\n".join(lines)


def _cells(row: Row) -> list[Cell]:
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


def _counts(counted: Counter[str]) -> dict[str, int]:
    names = (*(status.value for status in StepStatus), UNREADABLE)
    return {"total": counted.total(), **{name: counted[name] for name in names}}


def _top(here: Path) -> Path | None:
    """Return the checkout that contains a folder; its state files may name the flows defined there."""
    try:
        return find_repository(here).top
    except RepositoryError:
        return None


def _default_folders(here: Path) -> list[Path]:
    """Return the document folders of all story worktrees and of the checkout itself."""
    from runner.plan.repositories.site import worktree_root_of
    from runner.plan.settings.load import load_settings

    repository = Repository.open(here)
    root = worktree_root_of(
        repository, load_settings(top=repository.top, flags={}, environ=os.environ).settings
    )
    worktrees = sorted(root.iterdir()) if root.is_dir() else []
    return [
        folder / PROJECT_DOCS for folder in (*worktrees, repository.top) if (folder / PROJECT_DOCS).is_dir()
    ]


def _search(folder: Path) -> Iterator[Path]:
    """Find the state files below a folder, in order; symbolic links to folders are not followed."""
    for inside, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in NOT_SEARCHED)
        yield from (Path(inside, name) for name in STATE_NAMES if name in files)


def _story(path: Path) -> str:
    """Return the name of the story that a file belongs to, from its path or from its own file name."""
    if path.name not in STATE_NAMES:
        return path.stem
    parts = Path(os.path.realpath(path)).parts[:-1]
    if parts[-2:-1] == (STORIES,):
        return parts[-1]
    owner = parts[-2] if len(parts) > 1 and parts[-1] == PROJECT_DOCS else parts[-1]
    return path.stem if owner == os.sep else owner
