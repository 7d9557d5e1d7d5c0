"""Marks the stories of a run whose work is merged by now, before the run is shown."""

from pathlib import Path
from shutil import which

from msgspec.structs import replace

from runner.core.model import RunSnapshot, Status, StorySnapshot


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
    older = any(run.stories[name].started_at is None for name in done)
    if not older and head_without_git(paths) == run.base:
        return run
    if which("git") is None:
        return run
    from isolation.git.repository import Repository

    repository = Repository(paths=paths, version=())
    found = merged(repository, {commit for commit in done.values() if commit})
    into = current_branch(paths.main_checkout or paths.top) or "HEAD"
    stories = {
        name: replace(story, next="", workspace=replace(story.workspace, merged=into))
        if done.get(name) in found
        else story
        for name, story in run.stories.items()
    }
    return replace(run, stories=stories)


def _may_be_merged(story: StorySnapshot) -> bool:
    return story.status is Status.DONE and bool(story.workspace.commits and story.workspace.commit)
