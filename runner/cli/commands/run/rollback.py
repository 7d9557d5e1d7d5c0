"""Undo a step of a story and everything after it, in a new commit on the story's branch.

STEP is the number or name of a step in the story's flow. History is never rewritten: the new commit
reverts the step's code changes, restores the documents as they were before the step, and sets the
state file back to the step. The command refuses while a run is active, or while the story's worktree
has uncommitted changes. `autopilot-multi resume` then runs the step again.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.core.model import RunSnapshot, StorySnapshot
    from runner.flows.on_request.rollback import Rollback

EXAMPLE = "autopilot-multi rollback checkout-17 Plan"

RUNS_SEARCHED = 50


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
    from isolation.model import IsolationMode
    from runner.core.errors import UsageError
    from runner.flows.on_request.rollback import make_plan

    run, story = _find(arguments)
    repository = Repository.open(Path(arguments.directory))
    if run.isolation == IsolationMode.NONE:
        branch = repository.name_of_branch(story.workspace.branch or "")
        raise UsageError(
            f"story {story.id} worked directly in the checkout; rollback needs a story with its own worktree",
            hint=f"find its commits with `git log {branch}` and restore files with `git restore --source`",
        )
    # The lease keeps a run from starting on this branch until the journal knows about the new commit.
    with acquire(repository.common_dir, f"rollback-{run.run_id}"):
        repository.exclude("/.orchestrator/")
        with _worktree(repository, run, story, output) as worktree:
            plan = make_plan(repository, worktree, run, story, arguments.step)
            for commit in plan.kept:
                output.say(f"kept: {commit.id[:10]} {_plain(commit.subject)} (not made by a step)")
            if not _confirmed(plan, output, yes=arguments.yes):
                output.answer("nothing was undone")
                return 0
            data = _apply(repository, worktree, plan)
    output.document(data)
    step, count = plan.step, len(plan.undone)
    undone = f"{count} checkpoint{'s' * (count != 1)} undone"
    output.answer(
        f"{story.id} is back at step {step.number} ({step.name}): {undone} by commit {data['commit'][:10]} on"
        f" {plan.branch}\nnext: {data['next']}"
    )
    return 0


def _find(arguments: argparse.Namespace) -> "tuple[RunSnapshot, StorySnapshot]":
    """Find the story in the named run, or in the newest run that has it."""
    from runner.cli.run_reader import RunReader
    from runner.core.errors import NotFoundError
    from runner.core.model import StoryId
    from runner.core.text.names import did_you_mean

    name = StoryId(arguments.story)
    with RunReader(arguments.directory, arguments.run) as reader:
        first = reader.read().run
        others = () if arguments.run else reader.journal.runs()[:RUNS_SEARCHED]
        run = first
        for run_id in others:
            if name in run.stories:
                break
            reader.follow(run_id)
            run = reader.read().run
    story = run.stories.get(name)
    if story is None:
        hint = did_you_mean(name, first.stories) or f"it has: {', '.join(first.stories) or 'none'}."
        raise NotFoundError(f"run {first.run_id} has no story '{name}'", hint=hint)
    return run, story


@contextmanager
def _worktree(
    repository: "Repository", run: "RunSnapshot", story: "StorySnapshot", output: Output
) -> Iterator[Path]:
    """Yield a checkout of the story's branch; without one, create it and remove it afterwards."""
    from isolation.git.registrations import load_registrations
    from isolation.worktree.removal import close_path
    from runner.core.errors import NotFoundError

    branch = story.workspace.branch
    tip = repository.branch_tip(branch) if branch else None
    if branch is None or tip is None:
        raise NotFoundError(
            f"story {story.id} has no branch", hint="only steps that were committed to a branch can be undone"
        )
    entries = load_registrations(repository)
    existing = [entry.path for entry in entries if entry.branch == branch and entry.path.exists()]
    if existing:
        yield existing[0]
        return
    path = _create(repository, run, story, branch, tip)
    try:
        yield path
    finally:
        closing = close_path(repository, path, branch)
        if not closing.removed:
            output.warn(f"{path} was kept: {closing.reason}")


def _create(
    repository: "Repository", run: "RunSnapshot", story: "StorySnapshot", branch: str, tip: str
) -> Path:
    import trio

    from isolation.model import WorkspaceRequest
    from isolation.paths import worktree_path
    from isolation.worktree.opening import create_or_attach
    from runner.plan.plan import worktree_root_of
    from runner.plan.settings.load import load_settings

    settings = load_settings(top=repository.top, flags={}, environ=os.environ).settings
    request = WorkspaceRequest(
        run_id=run.run_id,
        story_id=story.id,
        branch=branch,
        path=worktree_path(worktree_root_of(repository, settings), story.id),
        parents=(tip,),
    )

    async def create() -> Path:
        return (await create_or_attach(repository, request, trio.CapacityLimiter(1))).path

    return trio.run(create)


def _confirmed(plan: "Rollback", output: Output, *, yes: bool) -> bool:
    """Return whether the user confirmed, at the terminal or with --yes: files get overwritten."""
    from runner.core import choose
    from runner.core.errors import UsageError
    from runner.flows.on_request.rollback import question

    if yes:
        return True
    asked = question(plan)
    if output.as_json or sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"story {plan.story.id}: undoing {plan.step.name} must be confirmed. {_plain(asked.warning)}",
            hint="check what would be undone, then add --yes.",
        )
    sys.stderr.write(choose.render(asked) + "\n")
    while text := _read_line("answer [A/B, Enter for B]: "):
        try:
            letter = choose.parse_answer(asked, text)
        except choose.AnswerError as error:
            sys.stderr.write(f"{error.message}; {error.hint}\n")
            continue
        if not choose.must_confirm(asked, letter):
            return False
        return _read_line(f"{_plain(asked.warning)}. Are you sure? [y/N]: ").lower() in {"y", "yes"}
    return False


def _read_line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def _apply(repository: "Repository", worktree: Path, plan: "Rollback") -> dict[str, Any]:
    """Move the branch, then record the story's new position in the journal."""
    from isolation.paths import journal_path
    from runner.core.events.events import Event
    from runner.core.model import RunId
    from runner.flows.on_request.rollback import carry_out, events
    from runner.records.journal import Journal

    # Branch first, journal second: after a crash in between, the state file on the branch still tells the
    # position, while the opposite order would record a commit that does not exist.
    at = time.time()
    commit = carry_out(repository, worktree, plan, at=at)
    commits = repository.count_commits(plan.story.workspace.base or plan.before, commit)
    run_id = RunId(plan.run_id)
    with Journal.open(journal_path(repository.common_dir)) as journal:
        journal.append([Event(run_id=run_id, at=at, body=body) for body in events(plan, commit, commits)])
    return {
        "run_id": run_id,
        "story_id": plan.story.id,
        "step": {"number": plan.step.number, "name": plan.step.name},
        "branch": plan.branch,
        "commit": commit,
        "undone": [one.id for one in plan.undone],
        "restored": list(plan.restored),
        "kept": [{"commit": one.id, "subject": _plain(one.subject)} for one in plan.kept],
        "next": f"autopilot-multi resume {run_id}",
    }


def _plain(text: str) -> str:
    from runner.core.text.names import one_line

    return one_line(text)
