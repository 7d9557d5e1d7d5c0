"""What commands that change a story's branch share: its run, a checkout of it, and the user's consent."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.core.choose import Question
    from runner.core.events.events import Body
    from runner.core.model import RunSnapshot, StorySnapshot
    from runner.flows.on_request.checkouts import Checkout

RUNS_SEARCHED = 50


def find_story(arguments: argparse.Namespace) -> "tuple[RunSnapshot, StorySnapshot]":
    """Find the story in the named run, or in the newest run that has it."""
    from runner.core.errors import NotFoundError
    from runner.core.model import StoryId
    from runner.core.text.names import did_you_mean
    from runner.run.control.reader import RunReader

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


def require_home(run: "RunSnapshot", story: "StorySnapshot") -> None:
    """Refuse a story that works in another repository than the one with the journal."""
    from runner.core.errors import UsageError

    if story.repo:
        info = run.repos[story.repo]
        raise UsageError(
            f"story {story.id} works in another repository, {info.path}, where its steps cannot be changed "
            "from here",
            hint=f"use git in {info.path}: its branch is {story.workspace.branch}.",
        )


@contextmanager
def checkout(
    repository: "Repository", run: "RunSnapshot", story: "StorySnapshot", output: Output
) -> Iterator["Checkout"]:
    """Yield a checkout of the story's branch; without one, create it and remove it afterwards.

    A story that worked in the shared tree has its files there, and its branch is checked out nowhere.
    """
    from isolation.git.registrations import load_registrations
    from isolation.worktree.removal import close_path
    from runner.core.errors import NotFoundError
    from runner.flows.on_request.checkouts import OwnWorktree, claim_checkout
    from runner.flows.overview import in_shared_tree

    branch = story.workspace.branch
    tip = repository.branch_tip(branch) if branch else None
    if branch is None or tip is None:
        raise NotFoundError(
            f"story {story.id} has no branch",
            hint="it gets one when it runs for the first time",
        )
    entries = load_registrations(repository)
    existing = [entry.path for entry in entries if entry.branch == branch and entry.path.exists()]
    if existing:
        yield OwnWorktree(repository=repository, path=existing[0], branch=branch)
        return
    if in_shared_tree(run, story):
        yield claim_checkout(repository, run, story, _claim(repository, run, story))
        return
    path = _create(repository, run, story, branch, tip)
    try:
        yield OwnWorktree(repository=repository, path=path, branch=branch)
    finally:
        closing = close_path(repository, path, branch)
        if not closing.removed:
            output.warn(f"{path} was kept: {closing.reason}")


def _claim(repository: "Repository", run: "RunSnapshot", story: "StorySnapshot") -> tuple[str, ...]:
    """Return what the story owned in its run."""
    from isolation.paths import journal_path
    from runner.core.events.run_stories import stories_of
    from runner.records.journal import Journal

    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        recorded = stories_of(journal.events(run.run_id))
        return next((one.owns for one in recorded if one.id == story.id), ())


def _create(
    repository: "Repository", run: "RunSnapshot", story: "StorySnapshot", branch: str, tip: str
) -> Path:
    import trio

    from isolation.model import WorkspaceRequest
    from isolation.paths import worktree_path
    from isolation.worktree.opening import create_or_attach
    from runner.plan.repositories.site import worktree_root_of
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


def confirmed(asked: "Question", what: str, output: Output, *, yes: bool) -> bool:
    """Return whether the user chose A, at the terminal or with --yes; `what` names it in a refusal."""
    from runner.core import choose
    from runner.core.errors import UsageError
    from runner.core.text.names import one_line

    if yes:
        return True
    if output.as_json or sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{what} must be confirmed. {one_line(asked.warning)}",
            hint="check what it would do, then add --yes.",
        )
    sys.stderr.write(choose.render(asked) + "\n")
    while text := _read_line("answer [A/B, Enter for B]: "):
        try:
            letter = choose.parse_answer(asked, text)
        except choose.AnswerError as error:
            sys.stderr.write(f"{error.message}; {error.hint}\n")
            continue
        if letter != choose.LETTERS[0]:
            return False
        if not choose.must_confirm(asked, letter):
            return True
        return _read_line(f"{one_line(asked.warning)}. Are you sure? [y/N]: ").lower() in {"y", "yes"}
    return False


def _read_line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def record(repository: "Repository", run_id: str, at: float, bodies: "Sequence[Body]") -> None:
    """Append to the journal what has happened to a story.

    Branch first, journal second: after a crash in between, the state file on the branch still tells the
    position, while the opposite order would record a commit that does not exist.
    """
    from isolation.paths import journal_path
    from runner.core.events.events import Event
    from runner.core.model import RunId
    from runner.records.journal import Journal

    with Journal.open(journal_path(repository.common_dir)) as journal:
        journal.append([Event(run_id=RunId(run_id), at=at, body=body) for body in bodies])
