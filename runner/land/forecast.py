"""The forecast for people: the stories that can land, and those of the newest run that are still at work."""

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import RepositoryError
from isolation.git.forecast.forecaster import Forecaster
from isolation.git.forecast.scratch import scratch
from isolation.git.repository import Repository
from isolation.paths import journal_path
from runner.core.events.fold import fold
from runner.core.forecast.clashes import Forecast
from runner.core.model import RunSnapshot, Status, StoryId
from runner.land.candidates import find_candidates, tip_of
from runner.land.session import target_of
from runner.records.journal import Journal
from runner.run.forecast.tips import can_foresee, forecast, tips_of
from runner.run.several.belonging import Belonging, known_repositories, require_named


class Outlook(Struct, frozen=True, kw_only=True):
    """A forecast on the commit `tip` of its target; `statuses` are those of its stories."""

    forecast: Forecast
    tip: str
    statuses: dict[str, str]


def outlooks(directory: Path, onto: str | None = None, repo: str | None = None) -> dict[str, Outlook]:
    """Foresee which stories conflict in each repository, from branches and from what is not committed yet.

    Nothing is locked and nothing stays behind, so that stories can work meanwhile.
    """
    home = Repository.open(directory)
    with Journal.open_readonly(journal_path(home.common_dir)) as journal:
        known = require_named(known_repositories(home, journal), repo)
        return {name: _outlook(there, journal, onto) for name, there in known.items()}


def _outlook(repository: Repository, journal: Journal, onto: str | None) -> Outlook:
    if not can_foresee(repository):
        raise RepositoryError(
            "a forecast needs git 2.38 or newer, which can merge without a checkout",
            hint="install a newer git; `autopilot-multi plan` compares the claims of stories with any git.",
        )
    branch = target_of(repository, onto)
    commit = repository.resolve(branch)
    done = find_candidates(repository, journal, branch, commit)
    run_id = journal.newest_run()
    run = fold(run_id, journal.events(run_id))
    own = Belonging(journal, repository)
    run = replace(run, stories={name: each for name, each in run.stories.items() if own.has(run_id, name)})
    with scratch(repository) as place:
        # A story that works again is judged by what it has now.
        working = {story.id for story in run.stories.values() if story.status is not Status.DONE}
        known = {each.id for each in done.stories} | {*done.contained, *done.gone, *done.held}
        repos = {story.repo for story in run.stories.values()}
        found = (tips_of(run, place, repo=repo, without=known - working) for repo in repos)
        tips = tuple(tip for each in found for tip in each)
        at_work = {tip.id for tip in tips}
        tips += tuple(tip_of(each) for each in done.stories if each.id not in at_work)
        made = forecast(Forecaster(), place, tips, onto=branch, commit=commit)
    return Outlook(forecast=made, tip=commit, statuses=_statuses(run, made))


def _statuses(run: RunSnapshot, made: Forecast) -> dict[str, str]:
    known = {str(story.id): story.status.value for story in run.stories.values()}
    return {name: known.get(StoryId(name), Status.DONE.value) for name in made.stories}
