"""Show one story of a run: where it is and why, its sessions, its commits, and what to do next."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runner.core.model import SessionRecord
    from runner.run.control.story_view import CommitLine, StoryView

EXAMPLE = "autopilot-multi show checkout-17"

SEES_TREES = True
_SHORT = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `show`."""
    parser.add_argument("story", metavar="STORY", help="the id of the story")
    parser.add_argument(
        "--run", metavar="RUN", help="the id of a run or its first characters (default: newest)"
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Read the story and show it."""
    from isolation.git.repository import Repository
    from runner.run.control.reader import RunReader
    from runner.run.control.story_view import commits_of, story_view, view_document
    from runner.run.several.places import repository_of

    with RunReader(arguments.directory, arguments.run) as reader:
        view = story_view(reader, arguments.story)
    repository = repository_of(Repository.open(Path(arguments.directory)), view.run, view.story.id)
    commits = commits_of(repository, view)
    output.document(view_document(view, commits))
    output.answer("\n".join(_lines(view, commits)))
    output.say_where(arguments.directory)
    return 0


def _lines(view: "StoryView", commits: "Sequence[CommitLine]") -> "Iterator[str]":
    from runner.core.text.screen import neutral
    from runner.core.text.words import because, label

    story = view.story
    yield neutral(f"{story.id}: {story.title}")
    facts = {
        "status": f"{label(story.status)}{f': {because(story)}' if story.reason else ''}",
        "step": f"{story.place.number} ({story.place.name}), attempt {story.progress.attempt} "
        f"of {story.max_attempts}",
        "depends on": ", ".join(story.depends_on),
        "repository": view.run.repo_name(story.repo),
        "branch": story.workspace.branch or "",
        "draft": story.workspace.draft.url if story.workspace.draft else "",
        "workspace": str(view.workspace or ""),
        "written in": view.written.source if view.written else "",
        "decision": str(story.decision.question.get("question", "")) if story.decision else "",
        "next": story.next,
    }
    for name, value in facts.items():
        if value:
            yield neutral(f"  {name + ':':<11} {value}")
    if story.sessions:
        yield "  sessions:"
        yield from (f"    {neutral(_session(session))}" for session in story.sessions)
    if commits:
        yield "  commits:"
        yield from (f"    {one.id[:_SHORT]} {neutral(one.subject)}" for one in commits)


def _session(session: "SessionRecord") -> str:
    from runner.core.text.instants import span

    took = span((session.ended_at or time.time()) - session.started_at)
    cost = "" if session.usage.cost_usd is None else f", ${session.usage.cost_usd:.2f}"
    outcome = session.outcome.value if session.outcome else "no end recorded yet"
    detail = f": {session.detail}" if session.detail else ""
    return (
        f"{session.kind.value} {session.step.number} ({session.step.name}), attempt {session.attempt}, "
        f"{session.worker or 'command'}: {outcome} in {took}{cost}{detail}"
    )
