"""Instants in the HTML report: UTC as text, which a few lines of script turn into the reader's own time.

The page may run this script and no other: its policy names the script's digest. Where scripts do not run,
the times stay UTC, and the footer says so.
"""

import base64
import hashlib
from functools import cache
from importlib import resources

from runner.core.text.instants import iso


def instant(at: float) -> str:
    """Return a date and time, to the second."""
    text = iso(at)
    return f'<time datetime="{text}">{text[:10]} {text[11:19]}</time>'


def clock_time(at: float) -> str:
    """Return a time of day, to the second."""
    text = iso(at)
    return f'<time class="clock" datetime="{text}">{text[11:19]}</time>'


@cache
def script() -> str:
    """Return the script that the page runs."""
    return resources.files("runner.report.html").joinpath("report.js").read_text(encoding="utf-8")


def policy() -> str:
    """Return what the page may do: use its own styles, and run `script`."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
