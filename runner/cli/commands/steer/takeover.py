"""Continue a story by hand: it stops after its current session, and you get its agent's own session.

The command for that session is printed, or started with --start: the same conversation, in the story's
workspace, and within the guard that its sessions have. Afterwards `autopilot-multi resume`, or `retry STORY`
while the run is active, continues the story: its next session continues the conversation, too.
"""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.core.model import RunId, StoryId
    from runner.run.control.conversation import AgentConversation
    from runner.run.control.reader import RunReader
    from runner.run.control.story_view import StoryView

EXAMPLE = "autopilot-multi takeover checkout-17 --start"

SEES_TREES = True

LAYER_SECONDS = 120.0
"""How long a worktree may take to get files of its own."""
POLL_SECONDS = 0.25
EXIT_INTERRUPTED = 130


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `takeover`."""
    parser.add_argument("story", metavar="STORY", help="the id of the story")
    parser.add_argument(
        "--start", action="store_true", help="start the agent's session, do not only print it"
    )
    parser.add_argument(
        "--unguarded", action="store_true", help="with --start: outside of the guard of the story's sessions"
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Ask the active run, wait for the end of the session, then hand over."""
    from isolation.git.repository import Repository
    from runner.core.errors import UsageError
    from runner.run.control.conversation import conversation_of
    from runner.run.control.reader import RunReader
    from runner.run.control.requests import TakeOver
    from runner.run.control.steering import Steering, require_stories
    from runner.run.control.story_view import story_view
    from runner.run.pool.overlays import is_reachable
    from runner.run.several.places import repository_of

    if arguments.unguarded and not arguments.start:
        raise UsageError("--unguarded is for --start", hint="the command that is printed has no guard.")
    steering = Steering(Path(arguments.directory))
    active = steering.active
    with RunReader(arguments.directory, active) as reader:
        run = reader.read().run
        (story_id,) = require_stories(run.run_id, (arguments.story,), run.stories)
        if active is not None:
            steering.send(TakeOver(story_id=story_id), run_id=active)
            try:
                _wait(reader, story_id, output)
            except KeyboardInterrupt:
                output.say(f"story {story_id} still stops after its session; run this again to take it over")
                return EXIT_INTERRUPTED
        view = story_view(reader, story_id)
    repository = repository_of(Repository.open(Path(arguments.directory)), view.run, story_id)
    found = conversation_of(view, repository.top)
    is_reachable(repository, found.folder, patience=LAYER_SECONDS)
    back = _back(story_id, view.run.run_id, active=view.alive)
    output.document(
        {
            "run_id": view.run.run_id,
            "story": story_id,
            "agent": found.agent.name,
            "argv": list(found.argv),
            "workspace": str(found.folder),
            "next": back,
        }
    )
    guarded = found.guarded and not arguments.unguarded
    if arguments.start and not output.as_json:
        if not guarded and found.guarded:
            output.warn(found.outside_words(repository.top))
        output.say(f"afterwards, `{back}` continues the story")
        return _start_guarded(found, view, repository) if guarded else _start(found)
    if found.guarded:
        output.warn(found.outside_words(repository.top))
    output.answer(found.command)
    inside = "; with --start the session runs within the guard" if found.guarded else ""
    output.say(f"afterwards, `{back}` continues the story in the same conversation{inside}")
    return 0


def _wait(reader: "RunReader", story_id: "StoryId", output: Output) -> None:
    """Wait until the story has stopped."""
    said = False
    while not (current := reader.read()).over and not current.run.stories[story_id].status.final:
        if not said:
            output.say(f"story {story_id} stops when its session ends; Ctrl-C does not change that")
            said = True
        time.sleep(POLL_SECONDS)


def _back(story_id: "StoryId", run_id: "RunId", *, active: bool) -> str:
    return f"autopilot-multi retry {story_id}" if active else f"autopilot-multi resume {run_id}"


def _start_guarded(found: "AgentConversation", view: "StoryView", repository: "Repository") -> int:
    """Run the agent's own session within the guard, and return its exit code."""
    from isolation.keeper.foreground import run_confined_on_terminal
    from runner.run.control.conversation import in_guard

    _require_program(found)
    code = run_confined_on_terminal(in_guard(found, view, repository))
    repository.take_over(found.folder.name)  # the branch, if a commit was made
    return code


def _start(found: "AgentConversation") -> int:
    """Become the agent's own session."""
    program = _require_program(found)
    os.chdir(found.folder)
    os.execve(program, found.argv, {**os.environ, **found.env})  # noqa: S606  the user's own agent


def _require_program(found: "AgentConversation") -> str:
    import shutil

    from runner.core.errors import AgentError

    program = shutil.which(found.argv[0])
    if program is None:
        raise AgentError(f"{found.argv[0]} is not on PATH", hint=f"start it yourself: {found.command}")
    return program
