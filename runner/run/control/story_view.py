"""One story of a run, as people look at it: where it is, what it changed, where to work on it.

All of it blocks. It reads the journal and git, and disturbs neither the run nor a session.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from isolation.git.diffstat import diff_text, working_diff
from isolation.git.repository import Repository
from isolation.paths import indexes_dir
from isolation.worktree.layers.seeing import require_visible
from runner.core.errors import NotFoundError
from runner.core.events.run_stories import entries_of, story_in
from runner.core.model import RunSnapshot, Story, StorySnapshot
from runner.report.run_document import session_document, settled, story_document
from runner.run.control.reader import RunReader
from runner.run.control.steering import require_stories

_SHARED = "none"


class CommitLine(Struct, frozen=True, kw_only=True):
    """One commit of a story."""

    id: str
    subject: str


class StoryView(Struct, frozen=True, kw_only=True):
    """One story as readers should see it; `written` is the story as the plan has it."""

    run: RunSnapshot
    story: StorySnapshot
    written: Story | None
    alive: bool

    @property
    def base(self) -> str:
        """The commit at which the work of the story begins."""
        return self.story.workspace.base or self.run.base_of(self.story.repo)

    @property
    def workspace(self) -> Path | None:
        """The folder in which the story works; None if there is none now."""
        path = self.story.workspace.path
        return Path(path) if path and Path(path).is_dir() else None

    @property
    def own_worktree(self) -> Path | None:
        """The same, unless other stories work there, too."""
        shared = self.run.isolation == _SHARED and not self.story.workspace.apart
        return None if shared else self.workspace


def story_view(reader: RunReader, name: str) -> StoryView:
    """Look at one story of a run."""
    current = reader.read()
    (story_id,) = require_stories(current.run.run_id, (name,), current.run.stories)
    run = settled(current.run, alive=current.alive)
    entry = entries_of(reader.journal.events(run.run_id)).get(story_id)
    return StoryView(
        run=run,
        story=run.stories[story_id],
        written=None if entry is None else story_in(entry),
        alive=current.alive,
    )


def view_document(view: StoryView, commits: Sequence[CommitLine]) -> dict[str, Any]:
    """Return the story as JSON values: as in a run, with sessions, commits and where it is written."""
    written = view.written
    return {
        **story_document(view.story, repo=view.run.repo_name(view.story.repo)),
        "run_id": view.run.run_id,
        "alive": view.alive,
        "base": view.base or None,
        "source": written.source if written else None,
        "prompt": written.prompt if written else None,
        "session_list": [session_document(session) for session in view.story.sessions],
        "commit_list": [{"commit": one.id, "subject": one.subject} for one in commits],
    }


def commits_of(repository: Repository, view: StoryView) -> tuple[CommitLine, ...]:
    """Return the commits of the story, the oldest first; empty if it has none."""
    tip = _tip(repository, view.story)
    if tip is None or not view.base:
        return ()
    log = ("log", "-z", "--reverse", "--format=%H %s", f"{view.base}..{tip}", "--")
    lines = (line.partition(" ") for line in repository.run(*log, check=False).fields())
    return tuple(CommitLine(id=commit, subject=subject) for commit, _, subject in lines)


def diff_of(repository: Repository, view: StoryView, *, stat: bool = False) -> str:
    """Return what the story has changed since its base, with what is not committed in its worktree."""
    tip, worktree = _tip(repository, view.story), view.own_worktree
    if worktree is not None and view.base:
        require_visible(repository.common_dir, worktree)
        index = indexes_dir(repository.common_dir) / f"look-{view.story.id}-{os.getpid()}.index"
        return working_diff(repository, view.base, worktree, index=index, stat=stat)
    if tip is None or not view.base:
        raise NotFoundError(
            f"story {view.story.id} has no branch, so there is nothing to compare",
            hint=f"`autopilot-multi show {view.story.id}` shows where it is.",
        )
    return diff_text(repository, view.base, tip, stat=stat)


def require_workspace(view: StoryView) -> Path:
    """Return the folder in which the story works, or raise with how to get one."""
    if view.workspace is not None:
        return view.workspace
    branch = view.story.workspace.branch
    raise NotFoundError(
        f"story {view.story.id} has no worktree now",
        hint=f"its work is on branch {branch}; `git worktree add FOLDER {branch}` makes one."
        if branch and view.story.started_at is not None
        else "it has not started.",
    )


def _tip(repository: Repository, story: StorySnapshot) -> str | None:
    branch = story.workspace.branch
    return (repository.branch_tip(branch) if branch else None) or story.workspace.commit
