"""Completes or gives up a landing, or its undoing, that a killed process left between intent and end.

The ref that records it moves together with the target, so it says whether the act has happened.
"""

from collections.abc import Callable

from isolation.git.landing.merges import LANDED
from isolation.git.landing.target import has_ref, release, settle
from isolation.git.repository import Repository
from runner.core.events import landing as ld
from runner.land.landings import Landing, LandingLog, landings

KILLED = "its process was killed before the target moved"


def recover(repository: Repository, log: LandingLog, say: Callable[[str], None]) -> None:
    """Bring every landing to its end. The caller holds the lease. Blocking."""
    for each in landings(log.journal):
        if each.moving or each.undoing is not None:
            release(repository, each.onto)
        if each.moving:
            _complete_landing(repository, log, each, say)
        elif each.undoing is not None:
            _complete_undo(repository, log, each, each.undoing, say)


def _complete_landing(
    repository: Repository, log: LandingLog, each: Landing, say: Callable[[str], None]
) -> None:
    if not has_ref(repository, f"{LANDED}/{each.id}"):
        log.record(each.owners, lambda _: ld.LandingAbandoned(landing_id=each.id, reason=KILLED))
        say(f"landing {each.id} was interrupted before {each.onto} moved; it starts over")
        return
    if repository.branch_tip(each.onto) == each.commit:
        settle(repository, each.onto, each.before, each.commit)
    log.record(
        each.owners,
        lambda stories: ld.Landed(landing_id=each.id, onto=each.onto, commit=each.commit, stories=stories),
    )
    say(f"landing {each.id} was interrupted after {each.onto} had moved; it is complete now")


def _complete_undo(
    repository: Repository,
    log: LandingLog,
    each: Landing,
    intent: ld.LandingUndoPlanned,
    say: Callable[[str], None],
) -> None:
    if has_ref(repository, f"{LANDED}/{each.id}"):
        log.record(each.owners, lambda _: ld.LandingAbandoned(landing_id=each.id, reason=KILLED))
        say(f"undoing landing {each.id} was interrupted before {each.onto} moved; nothing was undone")
        return
    if repository.branch_tip(each.onto) == intent.commit:
        settle(repository, each.onto, intent.before, intent.commit)
    reverted = intent.commit != each.before
    log.record(
        each.owners,
        lambda stories: ld.LandingUndone(landing_id=each.id, stories=stories, reverted=reverted),
    )
    say(f"undoing landing {each.id} was interrupted after {each.onto} had moved; it is complete now")
