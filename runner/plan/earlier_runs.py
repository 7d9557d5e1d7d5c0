"""What earlier runs in this repository say about the stories of a plan. Only reads the journal."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.paths import journal_path
from runner.core.errors import JournalError, NotFoundError
from runner.core.model import RunId, Story, StoryId
from runner.core.text.names import branch_of
from runner.records.history import (
    EarlierResults,
    Finished,
    Past,
    earlier_results,
    past_of,
    unfinished_of_newest,
)
from runner.records.journal import Journal

NO_RUN = RunId("")


def require_failed(repository: Repository) -> tuple[StoryId, ...]:
    """Return the stories that failed in the newest run; there must be some."""
    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        unfinished = unfinished_of_newest(journal)
    if not unfinished:
        raise NotFoundError("no story failed in the newest run", hint="`autopilot-multi status` shows it.")
    return unfinished


def load_earlier(repository: Repository, stories: Sequence[Story]) -> EarlierResults:
    """Read which of these stories earlier runs finished, and how long they took."""
    try:
        with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
            return earlier_results(journal, stories)
    except (JournalError, NotFoundError):
        # The journal does not exist yet, or a kill left it empty. One that cannot be read is left to the
        # coordinator, which sets it aside or refuses to run.
        return EarlierResults()


def load_past(
    repository: Repository, stories: Sequence[Story], *, before: RunId = NO_RUN
) -> dict[StoryId, Past]:
    """Read what runs other than `before` left for the stories that follow a flow."""
    try:
        with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
            return past_of(journal, stories, before=before)
    except (JournalError, NotFoundError):  # as above
        return {}


def still_present(
    repository: Repository, found: Mapping[StoryId, Finished], base: str, *, only_on_base: bool = False
) -> dict[StoryId, Finished]:
    """Keep only the finished stories whose commit still exists: on the story's branch, or in the base.

    With `only_on_base` the commit must also have the base in its history. Otherwise the commit of one that
    has landed in the base is where it landed.
    """
    kept = {}
    for story_id, done in found.items():
        asked = ("merge-base", "--is-ancestor", done.landed_as, base)
        # An undone landing may have left no commit to ask about.
        landed = done.landed_as and not only_on_base
        if landed and repository.run(*asked, check=False).returncode == 0:
            kept[story_id] = replace(done, commit=done.landed_as)
            continue
        tip = repository.branch_tip(branch_of(story_id))
        commits = [commit for commit in (tip, base) if commit is not None]
        if not done.commit or (only_on_base and not repository.is_ancestor(base, done.commit)):
            continue
        if any(repository.is_ancestor(done.commit, commit) for commit in commits):
            kept[story_id] = done
    return kept
