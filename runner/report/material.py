"""What a report is made of, wherever the run was: here, or in the shards of CI jobs."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from runner.core.events.events import Event, RunStarted
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


class FileChange(Struct, frozen=True, kw_only=True):
    """One path that a story changed; of a binary file nobody counts lines."""

    path: str
    added: int | None
    removed: int | None


def _no_log(_session: SessionRecord) -> bytes:
    return b""


class Material(Struct, frozen=True, kw_only=True):
    """A run with all that is known around it. `log` gives the last bytes that a session printed.

    `now` is when the run was looked at while it went on; None where nothing changes any more.
    """

    run: RunSnapshot
    events: Sequence[Event] = ()
    changes: Mapping[StoryId, Sequence[FileChange]] = field(default_factory=dict)
    log: Callable[[SessionRecord], bytes] = _no_log
    problems: tuple[str, ...] = ()
    now: float | None = None

    @property
    def until(self) -> float:
        """When the run ended; of one that goes on, now; of one that broke off, the newest thing known."""
        newest = max([self.run.started_at, *(event.at for event in self.events)])
        return self.run.ended_at or max(newest, self.now or 0.0)

    @property
    def goes_on(self) -> bool:
        """Whether the run had not ended when it was looked at, and somebody carried it."""
        return self.now is not None and not self.run.ended

    def lasted(self, story: StorySnapshot) -> float:
        """Give how long a story ran, in seconds, up to now if it does."""
        return seconds(story.started_at, story.ended_at or self.until)

    def is_running(self, story: StorySnapshot, session: SessionRecord) -> bool:
        """Tell whether a session has only not ended yet; one before the last never will."""
        return self.goes_on and session.outcome is None and session is story.sessions[-1]

    def outcome(self, story: StorySnapshot, session: SessionRecord) -> str:
        """Say how a session ended."""
        if session.outcome:
            return session.outcome.value
        return "still running" if self.is_running(story, session) else "never ended"

    @property
    def sources(self) -> dict[StoryId, str]:
        """The file that each story is written in, from the top of the repository; empty for a prompt."""
        plans = (event.body for event in self.events if isinstance(event.body, RunStarted))
        told = {entry["id"]: str(entry.get("source") or "") for plan in plans for entry in plan.stories}
        return {StoryId(name): _file(source) for name, source in told.items()}

    def tail(self, session: SessionRecord, most: int) -> str:
        """Give the end of what a session printed as harmless lines, at most `most` characters of it."""
        text = self.log(session)[-4 * most :].decode("utf-8", "replace")
        lines = [neutral(line) for line in text.split("\n")]
        tail = "\n".join(lines).strip("\n")
        if len(tail) <= most:
            return tail
        return "…" + tail[-most:].partition("\n")[2]


BAD = frozenset({Status.FAILED, Status.STOPPED, Status.PARKED})
"""The verdicts that a person must look at; skipped ones follow from them."""


def telling(story: StorySnapshot) -> SessionRecord | None:
    """Give the session that explains the verdict: the last work, or the last that did not end well."""
    if story.status is Status.DONE:
        chosen = [one for one in story.sessions if one.kind is SessionKind.WORK]
    else:
        chosen = [one for one in story.sessions if one.outcome is not Outcome.OK]
    return next(reversed(chosen or story.sessions), None)


def seconds(started: float | None, ended: float | None) -> float:
    """Return a duration; what never started or was never seen to end took none."""
    return max(0.0, elapsed_seconds(started, ended) or 0.0)


def spent(usage: Usage) -> str:
    """Say what sessions have cost, as far as anybody knows: `12.3k tokens, $0.25`."""
    parts = []
    if usage.tokens is not None:
        parts.append(f"{_short(usage.tokens)} tokens")
    if usage.cost_usd is not None:
        parts.append(f"{'about ' if usage.estimated else ''}${usage.cost_usd:.2f}")
    return ", ".join(parts)


def spent_in_all(usage: Usage) -> str:
    """Say the same of a whole run, and what an estimate goes by."""
    note = f" (estimated: list prices of {AS_OF}, or your own)" if usage.estimated else ""
    return spent(usage) + note


def _file(source: str) -> str:
    """Name the file of a source; what was typed, or lies elsewhere, has none."""
    file = source.partition("#")[0]
    return "" if file == "command line" or file.startswith("/") else file


def _short(number: int) -> str:
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{unit}"
    return str(number)
