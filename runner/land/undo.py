"""Takes a landing back: by moving the target where nothing stands on it, by a revert commit otherwise."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from msgspec import Struct

from isolation.errors import MergeConflictError, TargetError
from isolation.files import lease
from isolation.git.commits import named
from isolation.git.landing.merges import LANDED, UNDONE, revert
from isolation.git.landing.target import Move, move
from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository
from isolation.paths import holds_worktrees, journal_path
from runner.core.errors import NotFoundError
from runner.core.events import landing as ld
from runner.land.landing import Say
from runner.land.landings import Landing, LandingLog, landings
from runner.land.recovery import recover
from runner.plan.settings.json_form import redactor_for
from runner.plan.settings.load import load_settings
from runner.records.journal import Journal


class UndoPlan(Struct, frozen=True, kw_only=True):
    """What undoing a landing does: the target moves from `tip` to `commit`.

    `standing` is what builds on the landing, so that it is reverted by a commit and not moved away.
    """

    landing: Landing
    tip: str
    commit: str
    standing: tuple[str, ...] = ()

    @property
    def reverts(self) -> bool:
        """Whether a new commit takes the work back."""
        return bool(self.standing)


def find_landing(
    journal: Journal, repositories: Iterable[Repository], name: str | None
) -> tuple[Repository, Landing]:
    """Return the named landing, by its first characters, or the newest; one that is undone is not found.

    `repositories` are those in which stories of the journal have worked; the one of the landing is returned.
    """
    found = [(there, each) for there in repositories for each in landings(journal, there)]
    places = {each.id: there for there, each in found}
    ordered = sorted((each for _, each in found), key=lambda each: (each.at, each.id))
    known = [each for each in ordered if not each.moving and not each.abandoned]
    named_so = [each for each in known if not name or each.id.startswith(name)]
    left = [each for each in named_so if not each.undone]
    if not left:
        words = f"landing '{name}'" if name else "landing"
        undone = " that is not undone" if named_so else ""
        raise NotFoundError(
            f"there is no {words}{undone}",
            hint=f"landings: {', '.join(each.id for each in known if not each.undone) or 'none'}.",
        )
    return places[left[-1].id], left[-1]


def make_plan(repository: Repository, landing: Landing) -> UndoPlan:
    """Find out how a landing can be undone. Makes at most a commit that nothing points to. Blocking."""
    tip = repository.branch_tip(landing.onto)
    if tip is None:
        raise NotFoundError(f"the branch {landing.onto} is gone", hint="nothing can be undone there.")
    if not repository.is_ancestor(landing.commit, tip):
        raise TargetError(
            f"{landing.onto} no longer contains landing {landing.id}", hint="nothing is left to undo."
        )
    standing = _standing(repository, landing, tip)
    commit = _reverted(repository, landing, tip) if standing else landing.before
    return UndoPlan(landing=landing, tip=tip, commit=commit, standing=standing)


def _standing(repository: Repository, landing: Landing, tip: str) -> tuple[str, ...]:
    """Return what would be left on commits that the target no longer has.

    The refs of remotes say what was pushed; no remote is asked. Who has the first commit of the
    landing, and so a part of it, could not follow a target that moves back either.
    """
    found = [] if tip == landing.commit else [f"newer commits on {landing.onto}"]
    line = ("rev-list", "--first-parent", "--reverse", f"{landing.before}..{landing.commit}")
    first = (repository.run(*line).stdout.split() or [landing.commit])[0]
    args = ("for-each-ref", "--format=%(refname)", f"--contains={first}")
    refs = repository.run(*args, "refs/heads", "refs/remotes", "refs/tags").stdout.split()
    found += [ref for ref in refs if ref != f"refs/heads/{landing.onto}"]
    detached = [entry for entry in load_registrations(repository) if entry.branch is None and entry.head]
    users = [each for each in detached if not holds_worktrees(repository.common_dir, each.path.parent)]
    found += [f"the checkout {each.path}" for each in users if _has(repository, each.head, first)]
    return tuple(found)


def _has(repository: Repository, head: str, commit: str) -> bool:
    asked = repository.run("merge-base", "--is-ancestor", commit, head, check=False)
    return asked.returncode == 0


def _reverted(repository: Repository, landing: Landing, tip: str) -> str:
    stories = ", ".join(landing.stories)
    message = f"Revert landing of {stories}\n\nAutopilot-Landing-Undone: {landing.id}\n"
    made = revert(repository, tip, message, time.time(), before=landing.before, after=landing.commit)
    if made.conflicts:
        raise MergeConflictError(
            f"landing {landing.id} cannot be reverted: later commits changed {named(made.conflicts)}",
            paths=made.conflicts,
            hint=f"revert its merges by hand: git log {landing.before[:10]}..{landing.commit[:10]}",
        )
    if not made.commit:
        raise TargetError(f"landing {landing.id} cannot be reverted: {made.obstacle}")
    return made.commit


def undo(repository: Repository, log: LandingLog, plan: UndoPlan) -> None:
    """Carry a plan out. The caller holds the lease. Blocking."""
    landing = plan.landing
    intent = partial(
        ld.LandingUndoPlanned,
        landing_id=landing.id,
        onto=landing.onto,
        before=plan.tip,
        commit=plan.commit,
    )
    log.record(landing.owners, lambda stories: intent(stories=stories))
    wanted = Move(
        branch=landing.onto,
        old=plan.tip,
        new=plan.commit,
        reason=f"undo landing {landing.id}",
        recorded={f"{LANDED}/{landing.id}": "", f"{UNDONE}/{landing.id}": plan.tip},
    )
    abandoned = partial(ld.LandingAbandoned, landing_id=landing.id)
    try:
        moved = move(repository, wanted)
    except TargetError as error:
        reason = error.message
        log.record(landing.owners, lambda _: abandoned(reason=reason))
        raise
    if not moved:
        reason = f"{landing.onto} moved in the meantime"
        log.record(landing.owners, lambda _: abandoned(reason=reason))
        raise TargetError(reason, hint="nothing was undone; try again.")
    undone = partial(ld.LandingUndone, landing_id=landing.id, reverted=plan.reverts)
    log.record(landing.owners, lambda stories: undone(stories=stories))


@contextmanager
def holding(home: Repository, repositories: Iterable[Repository], say: Say) -> Iterator[LandingLog]:
    """Hold the leases and the journal, after what a killed process left was brought to its end.

    `home` has the journal; `repositories` are those in which its stories have worked, with it.
    """
    settings = load_settings(top=home.top, flags={}, environ=os.environ).settings
    every = sorted(repositories, key=lambda each: each.common_dir)
    with ExitStack() as held:
        for each in every:
            away = None if each.common_dir == home.common_dir else home.top
            held.enter_context(lease.acquire(each.common_dir, f"undo-{os.getpid()}", home=away))
        journal = held.enter_context(Journal.open(journal_path(home.common_dir)))
        log = LandingLog(journal, redactor_for(settings, os.environ))
        for each in every:
            recover(each, log, say)
        yield log
