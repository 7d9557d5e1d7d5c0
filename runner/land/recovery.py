"""Completes or gives up a landing, or its undoing, that a killed process left between intent and end.

The target itself says whether the act has happened. The refs that record it move together with it, unless git
was killed in the middle; so they are set again.
"""

from collections.abc import Callable

from isolation.git.landing.merges import LANDED, UNDONE
from isolation.git.landing.target import release, release_checkouts, repair, settle
from isolation.git.repository import Repository
from runner.core.events import landing as ld
from runner.land.landings import Landing, LandingLog, landings
from runner.land.restack import complete_restacks

KILLED = "its process was killed before the target moved"


def recover(repository: Repository, log: LandingLog, say: Callable[[str], None]) -> None:
    """Bring every landing to its end. The caller holds the lease. Blocking."""
    complete_restacks(repository, log)
    for each in landings(log.journal, repository):
        if each.planned:
            release_checkouts(repository, each.onto)
        elif each.moving or each.undoing is not None:
            refs = (f"{LANDED}/{each.id}", f"{UNDONE}/{each.id}")
            release(repository, each.onto, refs, since=each.at)
        if each.planned:
            log.record_whole(each.train, ld.LandingAbandoned(landing_id=each.id, reason=KILLED))
            say(f"landing {each.id} was interrupted while it verified; {each.onto} has not moved")
        elif each.moving:
            _complete_landing(repository, log, each, say)
        elif each.undoing is not None:
            _complete_undo(repository, log, each, each.undoing, say)


def give_up(repository: Repository, log: LandingLog, landing_id: str, reason: str) -> None:
    """Record that a landing ended while it verified; once its target may have moved, `recover` decides."""
    for each in landings(log.journal, repository):
        if each.id == landing_id and each.planned:
            log.record_whole(each.train, ld.LandingAbandoned(landing_id=each.id, reason=reason))


def _complete_landing(
    repository: Repository, log: LandingLog, each: Landing, say: Callable[[str], None]
) -> None:
    tip = repository.branch_tip(each.onto)
    if tip is None or not contains(repository, tip, each.commit):
        abandoned = ld.LandingAbandoned(landing_id=each.id, reason=KILLED)
        log.record_whole(each.train or each.owners, abandoned)
        say(f"landing {each.id} was interrupted before {each.onto} moved; nothing was landed")
        return
    repair(repository, {f"{LANDED}/{each.id}": each.before})
    if tip == each.commit:
        settle(repository, each.onto, each.before, each.commit)
    log.record(
        each.owners,
        lambda stories: ld.Landed(landing_id=each.id, onto=each.onto, commit=each.commit, stories=stories),
    )
    # The runs whose stories were left out have this end, too.
    log.record_whole(each.train, ld.LandingEnded(landing_id=each.id, landed=each.stories, after=each.commit))
    say(f"landing {each.id} was interrupted after {each.onto} had moved; it is complete now")


def _complete_undo(
    repository: Repository,
    log: LandingLog,
    each: Landing,
    intent: ld.LandingUndoPlanned,
    say: Callable[[str], None],
) -> None:
    tip, reverted = repository.branch_tip(each.onto), intent.commit != each.before
    # Moved back, the target no longer has what it had; reverted, it has the revert.
    undone = (
        tip is not None
        and contains(repository, tip, intent.commit if reverted else intent.before) == reverted
    )
    if not undone:
        log.record(each.owners, lambda _: ld.LandingAbandoned(landing_id=each.id, reason=KILLED))
        say(f"undoing landing {each.id} was interrupted before {each.onto} moved; nothing was undone")
        return
    repair(repository, {f"{LANDED}/{each.id}": "", f"{UNDONE}/{each.id}": intent.before})
    if tip == intent.commit:
        settle(repository, each.onto, intent.before, intent.commit)
    log.record(
        each.owners,
        lambda stories: ld.LandingUndone(landing_id=each.id, stories=stories, reverted=reverted),
    )
    say(f"undoing landing {each.id} was interrupted after {each.onto} had moved; it is complete now")


def contains(repository: Repository, tip: str, commit: str) -> bool:
    """Whether a commit is in the history of a tip; one that is gone is not."""
    return repository.run("merge-base", "--is-ancestor", commit, tip, check=False).returncode == 0
