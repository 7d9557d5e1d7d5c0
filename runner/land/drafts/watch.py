"""One round of `watch-prs`: answers that are due, a look at all drafts, and what follows from it.

The attempts are made by the caller between the two halves, since a run takes the lease for itself.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct

from isolation.errors import IsolationError
from isolation.git.repository import Repository
from runner.core.errors import RunnerError
from runner.core.model import StoryId
from runner.core.settings import Settings
from runner.land.drafts import reviews
from runner.land.drafts.known import Office, open_office
from runner.land.drafts.reviews import Answered, Found
from runner.land.drafts.session import Failure, Say, leased
from runner.records.journal import Journal


class Round(Struct, frozen=True, kw_only=True):
    """What one round has found and answered; with a dry run, what it would answer."""

    found: Found = Found()
    answered: tuple[Answered, ...] = ()
    failures: tuple[Failure, ...] = ()


def show_round(directory: Path, settings: Settings, say: Say) -> Round:
    """Find out what a round would do; the forge and the journal are only read."""
    with open_office(Repository.open(directory), settings, say=say) as office:
        given = [
            each for story_id in reviews.unanswered(office) for each in reviews.answers(office, story_id)
        ]
        return Round(found=reviews.look(office), answered=tuple(given))


def begin_round(directory: Path, settings: Settings, say: Say) -> Round:
    """Send the answers that are due, then look at all drafts; records what needs no attempt."""
    return _leased(directory, settings, say, _begin)


def end_round(directory: Path, settings: Settings, say: Say) -> Round:
    """Update the drafts of stories that were tried again, and answer their reviewers."""
    return _leased(directory, settings, say, _answer_all)


def _leased(directory: Path, settings: Settings, say: Say, act: Callable[[Office], Round]) -> Round:
    repository = Repository.open(directory)
    return trio.run(leased, repository, partial(_with_office, repository, settings, say, act))


def _with_office(
    repository: Repository, settings: Settings, say: Say, act: Callable[[Office], Round], journal: Journal
) -> Round:
    with open_office(repository, settings, journal, say=say) as office:
        return act(office)


def _begin(office: Office) -> Round:
    due = _answer_all(office)
    found = reviews.look(office)
    reviews.keep(office, found)
    return Round(found=found, answered=due.answered, failures=due.failures)


def _answer_all(office: Office) -> Round:
    answered: list[Answered] = []
    failures: list[Failure] = []
    for story_id in reviews.unanswered(office):
        try:
            answered += _answer(office, story_id)
        except (RunnerError, IsolationError) as error:
            failures.append(Failure(story_id=story_id, reason=error.message, hint=error.hint))
    return Round(answered=tuple(answered), failures=tuple(failures))


def _answer(office: Office, story_id: StoryId) -> Sequence[Answered]:
    # First the draft, so that reviewers find there what the answer is about.
    office.publisher(story_id).publish(story_id)
    given = reviews.answers(office, story_id)
    reviews.give(office, story_id, given)
    return given
