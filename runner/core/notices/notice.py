"""What a user is notified of: which events of a run are worth it, in words."""

from hashlib import sha256

from msgspec import Struct

from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.limits.kill_switches import Switch
from runner.core.model import RunSnapshot, Status, StoryId
from runner.core.setting_groups.notify_settings import NoticeKind
from runner.core.text.instants import clock
from runner.core.text.redaction import REDACTED
from runner.core.text.screen import neutral
from runner.core.text.telling import telling_lines
from runner.core.text.words import because, tally

_LIMITS = frozenset({Switch.MAX_HOURS, Switch.STORY_TIME, Switch.TOKEN_BUDGET, Switch.COST_BUDGET})


class Notice(Struct, frozen=True, kw_only=True):
    """One notification: a line that says it all, and a longer text, empty if there is none.

    `decision` is the id of a question. Both are harmless on a terminal. What has a `key` is sent once.
    """

    kind: NoticeKind
    title: str
    text: str = ""
    story_id: StoryId | None = None
    decision: str = ""
    key: str = ""


def notice_of(event: ev.Event, run: RunSnapshot) -> Notice | None:
    """Return the notification that an event deserves; questions are for those who can word them."""
    match event.body:
        case ev.StoryFinished(story_id=story_id, kill_switch={"name": name, "detail": why}) if (
            name in _LIMITS
        ):
            whose = f"{story_id}: " if name == Switch.STORY_TIME else ""
            return _limit(f"{whose}{neutral(why)}", key=f"{whose}{name}", story_id=story_id)
        case ev.StoryFinished(story_id=story_id, verdict=Status.FAILED.value, reason=reason):
            output = run.stories[story_id].step_history.last_failure if story_id in run.stories else ""
            return Notice(
                kind=NoticeKind.FAILED,
                title=f"{story_id} failed: {neutral(reason)}",
                text="\n".join(telling_lines(output)),
                story_id=story_id,
            )
        case ag.AgentPaused(agent=agent, reason=reason, until=until, everyone=True):
            title = f"{agent} is at a limit until {clock(until)}: {neutral(reason)}"
            return _limit(title, key=f"{agent} {until:.0f}")
        case ev.AdmissionEnded(name=name, detail=detail) if name in _LIMITS:
            return _limit(f"no more sessions start: {neutral(detail)}", key=name)
        case _:
            return None


def _limit(title: str, *, key: str, story_id: StoryId | None = None) -> Notice:
    return Notice(kind=NoticeKind.LIMIT, title=title, key=key, story_id=story_id)


def end_notice(run: RunSnapshot) -> Notice:
    """Return the notification of a run's end: the count of results, and what failed or waits."""
    lines = [
        f"{story.id}: {because(story)}"
        for story in run.stories.values()
        if story.status in {Status.FAILED, Status.PARKED}
    ]
    return Notice(kind=NoticeKind.ENDED, title=f"run ended: {tally(run)}", text="\n".join(lines))


def hidden_url(url: str) -> str:
    """Return a URL without what may be secret in it: everything after the name of the service."""
    scheme, separator, _ = url.partition("://")
    return f"{scheme}://{REDACTED}" if separator and scheme.isalnum() else REDACTED


def agreed_url(url: str) -> str:
    """Return a URL as it is shown and kept when the user agrees to it: hidden, known by a digest."""
    return f"{hidden_url(url)} sha256:{sha256(url.encode()).hexdigest()[:32]}"


def kept_url(url: str) -> str:
    """Return a URL as journals keep it: hidden, with a digest by which it is known again."""
    return f"{hidden_url(url)} {sha256(url.encode()).hexdigest()[:16]}"
