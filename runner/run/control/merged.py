"""Marks the stories of a run whose work is merged by now, before the run is shown.

Merged means that the branch of the main checkout has the story's commits in its history, or the same change
as other commits: squashed, rebased or picked by hand.
"""

from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runner.core.events.folds.left_out_fold import without_question
from runner.core.model import RunSnapshot, Status, StoryId, StorySnapshot
from runner.core.schedule.offers import LAND, is_offered, lands

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from isolation.paths import RepositoryPaths


def with_merged(run: RunSnapshot, directory: str | Path) -> RunSnapshot:
    """Return the run with the branch that each merged story is in, and the command that lands the others.

    Git is asked only if the main checkout has moved since the run began, or a story is older than the run:
    `status` must be instant.
    """
    done = [story for story in run.stories.values() if _may_be_merged(story)]
    if not done:
        return run
    from isolation.errors import IsolationError
    from isolation.git.direct.refs import head_without_git
    from isolation.paths import find_repository

    home = find_repository(Path(directory))
    for repo in dict.fromkeys(story.repo for story in done):
        own = {story.id: story.workspace.commit for story in done if story.repo == repo}
        try:
            paths = find_repository(Path(run.repos[repo].path)) if repo in run.repos and repo else home
        except IsolationError:
            continue  # it is gone, and what became of the work with it
        older = any(
            run.stories[name].started_at is None or run.stories[name].workspace.landed for name in own
        )
        if older or head_without_git(paths) != run.base_of(repo):
            run = _marked(run, paths, own)
    return _with_command(run, home)


def _marked(run: RunSnapshot, paths: "RepositoryPaths", done: Mapping[StoryId, str | None]) -> RunSnapshot:
    if which("git") is None:
        return run
    from isolation.git.branches import merged
    from isolation.git.direct.refs import head_without_git
    from isolation.git.repository import Repository
    from isolation.paths import current_branch

    repository = Repository(paths=paths, version=())
    landed = {run.stories[name].workspace.landed_as for name in done} - {""}
    found = merged(repository, {commit for commit in done.values() if commit} | landed)
    into = current_branch(paths.main_checkout or paths.top) or "HEAD"
    stories = dict(run.stories)
    forks: dict[str, str] = {}
    where: dict[StoryId, str] = {}
    for name, commit in done.items():
        workspace = run.stories[name].workspace
        if commit in found or workspace.landed_as in found:
            where[name] = into
        elif _is_in(repository, workspace.landed_as, workspace.landed):
            where[name] = workspace.landed
        elif commit:
            forks[commit] = workspace.base or run.base_of(run.stories[name].repo)
    by_hand = _by_hand(run, repository, head_without_git(paths), forks)
    where |= {name: into for name, commit in done.items() if commit in by_hand}
    for name, branch in where.items():
        workspace = replace(stories[name].workspace, merged=branch, unlanded="", left_out=None)
        # A question about a landing is overtaken, also by a merge that the user made.
        stories[name] = replace(without_question(stories[name]), next="", workspace=workspace)
    return replace(run, stories=stories)


def _by_hand(
    run: RunSnapshot, repository: "Repository", target: str, forks: Mapping[str, str]
) -> frozenset[str]:
    """Return the commits whose work the target has as other commits."""
    if not target or not forks:
        return frozenset()
    from isolation.git.landing.patches import Work, brought_by, patched_into

    works = [Work(fork, commit) for commit, fork in forks.items()]
    undone = [(each.before, each.after) for each in run.landings if each.was_undone]
    return patched_into(repository, target, works, without=brought_by(repository, undone))


def _with_command(run: RunSnapshot, paths: "RepositoryPaths") -> RunSnapshot:
    """Name the branch to land on where `land` would not take it by itself."""
    offered = [story for story in run.stories.values() if is_offered(story) and lands(story)]
    if not offered:
        return run
    from isolation.paths import current_branch

    base = str(run.options.get("base") or "HEAD")
    current = current_branch(paths.main_checkout or paths.top)
    named = base != "HEAD" and (paths.common_dir / "refs" / "heads" / base).is_file()
    onto = base if named and base != current else "" if current else "BRANCH"
    command = f"{LAND} --onto {onto}" if onto else LAND
    return replace(run, stories={**run.stories, **{each.id: replace(each, next=command) for each in offered}})


def _is_in(repository: "Repository", commit: str, branch: str) -> bool:
    """Whether a landing on another branch than that of the main checkout is still there."""
    asked = ("merge-base", "--is-ancestor", commit, f"refs/heads/{branch}")
    return bool(commit) and repository.run(*asked, check=False).returncode == 0


def _may_be_merged(story: StorySnapshot) -> bool:
    return story.status is Status.DONE and bool(story.workspace.commits and story.workspace.commit)
