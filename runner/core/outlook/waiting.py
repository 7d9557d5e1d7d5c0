"""What a story waits for, in words: the same on the dashboard, in `status` and on the page. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from runner.core.model import BUDGET, RunSnapshot, Status, StoryId, StorySnapshot
from runner.core.text.instants import time_of_day
from runner.core.text.screen import neutral
from runner.core.text.words import awaited

_PHRASES: Mapping[Status, str] = {
    Status.PARKED: "needs you",
    Status.STOPPED: "was stopped",
    Status.FAILED: "failed",
    Status.SKIPPED: "was skipped",
}


class Cause(StrEnum):
    """What kind of thing a story waits for."""

    YOU = "you"
    BUDGET = "budget"
    LIMIT = "limit"
    SERVICE = "service"
    STORIES = "stories"
    PAUSE = "pause"
    BASE = "base"
    SLOT = "slot"
    END = "end"


class Waiting(Struct, frozen=True, kw_only=True):
    """What a story waits for; `until` is when that is over, None if that is unknown.

    `detail` says more where there is more to say: the figures of a budget, the words of a service.
    """

    cause: Cause
    words: str
    until: float | None = None
    detail: str = ""


def waiting(story: StorySnapshot, run: RunSnapshot, now: float) -> Waiting | None:
    """Return what a story waits for; None while it works, and once it has its result."""
    if story.decision is not None and not story.decision.letter:
        title = neutral(str(story.decision.question.get("title", "")))
        return Waiting(cause=Cause.YOU, words=f"needs you: {title}" if title else "needs you")
    match story.status:
        case Status.RUNNING:
            return _in_its_slot(story, run, now)
        case Status.WAITING:
            return _for_stories(story, run)
        case Status.QUEUED:
            return _for_a_slot(run, now)
        case _:
            return None


def _in_its_slot(story: StorySnapshot, run: RunSnapshot, now: float) -> Waiting | None:
    wait = awaited(story)
    if wait is None:
        return None
    detail = neutral(wait.reason)
    if wait.what == BUDGET:
        return Waiting(cause=Cause.BUDGET, words="waiting for budget", detail=detail)
    agent = neutral(wait.what)
    until = max(story.outage.resume_at, run.pauses.get(wait.what, 0.0))
    if until <= now:
        return Waiting(cause=Cause.SERVICE, words=f"waiting for {agent}", detail=detail)
    limited = run.pauses.get(wait.what, 0.0) > now
    what = "rate limit" if limited else f"{agent} does not answer, retried"
    when = f"until {time_of_day(until, now)}" if limited else f"at {time_of_day(until, now)}"
    cause = Cause.LIMIT if limited else Cause.SERVICE
    return Waiting(cause=cause, words=f"{what} {when}", until=until, detail=detail)


def _for_stories(story: StorySnapshot, run: RunSnapshot) -> Waiting:
    missing = [name for name in story.depends_on if not _is_fine(run.stories.get(name))]
    if not missing:
        return Waiting(cause=Cause.SLOT, words="waits for a free slot")
    return Waiting(cause=Cause.STORIES, words="waits for " + ", ".join(_named(name, run) for name in missing))


def _is_fine(story: StorySnapshot | None) -> bool:
    if story is None:
        return True
    return story.status is Status.DONE or (story.status is Status.NO_WORK and story.allow_no_change)


def _named(name: StoryId, run: RunSnapshot) -> str:
    phrase = _PHRASES.get(run.stories[name].status)
    return f"{name}, which {phrase}" if phrase else name


def _for_a_slot(run: RunSnapshot, now: float) -> Waiting:
    """Return what a story that is ready waits for: the first that holds of the reasons not to start it."""
    if run.kill_switch is not None:
        return Waiting(cause=Cause.END, words="no new story starts", detail=neutral(run.kill_switch.detail))
    if run.paused:
        return Waiting(cause=Cause.PAUSE, words="paused")
    running = run.count(Status.RUNNING)
    if running >= run.window:
        return Waiting(cause=Cause.SLOT, words="waits for a free slot")
    if any(not check.answer for check in run.base_checks):
        return Waiting(cause=Cause.BASE, words="waits for the check of the base")
    # A slot is free and the story does not start: its agent is at its limit, if any is.
    until = min((each for each in run.pauses.values() if each > now), default=None)
    if until is not None:
        return Waiting(cause=Cause.LIMIT, words=f"rate limit until {time_of_day(until, now)}", until=until)
    here = "waits for its turn" if running else "starts now"
    return Waiting(cause=Cause.SLOT, words="waits for a worker" if run.options.get("cluster") else here)
