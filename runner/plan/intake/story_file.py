"""The file of an imported story, and whether it is still as it was written.

The file holds a digest of itself. As long as that fits, a newer version of the issue may take its place. A
file that somebody has edited, or written, is never replaced.
"""

import hashlib
import json

from isolation.patterns import pattern
from runner.core.model import Story

_DIGEST = pattern(r'(?m)^origin_digest: "([0-9a-f]{32})"\n')


def story_file(story: Story) -> str:
    """Return the Markdown file of an imported story; what is in it was cleaned when it was read."""
    keys: list[tuple[str, object]] = [("id", story.id), ("title", story.title)]
    keys += [("priority", story.priority)] if story.priority else []
    keys += [("depends_on", list(story.depends_on))] if story.depends_on else []
    keys += [("labels", list(story.labels))] if story.labels else []
    keys += [("origin", story.origin)]
    # JSON is YAML, so no text can end its value, or become another key.
    head = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in keys)
    head, rest = f"---\n{head}", f"---\n{story.prompt}\n"
    return f'{head}origin_digest: "{_digest(head + rest)}"\n{rest}'


def is_untouched(text: str) -> bool:
    """Whether a file is still exactly what an import wrote."""
    mark = _DIGEST.search(text)
    return mark is not None and _digest(text[: mark.start()] + text[mark.end() :]) == mark.group(1)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
