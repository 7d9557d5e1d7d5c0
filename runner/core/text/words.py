"""The words and symbols that terminal, dashboard and narration share."""

from collections import Counter
from collections.abc import Mapping

from runner.core.model import BUDGET, KillSwitch, RunSnapshot, Status, StorySnapshot, Tier, Wait
from runner.core.text.instants import elapsed_seconds
from runner.core.text.screen import neutral
from runner.core.text.telling import explaining_output, named_reason, with_line

SYMBOLS: Mapping[Status, str] = {
    Status.DONE: "✓",
    Status.FAILED: "✗",
    Status.PARKED: "?",
    Status.SKIPPED: "⊘",
    Status.STOPPED: "■",
    Status.NO_WORK: "∅",
    Status.RUNNING: "●",
    Status.QUEUED: "○",
    Status.WAITING: "·",
}
"""Every status has a symbol of its own, so that nothing is shown by color alone."""

COLORS: Mapping[Status, str] = {
    Status.DONE: "green",
    Status.FAILED: "red",
    Status.PARKED: "magenta",
    Status.SKIPPED: "yellow",
    Status.STOPPED: "yellow",
    Status.NO_WORK: "dim",
    Status.RUNNING: "cyan",
    Status.QUEUED: "",
    Status.WAITING: "dim",
}


def label(status: Status) -> str:
    """Return a status as plain words."""
    return status.value.replace("_", " ")


def phase(story: StorySnapshot) -> Status:
    """Return the status to show: a story that has its slot and cannot work is waiting, not running."""
    return Status.WAITING if awaited(story) else story.status


def awaited(story: StorySnapshot) -> Wait | None:
    """Return what a story in its slot waits for; None while it works, and without a slot."""
    return story.waiting if story.status is Status.RUNNING else None


def state(story: StorySnapshot) -> str:
    """Return a story's status as plain words; one that is done and merged has landed."""
    return "landed" if story.workspace.merged else label(phase(story))


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def tally(run: RunSnapshot) -> str:
    """Count the stories by status, without those that do not occur: `4 done, 1 failed`."""
    counts = Counter(phase(story) for story in run.stories.values())
    parts = [f"{counts[status]} {label(status)}" for status in SYMBOLS if counts[status]]
    return ", ".join(parts) or "nothing to do"


def at_work(run: RunSnapshot, *, noun: bool = False) -> str:
    """Return how many stories run, and how many of those with a slot wait instead."""
    phases = [(phase(story), awaited(story)) for story in run.stories.values()]
    running = sum(status is Status.RUNNING for status, _ in phases)
    for_budget = sum(wait is not None and wait.what == BUDGET for _, wait in phases)
    waiting = f", {for_budget} waiting for budget" if for_budget else ""
    return f"{count(running, 'story', 'stories') if noun else running} running{waiting}"


def machine(run: RunSnapshot) -> str:
    """Return how many stories may run now, and why."""
    return window(run.window, run.max_stories, run.tier, run.tier_reason)


def window(stories: int, most: int, tier: str, reason: str) -> str:
    """Return how many slots may be used, and why: `2 of 3 slots · tier degraded, 3.1 GB free`."""
    size = f"{stories} of {count(max(most, stories), 'slot')}"
    state = "machine OK" if tier == Tier.GREEN else f"tier {tier}"
    return f"{size} · {state}, {neutral(reason)}" if reason else size


def attempt(story: StorySnapshot) -> str:
    """Return which attempt a story is on; empty before the first."""
    number, most = story.progress.attempt, story.max_attempts
    return f"{min(number, most)} of {most}" if number else ""


def doing(story: StorySnapshot) -> str:
    """Return one line on what a story does, waits for or has made, without the reason of its verdict."""
    wait = awaited(story)
    if wait is not None:
        # A wait for an agent's service is shown with its end.
        return neutral(f"for {wait.what}: {wait.reason}" if wait.what == BUDGET else story.last_line)
    match story.status:
        case Status.RUNNING:
            line = neutral(story.last_line)
            zone = f", {story.zone}" if story.zone else ""
            used = f" ({count(story.tools, 'tool')}{zone})" if story.tools else ""
            newest = story.sessions[-1] if story.sessions else None
            by = f" by {neutral(newest.worker)}" if newest and newest.escalated else ""
            return f"{story.step.name}{by}{used}: {line}" if line else f"{story.step.name}{by}{used}"
        case Status.WAITING:
            return f"for {', '.join(story.depends_on)}"
        case Status.DONE if story.workspace.branch:
            made = neutral(story.reason) or count(story.workspace.commits, "commit")
            into = f", on {neutral(story.workspace.merged)}" if story.workspace.merged else ""
            return f"{story.workspace.branch}: {made}{into}"
        case _:
            made = count(story.workspace.commits, "commit")
            return (
                f"{made} on {story.workspace.branch}"
                if story.workspace.commits and story.workspace.branch
                else ""
            )


def because(story: StorySnapshot) -> str:
    """Return why a story is where it is: the kill-switch that ended it, the reason, the line that tells."""
    switch, reason = story.kill_switch, with_line(named_reason(story), explaining_output(story))
    return reason if switch is None else f"{neutral(switch.name)}: {reason}"


def recovery(switch: KillSwitch | None) -> str:
    """Return the hint of a kill-switch as a sentence of its own; empty without one."""
    return "" if switch is None else neutral(switch.hint)


def worked(story: StorySnapshot, now: float) -> float | None:
    """Return how many seconds a story has worked, or worked; None before its start, or if that is unknown.

    Whatever it waited for does not count: a slot, a person, a budget, the agent's service, a resume.
    """
    ran = elapsed_seconds(story.started_at, story.ended_at, None if story.status.final else now)
    return None if ran is None else max(0.0, ran - waited(story, now))


def waited(story: StorySnapshot, now: float) -> float:
    """Return how many seconds a story has waited since its first start."""
    since = story.waiting_since
    return story.waited + (0.0 if since is None or story.status.final else max(0.0, now - since))
