"""From what happened to a story's result: the verdict, the reason in words, and the next command to type."""

import shlex
from collections.abc import Sequence

from runner.core.model import KillSwitch, RunId, Status, StoryId, StoryResult


def done(
    story_id: StoryId, *, branch: str, commit: str, commits: int, reason: str, owned: Sequence[str] = ()
) -> StoryResult:
    """Say that its work is committed, and what speaks for it; in a shared tree with what the story owns.

    `branch` is what git takes for its branch. Each of the globs in `owned` must match something, or git
    refuses the command.
    """
    take = _taking(branch, owned) if owned else f"git merge {branch}"
    return StoryResult(
        story_id=story_id,
        verdict=Status.DONE,
        reason=reason,
        next=take if commits else "",
        commit=commit,
        commits=commits,
    )


def _taking(branch: str, owned: Sequence[str]) -> str:
    """Give the command that commits what lies in a shared tree already; a merge would refuse to touch it."""
    taken_back = [glob.startswith("!") for glob in owned]
    if taken_back != sorted(taken_back):
        return f"git log -p {branch}"  # git knows no order among the globs of a command
    magic = {False: ":(top,glob)", True: ":(top,exclude,glob)"}
    globs = [magic[glob.startswith("!")] + glob.removeprefix("!") for glob in owned]
    paths = shlex.join(f"{glob}**" if glob.endswith("/") else glob for glob in globs)
    return f"git add -- {paths} && git commit -C {branch} -- {paths}"


def no_work(story_id: StoryId, *, commit: str) -> StoryResult:
    """Say that it ran well and changed nothing."""
    return StoryResult(
        story_id=story_id,
        verdict=Status.NO_WORK,
        reason="the session changed nothing",
        next=f"autopilot-multi logs {story_id}",
        commit=commit,
    )


def failed(story_id: StoryId, reason: str, *, next_: str = "") -> StoryResult:
    """Say that it could not be brought to its end."""
    return StoryResult(
        story_id=story_id,
        verdict=Status.FAILED,
        reason=reason,
        next=next_ or f"autopilot-multi logs {story_id}",
    )


def parked(story_id: StoryId, question: str) -> StoryResult:
    """Say that a person must decide."""
    return StoryResult(
        story_id=story_id,
        verdict=Status.PARKED,
        reason=f"needs a decision: {question}",
        next=f"autopilot-multi decide {story_id}",
    )


def stopped(story_id: StoryId, run_id: RunId, switch: KillSwitch) -> StoryResult:
    """Say that its loop was ended before its flow was."""
    return StoryResult(
        story_id=story_id,
        verdict=Status.STOPPED,
        reason=switch.detail,
        next=f"autopilot-multi resume {run_id}",
        kill_switch=switch,
    )


def skipped(story_id: StoryId, reason: str, blocked_by: tuple[StoryId, ...]) -> StoryResult:
    """Say that it never started, and because of whom."""
    first = blocked_by[0] if blocked_by else story_id
    return StoryResult(
        story_id=story_id,
        verdict=Status.SKIPPED,
        reason=reason,
        next=f"autopilot-multi logs {first}",
        blocked_by=blocked_by,
    )
