"""Marks the stories of a run whose work is merged by now, before the run is shown."""

from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runner.core.events.left_out_fold import without_question
from runner.core.model import RunSnapshot, Status, StorySnapshot

if TYPE_CHECKING:
    from isolation.git.repository import Repository


def with_merged(run: RunSnapshot, directory: str | Path) -> RunSnapshot:
    """Return the run with the branch that each merged story is in.

    Git is asked only if the main checkout has moved since the run began, or a story is older than the run:
    `status` must be instant.
    """
    done = {story.id: story.workspace.commit for story in run.stories.values() if _may_be_merged(story)}
    if not done:
        return run
    from isolation.git.branches import head_without_git, merged
    from isolation.paths import current_branch, find_repository

    paths = find_repository(Path(directory))
    older = any(run.stories[name].started_at is None or run.stories[name].workspace.landed for name in done)
    if not older and head_without_git(paths) == run.base:
        return run
    if which("git") is None:
        return run
    from isolation.git.repository import Repository

    repository = Repository(paths=paths, version=())
    landed = {run.stories[name].workspace.landed_as for name in done} - {""}
    found = merged(repository, {commit for commit in done.values() if commit} | landed)
    into = current_branch(paths.main_checkout or paths.top) or "HEAD"
    stories = dict(run.stories)
    for name, commit in done.items():
        story = stories[name]
        workspace = story.workspace
        if commit in found or workspace.landed_as in found:
            where = into
        else:
            where = workspace.landed if _is_in(repository, workspace.landed_as, workspace.landed) else ""
        if where:
            taken = replace(workspace, merged=where, unlanded="", left_out=None)
            # A question about a landing is overtaken, also by a merge that the user made.
            stories[name] = replace(without_question(story), next="", workspace=taken)
    return replace(run, stories=stories)


def _is_in(repository: "Repository", commit: str, branch: str) -> bool:
    """Whether a landing on another branch than that of the main checkout is still there."""
    asked = ("merge-base", "--is-ancestor", commit, f"refs/heads/{branch}")
    return bool(commit) and repository.run(*asked, check=False).returncode == 0


def _may_be_merged(story: StorySnapshot) -> bool:
    return story.status is Status.DONE and bool(story.workspace.commits and story.workspace.commit)
