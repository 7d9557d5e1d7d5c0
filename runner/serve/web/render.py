"""Templates become HTML here; whatever they are given is escaped."""

import time
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from runner.core.text.instants import iso, span, stopwatch
from runner.core.text.screen import neutral

STATIC = {
    "shared.css": ("runner.report.html", "shared.css", "text/css"),
    "page.css": ("runner.serve.web", "static/page.css", "text/css"),
    "page.js": ("runner.serve.web", "static/page.js", "text/javascript"),
    "icon.svg": ("runner.serve.web", "static/icon.svg", "image/svg+xml"),
}


@cache
def environment() -> Environment:
    """Return the templates; autoescape is on for all of them."""
    made = Environment(
        loader=PackageLoader("runner.serve.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        iso=iso,
        span=span,
        stopwatch=stopwatch,
        neutral=neutral,
        clock=lambda at: iso(at)[11:19],
        day=lambda at: f"{iso(at)[:10]} {iso(at)[11:16]}",
    )
    made.globals.update(now=time.time)
    return made


def render(template: str, **values: Any) -> str:
    """Return a template with its values."""
    return environment().get_template(template).render(**values)


@cache
def static(name: str) -> tuple[bytes, str] | None:
    """Return a file that pages use, and its type; None for any other name."""
    if name not in STATIC:
        return None
    package, path, kind = STATIC[name]
    return resources.files(package).joinpath(path).read_bytes(), f"{kind}; charset=utf-8"
