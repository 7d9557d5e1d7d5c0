"""The file of a story that is about to start, read again: the user may have edited it since the plan.

What a story says (title, prompt, priority) is taken as it is now. What it runs is not: that needs consent.
"""

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from runner.core.errors import RunnerError
from runner.core.model import Story
from runner.plan.stories.sources import load_stories

_WORKERS = ("agent", "escalate", "review", "best_of", "needs")
_RUNS = ("command", "verify", "depends_on", "mode", "ports", *_WORKERS)


class Edited(Struct, frozen=True, kw_only=True):
    """A story with what was taken of its edited file; `note` says what was not, and what to do about that."""

    story: Story
    note: str = ""


def may_be_edited(story: Story, *, top: Path, since: float) -> bool:
    """Whether the file of a story has changed since then; one look takes less than to wait for a thread."""
    try:
        return bool(story.source) and (top / story.source).stat().st_mtime >= since
    except (OSError, ValueError):  # a prompt has no file, and a file may be gone
        return False


def edited_story(story: Story, *, top: Path) -> Edited | None:
    """Return the story as its file has it now; None if it is not there any more. Blocking."""
    try:
        found = load_stories((str(top / story.source),), top=top, default="")
    except RunnerError as error:
        return Edited(story=story, note=f"its edited file was not taken: {error.message}")
    now = next((each for each in found if each.id == story.id), None)
    if now is None:
        return None
    taken = replace(story, title=now.title, prompt=now.prompt, priority=now.priority)
    changed = [name for name in _RUNS if getattr(now, name) != getattr(story, name)]
    note = (
        f"its file now has another {' and '.join(changed)}, which is not taken without your consent; "
        f"`autopilot-multi add {story.source}` asks for it"
    )
    return Edited(story=taken, note=note if changed else "")
