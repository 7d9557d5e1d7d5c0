"""What a repository's own files would run or switch off.

Collected without running anything: from the settings in the repository, the stories, the flows, and the
files that known agents obey.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from isolation.git.repository import Repository
from runner.agents.workers import Workers, agents_of
from runner.core.flow import QUICK, USER_FOLDER, Edition
from runner.core.model import Story, StoryId
from runner.core.settings import Settings
from runner.core.trust import OF_STORIES, Demand
from runner.core.work_items.tracker import HOSTED, Tracker
from runner.flows.catalog import load_flow, user_files
from runner.forge.tracker.servers import server_demands
from runner.plan.plan import Plan
from runner.plan.repositories.site import Site
from runner.plan.stories.sources import COMMAND_LINE


def demands_of(plan: Plan) -> dict[str, tuple[Demand, ...]]:
    """Return what the files of each repository would run or switch off in this run, by the name of its site.

    The stories are files of the run's own repository, and so are the names that they have for others.
    """
    left = [story for story in plan.own if story.id not in plan.finished]
    used = {story.repo for story in left}
    named = (demand for site in plan.sites.values() if site.name in used for demand in site.named_by)
    return {
        name: (
            *(plan.loaded.demands if site.is_home else site.demands),
            *(demand for story in left if site.is_home for demand in story_demands(story)),
            *(named if site.is_home else ()),
            *_demands_in(plan, site, [story for story in left if story.repo == name]),
        )
        for name, site in plan.sites.items()
        if site.is_home or name in used
    }


def _demands_in(plan: Plan, site: Site, stories: Sequence[Story]) -> Iterator[Demand]:
    """Return what the files of one repository ask for because of the stories that work there."""
    repository, settings = site.repository, site.settings
    yield from flow_demands(repository.top, stories, settings.dialect)
    yield from tracker_demands(repository, site.base, stories, settings)
    yield from agent_demands(repository, site.base, {story.id: plan.workers[story.id] for story in stories})


def flow_demands(top: Path, stories: Iterable[Story], dialect: str) -> Iterator[Demand]:
    """Return the commands in flows of the repository that these stories follow."""
    names = {story.flow for story in stories} - {QUICK.name}
    if not names & {path.stem for path in user_files(top)}:
        return
    for story in stories:
        own = top / USER_FOLDER / f"{story.flow}.toml"
        if story.flow in names and own.is_file():
            names.discard(story.flow)
            flow = load_flow(story.flow, Edition(story.dialect or dialect), top)
            for step in flow.steps:
                if step.command:
                    what = f"flow {flow.name}, step {step.number}: command"
                    yield Demand(
                        what=what, value=shlex.join(step.command), where=f"{USER_FOLDER}/{story.flow}.toml"
                    )


def tracker_demands(
    repository: Repository, base: str, stories: Iterable[Story], settings: Settings
) -> Iterator[Demand]:
    """Return the MCP servers in files of the repository that steps with work items might start."""
    flows = {(story.flow, story.dialect or settings.dialect) for story in stories}
    flows = {(name, dialect) for name, dialect in flows if name != QUICK.name}
    if not flows or settings.tracker in {Tracker.LOCAL, *HOSTED}:
        return
    demands = tuple(server_demands(repository, base, only=settings.tracker_server))
    if demands and any(_has_tracker(name, dialect, repository.top) for name, dialect in flows):
        yield from demands


def _has_tracker(name: str, dialect: str, top: Path) -> bool:
    return any(step.tracker for step in load_flow(name, Edition(dialect), top).steps)


def story_demands(story: Story) -> Iterator[Demand]:
    """Return what the file of a story asks for; a prompt on the command line is the user's own."""
    if story.source == COMMAND_LINE:
        return
    if story.command:
        yield Demand(what=f"{OF_STORIES}command", value=shlex.join(story.command), where=story.source)
    for command in story.verify:
        yield Demand(what=f"{OF_STORIES}verify", value=command, where=story.source)
    for name in filter(None, (story.agent, *(story.escalate or ()))):
        yield Demand(what=f"{OF_STORIES}agent", value=name, where=story.source)


def agent_demands(repository: Repository, base: str, workers: Mapping[StoryId, Workers]) -> Iterator[Demand]:
    """Return the files of the repository that agents obey, each with the content that it has now."""
    obeyed = {name: agent.name for agent in agents_of(workers) for name in agent.traits.obeys}
    if not obeyed:
        return
    listing = ("ls-tree", "-r", "-z", "--full-tree", base, "--", *sorted(obeyed))
    for line in repository.run(*listing).fields():
        words, _, path = line.partition("\t")
        top = next((name for name in obeyed if path == name or path.startswith(f"{name}/")), path)
        yield Demand(
            what=f"{obeyed.get(top, 'agent')} obeys {path}",
            value=f"content {words.split(' ')[2][:12]}",
            where=path,
        )
