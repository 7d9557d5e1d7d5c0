"""Skip a step of a story: it is marked as skipped in the state file, in a new commit on the story's branch.

STEP is the number or name of the current step in the story's flow, or of a later one (default: the current
step). You are asked first, with a warning that names the later steps that use what the step would leave.
The command refuses while a run is active. `autopilot-multi resume` then continues with the next step, and
`autopilot-multi rollback STORY STEP` takes the skip back.
"""

import argparse
import time
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi skip checkout-17"

SEES_TREES = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `skip`."""
    parser.add_argument("story", metavar="STORY", help="the id of the story")
    parser.add_argument(
        "step",
        metavar="STEP",
        nargs="?",
        help="the step to skip: its number or its name (default: the current one)",
    )
    parser.add_argument(
        "--run",
        metavar="RUN",
        help="the id of a run or its first characters (default: the newest with the story)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Plan the skip, ask for confirmation and apply it, while holding the lease."""
    from isolation.files.lease import acquire
    from isolation.git.repository import Repository
    from runner.cli.commands.branch_change import (
        checkout,
        confirmed,
        find_story,
        record,
        require_home,
    )
    from runner.flows.on_request.skip import carry_out, events, make_plan, question

    run, story = find_story(arguments)
    require_home(run, story)
    repository = Repository.open(Path(arguments.directory))
    resume = f"autopilot-multi resume {run.run_id}"
    # The lease keeps a run from starting on this branch until the journal knows about the skip.
    with acquire(repository.common_dir, f"skip-{run.run_id}"):
        repository.exclude("/.orchestrator/")
        with checkout(repository, run, story, output) as place:
            plan = make_plan(repository, place, run, story, arguments.step)
            asked, step = question(plan), plan.step
            what = f"story {story.id}: skipping {step.name}"
            if arguments.yes:
                output.say(f"warning: {asked.warning}")
            if not confirmed(asked, what, output, yes=arguments.yes):
                output.answer(f"nothing was skipped\nnext: {resume}")
                return 0
            at = time.time()
            commit = carry_out(plan, at=at)
            commits = repository.count_commits(story.workspace.base or run.base_of(story.repo), commit)
            record(repository, run.run_id, at, events(plan, commit, commits))
    users = [{"number": one.number, "name": one.name} for one in plan.users]
    output.document(
        {
            "run_id": run.run_id,
            "story_id": story.id,
            "step": {"number": step.number, "name": step.name},
            "current": plan.current,
            "branch": plan.on.name,
            "commit": commit,
            "used_by": users,
            "next": resume,
        }
    )
    where = f"by commit {commit[:10]} on {plan.on.name}"
    goes = f"; {plan.following.name} is next" if plan.current else ", and the story stays where it is"
    output.answer(f"{story.id} skips step {step.number} ({step.name}), {where}{goes}\nnext: {resume}")
    return 0
