"""Create the work items that are still pending: epics, tasks and their links.

A step of a flow that found no tracker, or was to continue without one, leaves `Tracker: pending` in its
files. `tracker sync` creates these items in Jira or Azure DevOps, through the MCP server that is configured,
or as issues on GitHub or GitLab if the setting `tracker` says so. It writes their ids into the files, names
task files after them and commits that on the story's branch. What exists already is found by its mark and not
created again. It refuses while a run is active.
"""

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.core.model import RunSnapshot, StorySnapshot
    from runner.core.trust import Demand
    from runner.plan.settings.load import Loaded
    from runner.story.flow.tracker_sync import Sync

EXAMPLE = "autopilot-multi tracker sync --dry-run"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `tracker`."""
    parser.add_argument("action", choices=("sync",), help="what to do: create what is pending")
    parser.add_argument(
        "stories", metavar="STORY", nargs="*", help="ids of stories (default: all of the newest run)"
    )
    parser.add_argument(
        "--run",
        metavar="RUN",
        help="the id of a run or its first characters (default: the newest with the story)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Create what is pending, story by story, while holding the lease."""
    from isolation.files.lease import acquire
    from isolation.git.repository import Repository
    from runner.cli.commands.branch_change import record
    from runner.cli.commands.consent import require_consent
    from runner.plan.settings.load import load_settings
    from runner.story.flow.tracker_sync import Sync

    chosen = _chosen(arguments)
    repository = Repository.open(Path(arguments.directory))
    loaded = load_settings(top=repository.top, flags={}, environ=os.environ)
    if not arguments.dry_run:
        for base in dict.fromkeys(run.base for run, _ in chosen):
            demands = _demands(repository, loaded, base)
            require_consent(repository, demands, trust=loaded.settings.trust, output=output)
    sync = Sync(loaded.settings, partial(record, repository))
    synced = []
    with acquire(repository.common_dir, "tracker-sync"):
        repository.exclude("/.orchestrator/")
        for run, story in chosen:
            synced += _story(repository, run, story, sync, output, dry_run=arguments.dry_run)
    output.document({"dry_run": arguments.dry_run, "stories": synced})
    if not any(one["acts"] for one in synced):
        output.answer("nothing is pending")
    return 0


def _chosen(arguments: argparse.Namespace) -> "list[tuple[RunSnapshot, StorySnapshot]]":
    """Return the named stories, or those of a run that follow a flow and have a branch."""
    from runner.cli.commands.branch_change import find_story
    from runner.core.flow import QUICK
    from runner.run.control.reader import RunReader

    if arguments.stories:
        named = dict.fromkeys(arguments.stories)
        return [find_story(argparse.Namespace(**vars(arguments), story=name)) for name in named]
    with RunReader(arguments.directory, arguments.run) as reader:
        run = reader.read().run
    stories = (story for story in run.stories.values() if story.flow != QUICK.name)
    return [(run, story) for story in stories if story.workspace.branch]


def _demands(repository: "Repository", loaded: "Loaded", base: str) -> "Sequence[Demand]":
    """Return what files of the repository would start here, or send to."""
    from runner.core.work_items.tracker import HOSTED
    from runner.forge.tracker.servers import server_demands

    own = [demand for demand in loaded.demands if demand.what.startswith("tracker")]
    if loaded.settings.tracker in HOSTED:
        return own
    return (*own, *server_demands(repository, base, only=loaded.settings.tracker_server))


def _story(
    repository: "Repository",
    run: "RunSnapshot",
    story: "StorySnapshot",
    sync: "Sync",
    output: Output,
    *,
    dry_run: bool,
) -> list[dict[str, Any]]:
    import trio

    from runner.cli.commands.branch_change import checkout
    from runner.flows.on_request.story_branch import open_branch
    from runner.story.flow.tracker_sync import SyncError, pending_of

    if not repository.branch_tip(story.workspace.branch or ""):
        output.warn(f"story {story.id} has no branch any more; its files are wherever it was landed")
        return []
    with checkout(repository, run, story, output) as place:
        on = open_branch(repository, place, run, story, SyncError, clean=not dry_run)
        pending = pending_of(on, run.base)
        words = pending.words(sync.foreseen(pending)) if pending.acts else ()
        would = "would " if dry_run else ""
        for line in words:
            output.answer(f"{story.id}: {would}{line}")
        commit = trio.run(sync.carry_out, pending) if pending.acts and not dry_run else ""
    if commit:
        output.answer(f"{story.id}: the ids are in commit {commit[:10]} on {on.name}")
    return [{"story_id": story.id, "acts": list(words), "commit": commit or None}]
