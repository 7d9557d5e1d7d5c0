"""What a run that came by shards may run here: nothing that the shards bring, unless the user agrees to it.

Its settings are those of this repository and of the user. A story that is known here has the commands of its
own file; the commands of any other are asked for, like everything that a file of the repository names.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from isolation.git.repository import Repository
from runner.agents.catalog import workers_of
from runner.core.errors import BacklogError, RunnerError
from runner.core.events.fold import fold
from runner.core.events.run_stories import stories_of
from runner.core.model import RunId, RunSnapshot, Status, Story, StoryId
from runner.core.settings import Settings
from runner.core.text.names import branch_of
from runner.core.trust import Demand, is_imported
from runner.plan.stories.sources import load_stories
from runner.plan.trust.demands import agent_demands, flow_demands, story_demands, tracker_demands
from runner.records.journal import Journal


def known_stories(repository: Repository, settings: Settings) -> dict[StoryId, Story]:
    """Read the backlog of this repository; one that cannot be read knows no story."""
    try:
        stories = load_stories((), top=repository.top, default=settings.stories)
    except BacklogError:
        return {}
    return {story.id: story for story in stories}


def with_local_commands(
    stories: Iterable[Story], known: Mapping[StoryId, Story], run_id: RunId
) -> tuple[Story, ...]:
    """Return the stories of an imported run with the commands and agents that this repository gives them."""
    return tuple(_local(story, known.get(story.id), run_id) for story in stories)


def _local(story: Story, own: Story | None, run_id: RunId) -> Story:
    if own is None:
        # Whatever it says about its source, it is not the user's own command line.
        return replace(story, source=f"shards of run {run_id}")
    return replace(
        story,
        command=own.command,
        verify=own.verify,
        agent=own.agent,
        escalate=own.escalate,
        source=own.source,
    )


def imported_demands(
    repository: Repository, settings: Settings, stories: Sequence[Story], tips: Mapping[StoryId, str]
) -> Iterator[Demand]:
    """Return what these stories of an imported run ask for; `tips` is what their agents find checked out."""
    for story in stories:
        yield from story_demands(story)
        if story.id in tips:
            try:
                workers = workers_of(story, settings)
            except RunnerError:
                continue  # an agent that is not known here cannot run, which is said when it would
            yield from agent_demands(repository, tips[story.id], {story.id: workers})


def continued_demands(
    repository: Repository, settings: Settings, run: RunSnapshot, stories: Sequence[Story]
) -> Iterator[Demand]:
    """Return what an imported run asks for when it continues, in the stories that are not done."""
    done = {story.id for story in run.stories.values() if story.status is Status.DONE}
    left = [story for story in stories if story.id not in done]
    local = with_local_commands(left, known_stories(repository, settings), run.run_id)
    tips = {story.id: repository.branch_tip(branch_of(story.id)) or run.base for story in local}
    return imported_demands(repository, settings, local, tips)


def newest_demands(repository: Repository, settings: Settings, journal: Journal) -> Iterator[Demand]:
    """Return what `resume` would ask about the newest run, if it came by shards."""
    run_id = journal.newest_run()
    events = journal.events(run_id)
    run = fold(run_id, events)
    if is_imported(run.options):
        stories = stories_of(events)
        yield from flow_demands(repository.top, stories, settings.dialect)
        yield from tracker_demands(repository, run.base, stories, settings)
        yield from continued_demands(repository, settings, run, stories)
