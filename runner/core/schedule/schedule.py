"""Which stories may start now, which are ready, which will never be, and what the rest waits for.

A dependency releases its dependents only when it is done, or changed nothing and says that this is
fine. One that failed, was skipped or had nothing to do blocks them immediately; one that is parked or
stopped may still come back, so its dependents wait as long as anything else can run. `--continue always`
is the user's explicit wish to start dependents whatever the verdict. The window is never
exceeded and no story is ever evicted.

A story of an exclusive mode runs alone: it starts when nothing runs, and nothing starts while it runs.
The order is kept: once such a story is ready, what comes after it waits for it.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from runner.core.model import ContinuePolicy, Status, Story, StoryId
from runner.core.schedule.exclusivity import runs_alone

_BLOCKS = frozenset({Status.FAILED, Status.SKIPPED, Status.NO_WORK})
_MAY_RETURN = frozenset({Status.PARKED, Status.STOPPED})
_PHRASES = {
    Status.FAILED: "failed",
    Status.SKIPPED: "was skipped",
    Status.NO_WORK: "had nothing to commit",
    Status.PARKED: "waits for a decision",
    Status.STOPPED: "was stopped",
}


class Skip(Struct, frozen=True, kw_only=True):
    """A story that will not start, the dependencies (or the failed story) to blame, and the reason."""

    story_id: StoryId
    blocked_by: tuple[StoryId, ...]
    reason: str


class ScheduleDecision(Struct, frozen=True, kw_only=True):
    """What to do now, in this order: `skip`, `queue`, `start`.

    `queue` holds the stories that have just become ready; some of them may be in `start` too. `next` holds
    those that lack nothing but a free slot. `waiting_for` says for every other story what it waits for.
    """

    start: tuple[StoryId, ...]
    queue: tuple[StoryId, ...]
    skip: tuple[Skip, ...]
    waiting_for: Mapping[StoryId, str]
    next: tuple[StoryId, ...] = ()


def decide(
    order: Sequence[Story],
    statuses: Mapping[StoryId, Status],
    window: int,
    policy: ContinuePolicy,
    *,
    admitting: bool,
    patient: bool = False,
    leaving: Collection[StoryId] = (),
    held: Mapping[StoryId, str] = MappingProxyType({}),
    reasons: bool = True,
) -> ScheduleDecision:
    """Decide from the start order and every story's status; `order` has dependencies first.

    With `patient`, stories that wait for a parked story keep waiting, since the user may still answer.
    Stories that are `leaving` have their verdict and still clean up: they take no slot, but no story counts
    as alone beside them. Stories that are `held` are ready and yet do not start, for the reason given.
    Without `reasons`, `waiting_for` stays empty.
    """
    open_ = [story for story in order if statuses[story.id] in {Status.WAITING, Status.QUEUED}]
    if not admitting:
        waiting_for = {story.id: "no new story starts" for story in open_}
        return ScheduleDecision(start=(), queue=(), skip=(), waiting_for=waiting_for)
    if policy is ContinuePolicy.NEVER:
        failed = tuple(story.id for story in order if statuses[story.id] is Status.FAILED)
        if failed:
            reason = f"{_join(failed)} failed, and with --continue never nothing starts after a failure"
            skip = tuple(Skip(story_id=story.id, blocked_by=failed, reason=reason) for story in open_)
            return ScheduleDecision(start=(), queue=(), skip=skip, waiting_for={})
    decision = _Round(order, statuses, window, policy, leaving)
    return decision.made(open_, patient=patient, held=held, reasons=reasons)


class _Round:
    """One decision in progress; `now` includes the skips of this very round, so they cascade."""

    def __init__(
        self,
        order: Sequence[Story],
        statuses: Mapping[StoryId, Status],
        window: int,
        policy: ContinuePolicy,
        leaving: Collection[StoryId],
    ) -> None:
        self.by_id = {story.id: story for story in order}
        fine = {story.id for story in order if story.allow_no_change}
        self.now = {
            name: Status.DONE if status is Status.NO_WORK and name in fine else status
            for name, status in statuses.items()
        }
        self.window = window
        self.policy = policy
        self.running = [story for story in order if statuses[story.id] is Status.RUNNING]
        # A story that is leaving has freed its slot, but its hooks may still touch the repository.
        inside = {*(story.id for story in self.running), *leaving}
        self.inside = [story for story in order if story.id in inside]
        self.alone = {story.id for story in order if runs_alone(story.mode)}

    def made(
        self, open_: Sequence[Story], *, patient: bool, held: Mapping[StoryId, str], reasons: bool
    ) -> ScheduleDecision:
        skip = self._skips(open_, _BLOCKS)
        left = [story for story in open_ if self.now[story.id] is not Status.SKIPPED]
        ready = [story for story in left if not story.depends_on or not self._missing(story)]
        # Nothing runs that could release them, so what waits for a parked or stopped story never starts.
        if not ready and not self.running and not patient:
            skip += self._skips(left, _BLOCKS | _MAY_RETURN)
            left = [story for story in left if self.now[story.id] is not Status.SKIPPED]
        free = [story for story in ready if story.id not in held]
        start = self._start(free)
        behind = self._behind_one_alone(ready) if reasons else {}
        return ScheduleDecision(
            start=start,
            queue=tuple(story.id for story in ready if self.now[story.id] is Status.WAITING),
            skip=tuple(skip),
            waiting_for={
                story.id: self._wait(story, start, behind.get(story.id))
                if self._missing(story) or story.id not in held
                else held[story.id]
                for story in left
                if reasons and story.id not in start
            },
            next=self._next([story for story in free if story.id not in start], open_),
        )

    def _next(self, free: Sequence[Story], open_: Sequence[Story]) -> tuple[StoryId, ...]:
        """Return the stories that only lack a slot; none while a story must run alone."""
        if any(story.id in self.alone for story in (*self.inside, *open_)):
            return ()
        return tuple(story.id for story in free)

    def _start(self, ready: Sequence[Story]) -> tuple[StoryId, ...]:
        """Return the first stories that fit; one that runs alone starts only when nothing else runs."""
        if any(story.id in self.alone for story in self.inside):
            return ()
        chosen: list[StoryId] = []
        for story in ready[: max(0, self.window - len(self.running))]:
            if story.id in self.alone:
                if not self.inside and not chosen:
                    chosen.append(story.id)
                # Nothing overtakes it: a steady flow of other stories would keep it waiting forever.
                break
            chosen.append(story.id)
        return tuple(chosen)

    def _behind_one_alone(self, ready: Sequence[Story]) -> dict[StoryId, Story]:
        """Map each ready story to the one before it that runs alone."""
        first = next((story for story in self.inside if story.id in self.alone), None)
        behind: dict[StoryId, Story] = {}
        for story in ready:
            if first is not None:
                behind[story.id] = first
            elif story.id in self.alone:
                first = story
        return behind

    def _missing(self, story: Story) -> list[StoryId]:
        """Return the dependencies that hold the story back."""
        if self.policy is ContinuePolicy.ALWAYS:
            return [name for name in story.depends_on if not self.now[name].final]
        return [name for name in story.depends_on if self.now[name] is not Status.DONE]

    def _skips(self, stories: Sequence[Story], blocking: frozenset[Status]) -> list[Skip]:
        skips: list[Skip] = []
        for story in stories:
            if not story.depends_on:
                continue
            blockers = tuple(name for name in self._missing(story) if self.now[name] in blocking)
            if blockers:
                reason = "depends on " + " and on ".join(self._blame(name) for name in blockers)
                skips.append(Skip(story_id=story.id, blocked_by=blockers, reason=reason))
                # The order has dependencies first, so one pass cascades through a whole chain.
                self.now[story.id] = Status.SKIPPED
        return skips

    def _blame(self, name: StoryId) -> str:
        words = f"{name}, which {_PHRASES[self.now[name]]}"
        roots = self._roots(name) if self.now[name] is Status.SKIPPED else ()
        return f"{words} because of {_join(roots)}" if roots else words

    def _roots(self, name: StoryId) -> tuple[StoryId, ...]:
        """Return the stories at the root of a chain of skips."""
        found: set[StoryId] = set()
        seen: set[StoryId] = set()
        pending = [name]
        while pending:
            for item in self.by_id[pending.pop()].depends_on:
                if item in seen:
                    continue
                seen.add(item)
                if self.now[item] is Status.SKIPPED:
                    pending.append(item)
                elif self.now[item] in _BLOCKS | _MAY_RETURN:
                    found.add(item)
        return tuple(sorted(found))

    def _wait(self, story: Story, start: Sequence[StoryId], first: Story | None) -> str:
        missing = self._missing(story)
        if not missing and first is not None:
            return f"waits for {first.id}, which runs alone (mode {first.mode})"
        others = [*(one.id for one in self.inside), *start]
        if not missing and story.id in self.alone and others:
            return f"runs alone (mode {story.mode}): waits for {_join(others)}"
        if not missing:
            busy = len(self.running) + len(start)
            return f"waits for a free slot ({busy} of {self.window} running)"
        return "waits for " + _join(
            [
                f"{name}, which {_PHRASES[self.now[name]]}" if self.now[name] in _MAY_RETURN else name
                for name in missing
            ]
        )


def _join(names: Sequence[str]) -> str:
    return ", ".join(names)
