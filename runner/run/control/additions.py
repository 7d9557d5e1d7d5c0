"""Stories for an active run, on the sender's side: read and checked like a plan, with what the run has."""

from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.paths import folds_case, journal_path
from runner.agents.catalog import require_clear_models, workers_of
from runner.core.errors import UsageError
from runner.core.events.fold import fold
from runner.core.events.run_stories import stories_of
from runner.core.model import RunId, Status, Story, StoryId
from runner.core.schedule.graph import ordered
from runner.core.settings import Settings
from runner.core.text.names import unique
from runner.core.trust import Demand
from runner.plan.claims import claim_additions, read_ownership
from runner.plan.plan import with_flow
from runner.plan.settings.json_form import from_json as settings_from_json
from runner.plan.settings.load import Loaded
from runner.plan.stories.sources import COMMAND_LINE, load_stories
from runner.plan.trust.demands import agent_demands, flow_demands, story_demands, tracker_demands
from runner.records.journal import Journal

_OPEN = frozenset({Status.WAITING, Status.QUEUED})


class Additions(Struct, frozen=True, kw_only=True):
    """The stories to add, and what the files of the repository would run for them."""

    stories: tuple[Story, ...]
    demands: tuple[Demand, ...]


class RunningStories(Struct, frozen=True, kw_only=True):
    """What an active run has: its stories, those that have not started, its settings and its base."""

    stories: Sequence[Story]
    open: Collection[StoryId]
    settings: Settings
    base: str


def running_stories(repository: Repository, run_id: RunId) -> RunningStories:
    """Return the stories, the settings and the base of a run. Blocking."""
    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        events = journal.events(run_id)
    run = fold(run_id, events)
    return RunningStories(
        stories=stories_of(events),
        open={story.id for story in run.stories.values() if story.status in _OPEN},
        settings=settings_from_json(run.options, top=repository.top),
        base=run.base,
    )


def plan_additions(
    repository: Repository, loaded: Loaded, sources: Sequence[str], running: RunningStories, *, cwd: Path
) -> Additions:
    """Read the stories that are named; raises what a plan would raise. Writes nothing."""
    found = load_stories(sources, top=repository.top, default=loaded.settings.stories, cwd=cwd)
    known = {story.id: story for story in running.stories}
    new = [with_flow(story, repository.top, running.settings) for story in _renamed(found, known)]
    # What a named story depends on comes along; what has started stays as it is.
    new = [story for story in new if story.id not in known or story.id in running.open]
    new = [story for story in new if known.get(story.id) != story]
    if not new:
        raise _already_there(found)
    return _checked(repository, loaded, new, running)


def plan_new_story(
    repository: Repository, loaded: Loaded, story: Story, running: RunningStories
) -> Additions:
    """Check a story that was written just now, in no file; it takes the place of no other. Writes nothing."""
    if any(story.id == each.id for each in running.stories):
        raise _already_there([story])
    return _checked(repository, loaded, [with_flow(story, repository.top, running.settings)], running)


def _checked(
    repository: Repository, loaded: Loaded, new: Sequence[Story], running: RunningStories
) -> Additions:
    """Return the new stories in their order among those of the run; raises what a plan would raise."""
    settings = running.settings
    away = [story for story in new if story.repo]
    if away:
        raise UsageError(
            f"story {away[0].id} works in another repository ({away[0].repo}), and only stories of the "
            "run's own can join it while it is active",
            hint="start a run with it when this one has ended.",
        )
    everybody = (*running.stories, *new)
    ownership = read_ownership(replace(loaded, settings=settings), everybody, complete=False)
    here = [story for story in running.stories if not story.repo]
    new = claim_additions(new, here, ownership, settings, folding=folds_case(repository.top))
    by_id = {story.id: story for story in (*running.stories, *new)}
    chosen = tuple(story for story in ordered(by_id.values()) if story in new)
    workers = {story.id: workers_of(story, running.settings) for story in chosen}
    require_clear_models(workers.values(), running.settings)
    demands = (
        *loaded.demands,
        *(demand for story in chosen for demand in story_demands(story)),
        *flow_demands(repository.top, chosen, running.settings.dialect),
        *tracker_demands(repository, running.base, chosen, running.settings),
        *agent_demands(repository, running.base, workers),
    )
    return Additions(stories=chosen, demands=demands)


def _already_there(stories: Sequence[Story]) -> UsageError:
    return UsageError(
        f"the run already has {', '.join(story.id for story in stories)}",
        hint="`autopilot-multi retry STORY` tries one again that has ended.",
    )


def _renamed(stories: Sequence[Story], known: Collection[StoryId]) -> list[Story]:
    """Return the stories with new ids for prompts whose first words the run has already."""
    taken = {str(name) for name in known} | {str(story.id) for story in stories}
    renamed = []
    for story in stories:
        if story.source == COMMAND_LINE and story.id in known:
            name = unique(story.id, taken)
            taken.add(name)
            renamed.append(replace(story, id=StoryId(name)))
        else:
            renamed.append(story)
    return renamed
