"""What a report shows, whether the run was in this repository or in the shards of CI jobs."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct, field

from isolation.git.diffstat import ChangedPath, Diff
from runner.core.events.events import Event
from runner.core.events.run_stories import entries_of
from runner.core.limits.prices import AS_OF
from runner.core.model import (
    Outcome,
    RunSnapshot,
    SessionKind,
    SessionRecord,
    Status,
    StoryId,
    StorySnapshot,
    Usage,
)
from runner.core.text.instants import elapsed_seconds
from runner.core.text.screen import neutral
from runner.core.text.words import worked


def _no_log(_session: SessionRecord) -> bytes:
    return b""


def _no_diff(_story: StorySnapshot) -> Diff:
    return Diff()


class ReportData(Struct, frozen=True, kw_only=True, dict=True):
    """A run with everything a report needs.

    `log` returns the last bytes that a session printed, `diff` what a story changed, as far as it is small
    enough to be read. `now` is the current time while the run is in progress; None when nothing changes any
    more. `landing` is the id of the landing that is in progress.
    """

    run: RunSnapshot
    events: Sequence[Event] = ()
    changes: Mapping[StoryId, Sequence[ChangedPath]] = field(default_factory=dict)
    log: Callable[[SessionRecord], bytes] = _no_log
    diff: Callable[[StorySnapshot], Diff] = _no_diff
    problems: tuple[str, ...] = ()
    now: float | None = None
    landing: str = ""

    @cached_property
    def until(self) -> float:
        """When the run ended; `now` while it is in progress; the newest event if it was interrupted."""
        newest = max([self.run.started_at, *(event.at for event in self.events)])
        return self.run.ended_at or max(newest, self.now or 0.0)

    @property
    def in_progress(self) -> bool:
        """Whether a coordinator was still working on the run when it was read."""
        return self.now is not None and not self.run.ended

    def duration(self, story: StorySnapshot) -> float:
        """Return how long a story worked, in seconds; up to now if it is running."""
        return worked(story, self.until) or 0.0

    def is_running(self, story: StorySnapshot, session: SessionRecord) -> bool:
        """Return whether a session is still running; only a story's last session can be."""
        return self.in_progress and session.outcome is None and session is story.sessions[-1]

    def outcome(self, story: StorySnapshot, session: SessionRecord) -> str:
        """Return how a session ended."""
        if session.outcome:
            return session.outcome.value
        return "still running" if self.is_running(story, session) else "interrupted"

    @property
    def sources(self) -> dict[StoryId, str]:
        """The file that defines each story, relative to the repository; empty for a prompt."""
        entries = entries_of(self.events)
        return {name: _file(str(entry.get("source") or "")) for name, entry in entries.items()}

    def tail(self, session: SessionRecord, most: int) -> str:
        """Return the end of a session's output without control characters, at most `most` characters."""
        text = self.log(session)[-4 * most :].decode("utf-8", "replace")
        lines = [neutral(line) for line in text.split("\n")]
        tail = "\n".join(lines).strip("\n")
        if len(tail) <= most:
            return tail
        return "…" + tail[-most:].partition("\n")[2]


_FEW = 5

BAD = frozenset({Status.FAILED, Status.STOPPED, Status.PARKED})
"""The results that need attention; skipped stories follow from them."""


def decisive_session(story: StorySnapshot) -> SessionRecord | None:
    """Return the session that explains the result: the last work session, or the last that failed."""
    if story.status is Status.DONE:
        chosen = [one for one in story.sessions if one.kind is SessionKind.WORK]
    else:
        chosen = [one for one in story.sessions if one.outcome is not Outcome.OK]
    return next(reversed(chosen or story.sessions), None)


def seconds(started: float | None, ended: float | None) -> float:
    """Return a duration; 0 if the start or the end is unknown."""
    return max(0.0, elapsed_seconds(started, ended) or 0.0)


def grouped_notes(run: RunSnapshot) -> dict[str, list[str]]:
    """Return every note once, with the stories that it is about."""
    notes: dict[str, list[str]] = {}
    for note in run.notes:
        names = notes.setdefault(note.message, [])
        if note.story_id and note.story_id not in names:
            names.append(note.story_id)
    return notes


def listed(names: Sequence[str]) -> str:
    """Return a few names, and how many others there are."""
    shown, others = names[:_FEW], len(names) - _FEW
    return ", ".join(shown) + (f" and {others} other{'s' * (others > 1)}" if others > 0 else "")


def usage_text(usage: Usage) -> str:
    """Return the known usage as text, such as `12.3k tokens, $0.25`."""
    parts = []
    if usage.tokens is not None:
        parts.append(f"{_short(usage.tokens)} tokens")
    if usage.cost_usd is not None:
        parts.append(f"{'about ' if usage.estimated else ''}${usage.cost_usd:.2f}")
    return ", ".join(parts)


def total_usage(usage: Usage) -> str:
    """Return the usage of a whole run as text, and what an estimate is based on."""
    note = f" (estimated: list prices of {AS_OF}, or your own)" if usage.estimated else ""
    return usage_text(usage) + note


def _file(source: str) -> str:
    """Return the file of a source; empty for a prompt or a file outside the repository."""
    file = source.partition("#")[0]
    return "" if file == "command line" or file.startswith("/") else file


def _short(number: int) -> str:
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{unit}"
    return str(number)
