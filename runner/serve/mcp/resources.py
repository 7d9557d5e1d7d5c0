"""What clients can read without a tool: the run as its document, and of each story its log and its diff."""

import json
import re
from pathlib import Path
from urllib.parse import quote, unquote

from msgspec import Struct

from runner.core.errors import NotFoundError
from runner.run.control.reader import RunReader
from runner.serve.mcp.commands import run_command, text_of_command

STATUS = "autopilot://run/status"
TEMPLATES = {
    "autopilot://run/stories/{story}/log": "what the sessions of a story printed",
    "autopilot://run/stories/{story}/diff": "what a story has changed since its base",
}
MOST_LETTERS = 200_000
"""How much of a log or a diff is returned: the end of the one, the beginning of the other."""

_STORY = re.compile(r"autopilot://run/stories/([^/]+)/(log|diff)")


class Resource(Struct, frozen=True, kw_only=True):
    """Something that can be read."""

    uri: str
    name: str
    description: str
    mime_type: str


class Content(Struct, frozen=True, kw_only=True):
    """What was read."""

    text: str
    mime_type: str


def resources_of(directory: Path) -> list[Resource]:
    """Return what can be read now; before the first run there are no stories. Blocks."""
    status = Resource(
        uri=STATUS,
        name="status",
        description="the active run, else the newest: the document of `status --json`",
        mime_type="application/json",
    )
    try:
        with RunReader(str(directory)) as reader:
            names = list(reader.read().run.stories)
    except NotFoundError:
        return [status]
    return [status, *(_resource(name, kind) for name in names for kind in ("log", "diff"))]


def read_resource(directory: Path, uri: str) -> Content:
    """Read one of them; raise if there is nothing of that name. Blocks."""
    if uri == STATUS:
        text = json.dumps(run_command(directory, "status"), ensure_ascii=False)
        return Content(text=text, mime_type="application/json")
    found = _STORY.fullmatch(uri)
    if found is None:
        raise NotFoundError(
            f"there is no resource '{uri}'", hint=f"there are {STATUS} and {', '.join(TEMPLATES)}."
        )
    name, kind = unquote(found[1]), found[2]
    if kind == "log":
        text = text_of_command(directory, "logs", "--", name)[-MOST_LETTERS:]
        return Content(text=text, mime_type="text/plain")
    return Content(
        text=text_of_command(directory, "diff", "--", name)[:MOST_LETTERS], mime_type="text/x-diff"
    )


def _resource(story: str, kind: str) -> Resource:
    return Resource(
        uri=f"autopilot://run/stories/{quote(story, safe='')}/{kind}",
        name=f"{story}: {kind}",
        description=TEMPLATES[f"autopilot://run/stories/{{story}}/{kind}"],
        mime_type="text/plain" if kind == "log" else "text/x-diff",
    )
