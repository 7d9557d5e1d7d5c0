"""The part of the fold that follows landings: from their events to what is known of each.

The events of one run and those of a whole landing give the same, except for what only its end tells of other
runs: whichever copy arrives, nothing is counted twice.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, assert_never

from msgspec.structs import replace

from runner.core.events import landing as ld
from runner.core.progress.landing import Batch, LandingProgress, LandingState, LeftBehind

Landings: TypeAlias = tuple[LandingProgress, ...]

_OfStories = ld.ConflictsForeseen | ld.StoryRestackPlanned | ld.StoryRestacked | ld.StoryNotRestacked
"""They belong to stories before or after a landing, not to one landing."""

_Step: TypeAlias = ld.BatchStarted | ld.BatchEnded | ld.MergeConflicted | ld.TrainRebuilt


def landings_after(landings: Landings, body: ld.LandingBody, at: float) -> Landings:
    """Return the landings after one more event; an event of a landing without a beginning is left out."""
    if isinstance(body, _OfStories):
        return landings
    if isinstance(body, ld.LandingPlanned):
        begun = _planned(body, at)
        return *(each for each in landings if each.id != begun.id), begun
    return tuple(_after(each, body, at) if each.id == body.landing_id else each for each in landings)


def _planned(body: ld.LandingPlanned, at: float) -> LandingProgress:
    train = tuple(body.train or body.stories)
    return LandingProgress(
        id=body.landing_id, onto=body.onto, tip=body.tip, started_at=at, style=body.style, train=train
    )


def _after(one: LandingProgress, body: ld.LandingBody, at: float) -> LandingProgress:  # noqa: C901, PLR0911  one arm per event
    match body:
        case ld.LandingPlanned() | ld.LandingRetryPlanned() | ld.ConflictsForeseen():
            return one
        case ld.StoryRestackPlanned() | ld.StoryRestacked() | ld.StoryNotRestacked():
            return one
        case ld.BatchStarted() | ld.BatchEnded() | ld.MergeConflicted() | ld.TrainRebuilt():
            return _stepped(one, body, at)
        case ld.LandingVerified():
            runs = max(one.verify_runs, body.verify_runs)
            return replace(one, state=LandingState.MOVING, before=body.before, verify_runs=runs)
        case ld.Landed():
            landed = tuple(dict.fromkeys((*one.landed, *body.stories)))
            return replace(one, state=LandingState.LANDED, after=body.commit, landed=landed, ended_at=at)
        case ld.StoryNotLanded():
            left = LeftBehind(story=body.story_id, why="", reason=body.reason)
            return replace(one, left={body.story_id: left, **one.left})
        case ld.LandingEnded():
            return _ended(one, body, at)
        case ld.LandingAbandoned():
            # It is the undoing that was given up; another copy of the event may have said so already.
            kept = one.state in {LandingState.UNDOING, LandingState.LANDED}
            state = LandingState.LANDED if kept else LandingState.ABANDONED
            return replace(one, state=state, reason=body.reason, ended_at=one.ended_at or at)
        case ld.LandingUndoPlanned():
            return replace(one, state=LandingState.UNDOING)
        case ld.LandingUndone():
            return replace(one, state=LandingState.UNDONE, landed=())
        case _:
            assert_never(body)


def _stepped(one: LandingProgress, body: _Step, at: float) -> LandingProgress:
    match body:
        case ld.BatchStarted():
            others = (batch for batch in one.batches if batch.number != body.number)
            batch = Batch(number=body.number, stories=tuple(body.stories), started_at=at)
            return replace(one, batches=(*others, batch), state=LandingState.VERIFYING)
        case ld.BatchEnded():
            batches = tuple(_answered(batch, body, at) for batch in one.batches)
            return replace(one, batches=batches, verify_runs=max(one.verify_runs, body.verify_runs))
        case ld.MergeConflicted():
            return replace(one, conflicts=tuple(dict.fromkeys((*one.conflicts, body.story))))
        case ld.TrainRebuilt():
            # What was found on the earlier tip says nothing about this one.
            return replace(one, tip=body.tip, rebuilds=body.number, batches=(), conflicts=())
        case _:
            assert_never(body)


def _answered(batch: Batch, body: ld.BatchEnded, at: float) -> Batch:
    if batch.number != body.number:
        return batch
    return replace(batch, ended_at=at, outcome=body.outcome, command=body.command, detail=body.detail)


def _ended(one: LandingProgress, body: ld.LandingEnded, at: float) -> LandingProgress:
    reason = f"{one.onto} is red without any story: `{body.red_target}` fails" if body.red_target else ""
    return replace(
        one,
        state=LandingState.LANDED if body.after else LandingState.NOTHING,
        after=body.after,
        landed=tuple(body.landed) if body.after else (),
        left={each.story: each for each in _left_out(body.left)},
        verify_runs=body.verify_runs,
        rebuilds=body.rebuilds,
        reason=reason,
        ended_at=at,
    )


def _left_out(entries: Iterable[Mapping[str, Any]]) -> Iterable[LeftBehind]:
    for entry in entries:
        yield LeftBehind(
            story=str(entry["story"]),
            why=str(entry.get("why", "")),
            reason=str(entry.get("reason", "")),
            others=tuple(entry.get("with", ())),
        )
