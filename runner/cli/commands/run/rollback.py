"""Undo a step of a story and everything after it, in a new commit on the story's branch.

STEP is the number or name of a step in the story's flow. History is never rewritten: the new commit
reverts the step's code changes, restores the documents as they were before the step, and sets the
state file back to the step. The command refuses while a run is active, or while the story's worktree, or
what it owns of a shared tree, has uncommitted changes. `autopilot-multi resume` then runs the step again.
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.flows.on_request.rollback import Rollback

EXAMPLE = "autopilot-multi rollback checkout-17 Plan"

SEES_TREES = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rollback`."""
    parser.add_argument("story", metavar="STORY", help="the id of the story")
    parser.add_argument("step", metavar="STEP", help="the first step to undo: its number or its name")
    parser.add_argument(
        "--run",
        metavar="RUN",
        help="the id of a run or its first characters (default: the newest with the story)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Plan the rollback, ask for confirmation and apply it, while holding the lease."""
    from isolation.files.lease import acquire
    from isolation.git.repository import Repository
    from runner.cli.commands.branch_change import checkout, confirmed, find_story, require_home
    from runner.flows.on_request.rollback import make_plan, overwritten, question

    run, story = find_story(arguments)
    require_home(run, story)
    repository = Repository.open(Path(arguments.directory))
    # The lease keeps a run from starting on this branch until the journal knows about the new commit.
    with acquire(repository.common_dir, f"rollback-{run.run_id}"):
        repository.exclude("/.orchestrator/")
        with checkout(repository, run, story, output) as place:
            plan = make_plan(repository, place, run, story, arguments.step)
            for commit in plan.kept:
                output.say(f"kept: {commit.id[:10]} {_plain(commit.subject)} (not made by a step)")
            if arguments.yes and (places := overwritten(plan)):
                output.say(f"overwrites files in {', '.join(places)}")
            what = f"story {story.id}: undoing {plan.step.name}"
            if not confirmed(question(plan), what, output, yes=arguments.yes):
                output.answer("nothing was undone")
                return 0
            data = _apply(plan)
    output.document(data)
    step, count = plan.step, len(plan.undone)
    undone = f"{count} checkpoint{'s' * (count != 1)} undone"
    output.answer(
        f"{story.id} is back at step {step.number} ({step.name}): {undone} by commit {data['commit'][:10]} on"
        f" {plan.on.name}\nnext: {data['next']}"
    )
    return 0


def _apply(plan: "Rollback") -> dict[str, Any]:
    """Move the branch, then record the story's new position in the journal."""
    from runner.cli.commands.branch_change import record
    from runner.flows.on_request.rollback import carry_out, events

    on, at = plan.on, time.time()
    commit = carry_out(plan, at=at)
    commits = on.repository.count_commits(on.story.workspace.base or plan.before, commit)
    record(on.repository, on.run_id, at, events(plan, commit, commits))
    return {
        "run_id": on.run_id,
        "story_id": on.story.id,
        "step": {"number": plan.step.number, "name": plan.step.name},
        "branch": on.name,
        "commit": commit,
        "undone": [one.id for one in plan.undone],
        "restored": list(plan.restored),
        "kept": [{"commit": one.id, "subject": _plain(one.subject)} for one in plan.kept],
        "next": f"autopilot-multi resume {on.run_id}",
    }


def _plain(text: str) -> str:
    from runner.core.text.names import one_line

    return one_line(text)
