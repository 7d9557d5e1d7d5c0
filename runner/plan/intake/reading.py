"""The stories of sources outside of the repository, read and made into stories. Writes nothing."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runner.core.model import StoryId
from runner.forge.intake.read import read_issues
from runner.forge.intake.source import parse_source
from runner.plan.intake.imported_story import Imported, import_issues


def load_imported(
    sources: Sequence[str],
    environ: Mapping[str, str],
    *,
    cwd: Path,
    known: Mapping[str, StoryId] | None = None,
    pause: Callable[[float], None] = time.sleep,
    say: Callable[[str], None],
) -> Imported:
    """Read every issue of every source, then make stories of them; `say` says why it takes long. Blocks."""
    parsed = [parse_source(text, cwd=cwd) for text in sources]  # all of them, before one is asked
    issues = [issue for each in parsed for issue in read_issues(each, environ, pause=pause, say=say)]
    return import_issues(list(dict.fromkeys(issues)), known=known)
