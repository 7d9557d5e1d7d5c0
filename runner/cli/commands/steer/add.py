"""Add stories to the active run, or take the edited file of one that has not started.

STORY_OR_PATH is as in `run`. The run must have, or get, everything that a story depends on. What the
repository's own files would run for it needs your consent, as in `run`.
"""

import argparse
import os
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common
from runner.cli.run_options import add_trust, trust_of

EXAMPLE = "autopilot-multi add stories/012-search.md"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `add`."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="STORY_OR_PATH",
        help="story files, folders, ids, or prompts in quotes",
    )
    add_trust(parser)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Read and check the stories, ask for consent, then ask the active run."""
    from isolation.git.repository import Repository
    from runner.cli.commands.consent import require_consent
    from runner.core.events.story_json import to_json
    from runner.plan.settings.load import load_settings
    from runner.run.control.additions import plan_additions, running_stories
    from runner.run.control.requests import Add
    from runner.run.control.steering import Steering

    directory = Path(arguments.directory)
    steering = Steering(directory)
    run_id = steering.require_active(hint="start one with `autopilot-multi run STORY_OR_PATH`.")
    repository = Repository.open(directory)
    loaded = load_settings(top=repository.top, flags=trust_of(arguments), environ=os.environ)
    running = running_stories(repository, run_id)
    additions = plan_additions(repository, loaded, arguments.sources, running, cwd=directory.resolve())
    require_consent(repository, additions.demands, trust=loaded.settings.trust, output=output)
    reply = steering.send(Add(stories=tuple(to_json(story) for story in additions.stories)), run_id=run_id)
    names = [story.id for story in additions.stories]
    output.document({"run_id": run_id, "stories": names, "taken": reply.taken})
    done = "added to" if reply.taken else "sent to (it has not answered yet)"
    output.answer(f"{', '.join(names)}: {done} run {run_id}")
    return 0
