"""The formats of a report. Adding one takes its writer in this folder and one line in `FORMATS`."""

from collections.abc import Callable
from typing import NamedTuple

from runner.report.annotations import github, gitlab
from runner.report.html.page import html
from runner.report.junit import junit
from runner.report.markdown import markdown
from runner.report.report_data import ReportData


class Format(NamedTuple):
    """A format: the line that the help shows, and the function that returns the report's text."""

    help: str
    write: Callable[[ReportData], str]


FORMATS = {
    "html": Format(
        "one self-contained page: timeline, one card per story, the last output of the sessions", html
    ),
    "markdown": Format("a summary, for example for $GITHUB_STEP_SUMMARY", markdown),
    "github": Format("annotations, as workflow commands", github),
    "gitlab": Format("a code quality report", gitlab),
    "junit": Format("JUnit XML: one suite per story, one case per session", junit),
}


def format_help() -> str:
    """Return one line per format, for the help of the `report` command."""
    width = max(map(len, FORMATS)) + 2
    return "\n".join(f"{name:{width}}{one.help}" for name, one in FORMATS.items())
