"""Moves branches of stories off what has landed as other commits: `git rebase --onto` with their fork points.

A story that was built on another one has that one's commits in its history. Once these are on the target as
other commits, by a squash or a rebase, a plain merge of the branch would bring back what the story deleted.
So its own commits are put on top of the target, or of what else it was built on. Everything follows from the
journal and the target, so that the next command simply continues what a killed one has begun. The old tip
stays under `refs/autopilot/old/`. Each branch moves as the target does: intent, act, done.
"""

import time
from collections.abc import Collection, Mapping
from functools import partial

from msgspec import Struct

from isolation.errors import IsolationError, MergeConflictError, TargetError
from isolation.git.checkout import read_status
from isolation.git.commits import merge_parents, named, operation_in_progress
from isolation.git.landing.merges import not_contained
from isolation.git.landing.old_tips import place_for
from isolation.git.landing.replay import replay
from isolation.git.landing.target import Move, checkouts_of, move, release, repair, settle
from isolation.git.repository import Repository
from isolation.paths import own_git_dir
from runner.core.events import landing as ld
from runner.core.events.events import Event
from runner.core.landing.order import landing_order
from runner.core.model import RunId, Status, StoryId
from runner.core.text.screen import neutral
from runner.land.known import Known, landed_in, load_known
from runner.land.landings import LandingLog
from runner.records.journal import Journal
from runner.run.several.belonging import Belonging

_AT_REST = frozenset({Status.DONE, Status.FAILED, Status.NO_WORK})
KILLED = "its process was killed before the branch moved"


class Restack(Struct, frozen=True, kw_only=True):
    """A story whose branch was moved to `after`; with a `reason` it was left as it is."""

    story: StoryId
    branch: str
    before: str
    after: str = ""
    base: str = ""
    kept: str = ""
    reason: str = ""


class _LeftError(Exception):
    """The branch must stay as it is, with the reason."""


def restack_line(each: Restack, onto: str) -> str:
    """Say that a branch follows what has landed as other commits, or why it does not."""
    if each.reason:
        return f"not restacked: {each.story}: {neutral(each.reason)}"
    return f"restacked {each.story} onto {onto}; its old tip is {each.kept}"


def restack(repository: Repository, log: LandingLog, onto: str) -> tuple[Restack, ...]:
    """Restack every story that is built on what a target has as other commits. Blocking.

    The caller holds the lease, so no run is at work.
    """
    verified = (event.body for event in log.journal.events_of("LandingVerified"))
    if not any(isinstance(body, ld.LandingVerified) and body.style != "merge" for body in verified):
        return ()
    target = repository.branch_tip(onto)
    past = load_known(log.journal, repository)
    known = past.stories
    if target is None or not past.replaced:
        return ()
    here = {
        each.commit
        for each in known.values()
        if each.commit in past.replaced and landed_in(repository, each, target)
    }
    return _Pass(repository, log, onto=onto, target=target, known=known).run(here) if here else ()


class _Pass:
    """One look at all stories."""

    def __init__(
        self,
        repository: Repository,
        log: LandingLog,
        *,
        onto: str,
        target: str,
        known: Mapping[StoryId, Known],
    ) -> None:
        self._repository = repository
        self._log = log
        self._onto = onto
        self._target = target
        tips = {name: repository.branch_tip(each.branch) for name, each in known.items() if each.branch}
        self._tips = {name: tip for name, tip in tips.items() if tip is not None}
        missing = not_contained(repository, self._tips.values(), target)
        self._open = {
            name: known[name]
            for name, tip in self._tips.items()
            if tip in missing and not landed_in(repository, known[name], target)
        }
        self._left: set[StoryId] = set()

    def run(self, replaced: set[str]) -> tuple[Restack, ...]:
        """Take the stories in the order of what they are built on; the target has `replaced` as others."""
        forks = {each.fork for each in self._open.values()}
        histories = {fork: self._history(fork) for fork in forks}
        # Found before anything moves, since a branch that has moved is at another commit.
        below = {
            name: [
                other
                for other, its in self._open.items()
                if other != name and ({its.commit, self._tips[other]} - {its.fork}) & histories[each.fork]
            ]
            for name, each in self._open.items()
        }
        stale = {name for name, each in self._open.items() if histories[each.fork] & replaced}
        order = landing_order(below, {})
        return tuple(self._one(self._open[name], below[name]) for name in order if name in stale)

    def _history(self, fork: str) -> set[str]:
        """Return what a fork point has beyond the target; nothing of one that is gone."""
        args = ("rev-list", fork, "--not", self._target, "--")
        return set(self._repository.run(*args, check=False).stdout.split())

    def _one(self, story: Known, below: Collection[StoryId]) -> Restack:
        name, before = story.story.id, self._tips[story.story.id]
        try:
            self._require_at_rest(story, below)
            intent = self._planned(story, below)
            # A later run that only found it done may have the decisions about it.
            _carry_out(self._repository, self._log, {story.worked_in, story.run.run_id}, intent)
        except (_LeftError, IsolationError) as error:
            self._left.add(name)
            return Restack(story=name, branch=story.branch, before=before, reason=str(error))
        self._tips[name] = intent.commit
        return Restack(
            story=name,
            branch=story.branch,
            before=before,
            after=intent.commit,
            base=intent.base,
            kept=intent.kept,
        )

    def _require_at_rest(self, story: Known, below: Collection[StoryId]) -> None:
        """Refuse what somebody may be at work on."""
        if story.status not in _AT_REST:
            raise _LeftError(f"it is in the middle of run {story.run.run_id}; resume that first")
        if waits := sorted(self._left & set(below)):
            raise _LeftError(f"it is built on {', '.join(waits)}, which could not be restacked")
        base = story.run.base_of(story.story.repo)
        if not_contained(self._repository, [base], self._target):
            raise _LeftError(f"its run started from {base[:10]}, which {self._onto} does not have")
        for checkout in checkouts_of(self._repository, story.branch):
            git_dir = own_git_dir(checkout)
            if git_dir is not None and (operation := operation_in_progress(git_dir)):
                raise _LeftError(f"{checkout} is in the middle of {operation}")
            if dirty := read_status(self._repository, checkout).dirty:
                raise _LeftError(f"{checkout} has uncommitted changes: {named(dirty)}")

    def _planned(self, story: Known, below: Collection[StoryId]) -> ld.StoryRestackPlanned:
        """Make the commits, which nothing points to yet."""
        repository, name = self._repository, story.story.id
        tip = self._tips[name]
        parents = (self._target, *(self._tips[each] for each in below))
        try:
            base = merge_parents(repository, parents, f"Merge the dependencies of {name}")
        except MergeConflictError as error:
            raise _LeftError(error.message) from error
        sign = repository.signs_commits
        made = replay(repository, base, tip, time.time(), fork=story.fork, sign=sign)
        if made.conflicts:
            raise _LeftError(f"conflicts with {self._onto} in {named(made.conflicts)}")
        if not made.commit:
            raise _LeftError(made.obstacle)
        return ld.StoryRestackPlanned(
            story_id=name,
            onto=self._onto,
            branch=story.branch,
            before=tip,
            commit=made.commit,
            base=base,
            kept=place_for(repository, name, tip),
            commits=repository.count_commits(base, made.commit),
        )


def _carry_out(
    repository: Repository, log: LandingLog, runs: Collection[RunId], intent: ld.StoryRestackPlanned
) -> None:
    log.append([(run_id, intent) for run_id in runs])
    wanted = Move(
        branch=intent.branch,
        old=intent.before,
        new=intent.commit,
        reason=f"restack onto {intent.onto}",
        recorded={intent.kept: intent.before},
    )
    given_up = partial(ld.StoryNotRestacked, story_id=intent.story_id, onto=intent.onto)
    try:
        moved = move(repository, wanted)
    except TargetError as error:
        log.append([(run_id, given_up(reason=error.message)) for run_id in runs])
        raise
    if not moved:
        reason = f"{intent.branch} moved in the meantime"
        log.append([(run_id, given_up(reason=reason)) for run_id in runs])
        raise _LeftError(reason)
    log.append([(run_id, _done(intent)) for run_id in runs])


def _done(intent: ld.StoryRestackPlanned) -> ld.StoryRestacked:
    return ld.StoryRestacked(
        story_id=intent.story_id,
        onto=intent.onto,
        commit=intent.commit,
        base=intent.base,
        kept=intent.kept,
        commits=intent.commits,
        before=intent.before,
    )


def complete_restacks(repository: Repository, log: LandingLog) -> None:
    """Record how restacks ended whose process was killed in between. The caller holds the lease. Blocking."""
    own = Belonging(log.journal, repository)
    for event, intent in _unfinished(log.journal):
        if not own.has(event.run_id, intent.story_id):
            continue
        release(repository, intent.branch, (intent.kept,), since=event.at)
        if repository.branch_tip(intent.branch) == intent.commit:
            repair(repository, {intent.kept: intent.before})
            settle(repository, intent.branch, intent.before, intent.commit)
            log.append([(event.run_id, _done(intent))])
        else:
            given_up = ld.StoryNotRestacked(story_id=intent.story_id, onto=intent.onto, reason=KILLED)
            log.append([(event.run_id, given_up)])


def _unfinished(journal: Journal) -> list[tuple[Event, ld.StoryRestackPlanned]]:
    begun: dict[tuple[RunId, StoryId], tuple[Event, ld.StoryRestackPlanned]] = {}
    for event in journal.events_of("StoryRestackPlanned", "StoryRestacked", "StoryNotRestacked"):
        body = event.body
        if isinstance(body, ld.StoryRestackPlanned):
            begun[event.run_id, body.story_id] = (event, body)
        elif isinstance(body, ld.StoryRestacked | ld.StoryNotRestacked):
            begun.pop((event.run_id, body.story_id), None)
    return list(begun.values())
