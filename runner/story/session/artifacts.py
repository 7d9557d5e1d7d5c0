"""Watches the artifacts that a running session writes, and whether they change at all."""

from collections.abc import Callable
from pathlib import Path

from runner.core.limits.stuck import ProgressWatch, Stuck, content_digest

MOST_BYTES = 4 << 20


class ArtifactWatch:
    """Checks the artifacts of one step now and then; blocking, so called in a thread."""

    def __init__(self, artifacts: Callable[[], tuple[Path, ...]], *, began_at: float) -> None:
        self._artifacts = artifacts
        self._watch = ProgressWatch(new_at=began_at)
        self._stamps: dict[Path, tuple[int, int, int]] = {}

    def look(self, at: float, activity_at: float) -> Stuck | None:
        """Note what was written since the last check, and judge."""
        for path in self._artifacts():
            try:
                stat = path.stat()
                stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
                if self._stamps.get(path) == stamp:
                    continue
                with path.open("rb") as file:
                    digest = content_digest(file.read(MOST_BYTES))
            except OSError:
                continue  # it is being replaced at this moment
            self._stamps[path] = stamp
            self._watch = self._watch.seen_artifact(path.name, digest, at)
        self._watch = self._watch.tick(at, activity_at)
        return self._watch.verdict()
