"""Where the documents of a story are: its state file and the artifacts of its steps.

Each story has a folder of its own, `_docs/stories/<id>/` unless the setting `docs-folder` says otherwise, so
that stories neither inherit each other's progress nor conflict when they are merged.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from runner.core.flow import PROJECT_DOCS, STATE_NAMES, docs_folder, state_paths


def state_file_in(folder: Path) -> Path | None:
    """Return the state file of a folder; None if it has none."""
    return next((path for name in STATE_NAMES if (path := folder / name).exists()), None)


def find_docs(workspace: Path, template: str, story_id: str, changed: Callable[[], Collection[str]]) -> str:
    """Return the folder of a story's documents in its workspace.

    A story that already keeps its state file in the project's folder stays there. Whether that file is its
    own is visible from the paths that it has `changed` since its base: another story's file came with it.
    """
    own = docs_folder(template, story_id)
    if own == PROJECT_DOCS or state_file_in(workspace / own) is not None:
        return own
    known = [path for path in state_paths(PROJECT_DOCS) if (workspace / path).exists()]
    return PROJECT_DOCS if known and set(known) & set(changed()) else own
