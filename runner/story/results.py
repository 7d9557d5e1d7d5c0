"""A story's result, as it is recorded: the verdict, the reason, and the next command to type."""

from collections.abc import Sequence

from msgspec import structs

from runner.core.events.events import StoryFinished
from runner.core.limits.kill_switches import Switch
from runner.core.model import KillSwitch, RunId, Status, StoryId
from runner.core.schedule.offers import LAND


def done(story_id: StoryId, *, commit: str, commits: int, reason: str) -> StoryFinished:
    """Return the result of a story whose work is committed on its branch."""
    return StoryFinished(
        story_id=story_id,
        verdict=Status.DONE,
        reason=reason,
        next=LAND if commits else "",
        commit=commit,
        commits=commits,
    )


def with_commits(commits: int, proof: str, *, squashed: bool) -> str:
    """Return the reason of a story that made commits."""
    made = f"{commits} commit{'s' * (commits > 1)}"
    return f"{made} squashed into 1, {proof}" if squashed else f"{made}, {proof}"


def no_work(story_id: StoryId, *, commit: str, reason: str) -> StoryFinished:
    """Return the result of a story that succeeded and changed nothing."""
    return StoryFinished(
        story_id=story_id,
        verdict=Status.NO_WORK,
        reason=reason,
        next=f"autopilot-multi logs {story_id}",
        commit=commit,
    )


def without_change(commits: int, proof: str, *, fine: bool) -> str:
    """Return why a story has nothing to merge; `fine` means that it may."""
    if fine:
        return f"no change was needed, {proof}"
    if commits:
        return f"its {commits} commit{'s' * (commits > 1)} leave{'s' * (commits == 1)} every file as it was"
    return "the session changed nothing"


def failed(story_id: StoryId, reason: str, *, next_: str = "") -> StoryFinished:
    """Return the result of a story that could not be completed."""
    return StoryFinished(
        story_id=story_id,
        verdict=Status.FAILED,
        reason=reason,
        next=next_ or f"autopilot-multi logs {story_id}",
    )


def parked(story_id: StoryId, question: str) -> StoryFinished:
    """Return the result of a story that waits for a decision."""
    return StoryFinished(
        story_id=story_id,
        verdict=Status.PARKED,
        reason=f"needs a decision: {question}",
        next=f"autopilot-multi decide {story_id}",
    )


def paused(story_id: StoryId, run_id: RunId, missing: Sequence[str]) -> StoryFinished:
    """Return the result of a story that waits, as the user decided, until something is there."""
    return StoryFinished(
        story_id=story_id,
        verdict=Status.PARKED,
        reason=f"paused until there is: {', '.join(missing)}",
        next=f"autopilot-multi resume {run_id}",
    )


def stopped(story_id: StoryId, run_id: RunId, switch: KillSwitch) -> StoryFinished:
    """Return the result of a story that a kill-switch ended before its flow was complete."""
    if switch.name == Switch.BASE:
        return StoryFinished(
            story_id=story_id,
            verdict=Status.STOPPED,
            reason="it never started: the base is not ready",
            kill_switch=structs.asdict(switch),
        )
    return StoryFinished(
        story_id=story_id,
        verdict=Status.STOPPED,
        reason=switch.detail,
        next=f"autopilot-multi resume {run_id}",
        kill_switch=structs.asdict(switch),
    )


def skipped(story_id: StoryId, reason: str, blocked_by: tuple[StoryId, ...]) -> StoryFinished:
    """Return the result of a story that never started because of others."""
    first = blocked_by[0] if blocked_by else story_id
    return StoryFinished(
        story_id=story_id,
        verdict=Status.SKIPPED,
        reason=reason,
        next=f"autopilot-multi logs {first}",
        blocked_by=blocked_by,
    )
