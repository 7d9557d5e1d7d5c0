"""How much memory the sessions of running stories use, as of the last measurement.

A session that began after it has used nothing yet. One that ends between two measurements leaves no figure.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from isolation.keeper.client import Session, TreeUsage
from runner.core.model import RunSnapshot, StoryId


@dataclass(slots=True)
class Reading:
    """One session's memory in bytes, with all processes below it; `peak` is None before it was measured."""

    story_id: StoryId
    session: Session
    now: int = 0
    peak: int | None = None


class MemoryMeter:
    """Measures every running session of a run; `largest` is the most that one of its sessions used."""

    def __init__(self, *, largest: int = 0) -> None:
        self.largest = largest
        self._readings: list[Reading] = []

    @contextmanager
    def watching(self, story_id: StoryId, session: Session) -> Iterator[Reading]:
        """Measure a session for as long as the block lasts."""
        reading = Reading(story_id=story_id, session=session)
        self._readings.append(reading)
        try:
            yield reading
        finally:
            self._readings.remove(reading)

    async def look(self) -> None:
        """Measure all of them, in a thread: it reads a file for each of their processes."""
        readings = tuple(self._readings)
        usages = await trio.to_thread.run_sync(_usages, readings) if readings else []
        for reading, usage in zip(readings, usages, strict=True):
            if usage is not None:
                reading.now = usage.rss_bytes
                reading.peak = max(reading.peak or 0, reading.now)
                self.largest = max(self.largest, reading.peak)

    def in_use(self, story_id: StoryId) -> int:
        """Return what a story used at the last measurement, in bytes."""
        return sum(reading.now for reading in self._readings if reading.story_id == story_id)


def largest_peak(run: RunSnapshot) -> int:
    """Return the most memory that any session of a run is known to have used."""
    peaks = (session.peak_memory for story in run.stories.values() for session in story.sessions)
    return max((peak for peak in peaks if peak is not None), default=0)


def _usages(readings: tuple[Reading, ...]) -> list[TreeUsage | None]:
    return [reading.session.usage() for reading in readings]
