"""Show what a story's sessions did: the newest one, or of a failed story the end of the one that failed.

The output of an agent is shown as a conversation: its messages, a line for each tool call, the first lines
of results. On a terminal it goes through a pager (PAGER, else less). --raw prints the original bytes, --all
every session, oldest first. With -f the output is followed until the story ends. --base shows what the
verify commands printed on the base.
"""

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.cli.logs.selection import Numbered
    from runner.core.model import StoryId, StorySnapshot
    from runner.run.control.reader import CurrentRun, RunReader

EXAMPLE = "autopilot-multi logs checkout-17 -f"

POLL_SECONDS = 0.2
RUNS_SEARCHED = 50
MOST_LINES = 1000
"""How many lines are printed without a pager, unless more were asked for."""
FAILED_LINES = 60
"""How much of the session that failed is shown: an error is at the end."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `logs`."""
    parser.add_argument("story", nargs="?", metavar="STORY", help="the id of the story")
    parser.add_argument(
        "--base",
        action="store_true",
        help="what the verify commands printed on the base before the first session",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing until the story ends")
    parser.add_argument(
        "--run",
        metavar="RUN",
        help="the id of a run or its first characters (default: the newest with the story)",
    )
    parser.add_argument(
        "--session", metavar="N", type=int, help="session number N of the story, or command number N"
    )
    parser.add_argument("--attempt", metavar="N", type=int, help="all sessions of attempt N")
    parser.add_argument(
        "--failed", action="store_true", help="the end of the newest session that failed, and why"
    )
    parser.add_argument("--all", action="store_true", help="all sessions, oldest first")
    parser.add_argument("-n", "--lines", metavar="N", type=int, help="only the last N lines")
    parser.add_argument("--raw", action="store_true", help="print the original bytes")
    parser.add_argument("--no-pager", action="store_true", help="print to the terminal directly")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the logs; with -f, follow them."""
    from runner.cli.logs.base import show_base
    from runner.cli.logs.selection import require_one_choice
    from runner.core.errors import UsageError
    from runner.run.control.reader import RunReader

    if arguments.base == bool(arguments.story):
        raise UsageError(
            "`logs` needs the id of a story, or --base",
            hint="`autopilot-multi status` lists the stories; --base is what ran before the first session.",
        )
    if arguments.lines is not None and arguments.lines < 1:
        raise UsageError(f"-n {arguments.lines}: a number of lines is at least 1", hint="use -n 50.")
    require_one_choice(arguments)
    with RunReader(arguments.directory, arguments.run) as reader:
        if arguments.base:
            return show_base(reader, arguments, output)
        story_id = _find_story(reader, arguments.story, named=bool(arguments.run))
        current = reader.read()
        if arguments.follow:
            current = _follow(reader, current, story_id, arguments)
            if not output.as_json:
                return 0
        _show(reader, current, story_id, arguments, output)
    return 0


def _show(
    reader: "RunReader",
    current: "CurrentRun",
    story_id: "StoryId",
    arguments: argparse.Namespace,
    output: Output,
) -> None:
    """Print the sessions that were asked for."""
    from runner.cli.logs.printer import write_raw
    from runner.cli.logs.selection import chosen_sessions

    story = current.run.stories[story_id]
    sessions = chosen_sessions(story, arguments)
    if output.as_json:
        output.document(_document(reader, current, story_id, sessions))
    elif not sessions:
        status = story.status.value.replace("_", " ")
        had = f"had no sessions: {story.reason}" if story.status.final else "has had no sessions yet"
        output.say(f"{story_id} is {status} and {had}")
    elif arguments.raw:
        for _, session in sessions:
            write_raw(reader.log_of(session), arguments.lines)
    else:
        _print(reader, story, sessions, arguments, output)


def _print(
    reader: "RunReader",
    story: "StorySnapshot",
    sessions: list["Numbered"],
    arguments: argparse.Namespace,
    output: Output,
) -> None:
    """Print sessions as people read them."""
    import sys

    from runner.cli.logs.pager import print_lines
    from runner.cli.logs.printer import last_lines, session_lines
    from runner.cli.logs.selection import is_failure
    from runner.core.model import Status
    from runner.report.terminal.failures import what_failed
    from runner.report.terminal.table import look_for

    look = look_for(sys.stdout, no_color=arguments.no_color)
    asked = arguments.session is not None or arguments.attempt is not None or arguments.all
    ends = not asked and is_failure(sessions[-1][1])
    paged = not arguments.no_pager and sys.stdout.isatty()
    most = arguments.lines or (FAILED_LINES if ends else None if asked or paged else MOST_LINES)

    def lines() -> Iterator[str]:
        every = (line for numbered in sessions for line in session_lines(reader, numbered, look))
        number = sessions[-1][0]
        rest = f"; `autopilot-multi logs {story.id} --session {number}` shows them"
        yield from every if most is None else last_lines(every, most, "" if asked else rest)
        if ends and story.status is Status.FAILED:
            yield from ("", *what_failed(story, look))

    print_lines(lines(), output, paged=paged, at_end=ends)


def _follow(
    reader: "RunReader", current: "CurrentRun", story_id: "StoryId", arguments: argparse.Namespace
) -> "CurrentRun":
    """Print what the sessions add until the story ends; return the state at the end."""
    import sys

    from runner.cli.logs.printer import Follower
    from runner.cli.logs.selection import require_session
    from runner.report.terminal.table import look_for

    require_session(current.run.stories[story_id], arguments, later=True)
    follower = Follower(
        reader,
        look_for(sys.stdout, no_color=arguments.no_color),
        most=arguments.lines or FAILED_LINES,
        first=1 if arguments.all else max(1, len(current.run.stories[story_id].sessions)),
        only=arguments.session,
        raw=arguments.raw,
    )
    while not _ended(current, story_id):
        if not arguments.json:
            follower.advance(current.run.stories[story_id].sessions)
        time.sleep(POLL_SECONDS)
        current = reader.read()
    if not arguments.json:
        follower.advance(current.run.stories[story_id].sessions, last=True)
    return current


def _ended(current: "CurrentRun", story_id: "StoryId") -> bool:
    return current.over or current.run.stories[story_id].status.final


def _find_story(reader: "RunReader", name: str, *, named: bool) -> "StoryId":
    """Switch to the newest run that has the story, unless the user named a run."""
    from runner.core.errors import NotFoundError
    from runner.core.model import StoryId
    from runner.core.text.names import did_you_mean

    story_id, run_id = StoryId(name), reader.run_id
    known = reader.read().run.stories
    if story_id in known:
        return story_id
    for other in () if named else reader.journal.runs()[:RUNS_SEARCHED]:
        reader.follow(other)
        if story_id in reader.read().run.stories:
            return story_id
    hint = did_you_mean(name, known) or f"it has: {', '.join(known) or 'none'}."
    raise NotFoundError(f"run {run_id} has no story '{name}'", hint=hint)


def _document(
    reader: "RunReader", current: "CurrentRun", story_id: "StoryId", sessions: list["Numbered"]
) -> dict[str, object]:
    from runner.agents.conversation.log_reader import LogReader
    from runner.cli.logs.base import text_of
    from runner.core.text.instants import iso, iso_or_none
    from runner.report.conversation import document_of

    documents = []
    for number, session in sessions:
        path = reader.log_of(session)
        entries = LogReader(path, session.agent).entries(last=True)
        documents.append(
            {
                "number": number,
                "id": session.id,
                "kind": session.kind.value,
                "agent": session.agent,
                "step": {"number": session.step.number, "name": session.step.name},
                "attempt": session.attempt,
                "started_at": iso(session.started_at),
                "ended_at": iso_or_none(session.ended_at),
                "outcome": session.outcome.value if session.outcome else None,
                "log": str(path),
                "text": text_of(path),
                "entries": [document_of(entry) for entry in entries],
            }
        )
    return {"run_id": current.run.run_id, "story_id": story_id, "sessions": documents}
