"""What a reviewer reads: the story, the difference that was made for it, and how to answer. Pure."""

import json
import re

from isolation.git.diffstat import ChangedPath, Diff
from runner.core.model import Story
from runner.core.text.words import count

MOST_LINES = 1500
_MOST_CHARACTERS = 100_000
_MOST_PATHS = 100
ACCEPT = {"review": "accept"}
AGAIN = {"review": "again", "because": "what is wrong, in words for the one who tries again"}


def review_prompt(
    story: Story,
    verify: tuple[str, ...],
    changed: tuple[ChangedPath, ...],
    diff: Diff,
    *,
    base: str,
    result: str,
) -> str:
    """Return the prompt; a large difference is cut, with the command that shows all of it."""
    text = diff.text[:_MOST_CHARACTERS]
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    whole = diff.whole and len(text) == len(diff.text)
    return "\n".join(
        [
            f"# Review: {story.title}",
            "",
            "Somebody else has worked on the story below, and the work is committed. Read what was changed",
            "and decide whether it does what the story asks. This folder is a checkout of that commit for",
            "you alone: read and run what you like. Change nothing; whatever you leave here is discarded.",
            *(["", "These commands pass:", *(f"- `{command}`" for command in verify)] if verify else []),
            "",
            "## The story",
            "",
            story.prompt.strip() or story.title,
            "",
            f"## The difference: {count(len(changed), 'file')}",
            "",
            *(f"- {one.path}{_lines(one)}" for one in changed[:_MOST_PATHS]),
            *([f"- and {len(changed) - _MOST_PATHS} more"] if len(changed) > _MOST_PATHS else []),
            "",
            f"{fence}diff",
            text,
            fence,
            *([] if whole else [f"This is not all of it: `git diff {base[:12]} HEAD` shows the rest."]),
            "",
            "## Your answer",
            "",
            f"Write one of these JSON objects to `{result}`, or print it as your last line:",
            "",
            f"    {json.dumps(ACCEPT)}",
            f"    {json.dumps(AGAIN)}",
            "",
            "Ask for another attempt if the story is not done, or something broke; not for matters of taste.",
            "",
        ]
    )


def _lines(change: ChangedPath) -> str:
    return "" if change.added is None or change.removed is None else f" (+{change.added} -{change.removed})"
