"""What earlier runs in this repository have already brought to its end."""

from collections.abc import Iterable
from dataclasses import dataclass

from runner.core.flow import QUICK
from runner.core.fold import fold
from runner.core.model import RunId, RunSnapshot, Status, Story, StoryId
from runner.core.story_json import digest
from runner.journal import Journal

RUNS_LOOKED_AT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A story that an earlier run finished, word for word the same work."""

    run_id: RunId
    commit: str | None
    commits: int


def finished_before(journal: Journal, stories: Iterable[Story]) -> dict[StoryId, Finished]:
    """Name the stories whose same text was done in an earlier run; the newest run counts."""
    wanted = {story.id: digest(story) for story in stories}
    found: dict[StoryId, Finished] = {}
    settled: set[StoryId] = set()
    for run_id in journal.runs()[:RUNS_LOOKED_AT]:
        if len(settled) == len(wanted):
            break
        run = fold(run_id, journal.events(run_id))
        for story in run.stories.values():
            if story.id not in wanted or story.id in settled or story.status is not Status.DONE:
                continue
            if not story.sessions:
                continue  # that run only took notice of an older one
            settled.add(story.id)
            if _digest_in(run, story.id) == wanted[story.id]:
                found[story.id] = Finished(run_id=run_id, commit=story.commit, commits=story.commits)
    return found


def failures_before(journal: Journal, stories: Iterable[Story]) -> dict[StoryId, dict[str, int]]:
    """Count by story and step in how many runs after another, up to the newest, that step failed.

    Stories without a flow have no such circuit, and cost no look.
    """
    wanted = {story.id for story in stories if story.flow != QUICK.name}
    counts: dict[StoryId, dict[str, int]] = {}
    if not wanted:
        return counts
    broken: set[tuple[StoryId, str]] = set()
    for run_id in journal.runs()[:RUNS_LOOKED_AT]:
        for story in fold(run_id, journal.events(run_id)).stories.values():
            if story.id not in wanted or not story.sessions:
                continue
            broken.update((story.id, number) for number in story.finished_steps)
            number = story.place.number
            if story.status is Status.FAILED and (story.id, number) not in broken:
                steps = counts.setdefault(story.id, {})
                steps[number] = steps.get(number, 0) + 1
    return counts


def unfinished_of_newest(journal: Journal) -> tuple[StoryId, ...]:
    """Name the stories of the newest run that failed, and those that were skipped because of them."""
    run_id = journal.newest_run()
    run = fold(run_id, journal.events(run_id))
    wanted = {Status.FAILED, Status.SKIPPED}
    return tuple(story.id for story in run.stories.values() if story.status in wanted)


def _digest_in(run: RunSnapshot, story_id: StoryId) -> object:
    digests = run.options.get("digests")
    return digests.get(story_id) if isinstance(digests, dict) else None
