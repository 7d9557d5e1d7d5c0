"""Whether a session makes progress, judged by what it wrote; time comes in as an argument.

A session is stuck when it writes one artifact again and again without a meaningful change, or when it is
active and yet leaves nothing new for a long time. Any file with new content is something new, and so is a
commit; a session that leaves such things works, whatever else it does. One that repeats an answered question
is found by the digest of that question. A silent session is not judged here; see `stall`.
"""

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from isolation.patterns import pattern
from runner.core.text.instants import span
from runner.core.text.names import one_line

REWRITES = 3
"""An artifact that was rewritten this often without a change shows that nothing moves."""

ACTIVE_WITHIN_SECONDS = 2 * 60.0
"""A session that has shown a sign of life within this time is active."""

FAILED_RETRIES = 2
"""After this many recoveries that did not help, the user is asked."""

_REMEMBERED = 8
_CORRUPT = pattern(r"\bcorrupt(?:ed|ion)?\b", re.IGNORECASE)
_MOST_FILES = 10_000


class Recovery(StrEnum):
    """What to do with a stuck session, in the order in which it is tried."""

    RE_READ = "re-read"
    RETRY = "retry"
    ASK = "ask"


class Stuck(Struct, frozen=True, kw_only=True):
    """A session makes no progress; `reason` says what shows it."""

    reason: str


class Written(Struct, frozen=True, kw_only=True):
    """One artifact: the contents it has had, the newest last, and how often none of them was new."""

    contents: tuple[str, ...]
    repeats: int = 0

    def again(self, content: str) -> "Written":
        """Return the artifact after one more write; going back to earlier content is not a change."""
        # Alternating between two versions is no progress, so more than the last content is remembered.
        if content in self.contents:
            return replace(self, repeats=self.repeats + 1)
        return Written(contents=(*self.contents, content)[-_REMEMBERED:])


class FileWrite(Struct, frozen=True, kw_only=True):
    """What a file contains, and since when."""

    digest: str
    at: float


class ProgressWatch(Struct, frozen=True, kw_only=True):
    """What is known about one session; each method returns the next watch and changes nothing.

    `new_at` is when something new was last written, initially when the watch began. `limit` is for how many
    seconds an active session may leave nothing new; None without such a limit.
    """

    new_at: float
    limit: float | None = None
    now: float = 0.0
    activity_at: float = 0.0
    artifacts: Mapping[str, Written] = field(default_factory=dict)
    files: Mapping[str, Written] = field(default_factory=dict)

    def seen_artifact(self, path: str, content_digest: str, at: float) -> "ProgressWatch":
        """Note that an artifact was written."""
        before = self.artifacts.get(path)
        after = Written(contents=(content_digest,)) if before is None else before.again(content_digest)
        watch = self if after.repeats else self.seen_anything(at)
        return replace(watch, artifacts={**watch.artifacts, path: after})

    def seen_files(self, writes: Mapping[str, FileWrite]) -> "ProgressWatch":
        """Note the files that were written; those whose content is known already are not new."""
        files, newest = dict(self.files), self.new_at
        for path, write in writes.items():
            before = files.pop(path, None)
            files[path] = Written(contents=(write.digest,)) if before is None else before.again(write.digest)
            if not files[path].repeats:
                newest = max(newest, write.at)
        for path in list(files)[: max(0, len(files) - _MOST_FILES)]:
            del files[path]
        watch = self if newest == self.new_at else self.seen_anything(newest)
        return replace(watch, files=files)

    def seen_anything(self, at: float) -> "ProgressWatch":
        """Note that something new was written; what was rewritten before that is forgiven."""
        artifacts = {path: replace(written, repeats=0) for path, written in self.artifacts.items()}
        return replace(self, new_at=at, artifacts=artifacts)

    def tick(self, at: float, activity_at: float) -> "ProgressWatch":
        """Note the time, and when the session last showed a sign of life."""
        return replace(self, now=at, activity_at=activity_at)

    def verdict(self) -> Stuck | None:
        """Return whether the session is stuck, and why."""
        for path, written in self.artifacts.items():
            if written.repeats >= REWRITES:
                times = f"{written.repeats} times"
                return Stuck(reason=f"{one_line(path)} was rewritten {times} without a meaningful change")
        if self.limit is None:
            return None
        quiet = self.now - self.new_at
        if quiet >= self.limit and self.now - self.activity_at <= ACTIVE_WITHIN_SECONDS:
            return Stuck(reason=f"nothing new for {span(quiet)}, though the session is active")
        return None


def recovery(failures: int) -> Recovery:
    """Return what to try next, after so many failed recoveries of the same sub-step.

    The first one reads the state again, checks it against the folders and continues from there; the
    second restarts the sub-step; after that the user is asked, with `choose.recovery`.
    """
    if failures >= FAILED_RETRIES:
        return Recovery.ASK
    return Recovery.RETRY if failures > 0 else Recovery.RE_READ


def indicates_corruption(reason: str) -> bool:
    """Whether a failure says that what was saved of the work can no longer be used."""
    return _CORRUPT.search(reason) is not None


def content_digest(content: bytes) -> str:
    """Return what identifies content regardless of its white space."""
    return hashlib.sha256(b" ".join(content.split())).hexdigest()


def question_digest(title: str) -> str:
    """Return what identifies a question regardless of spacing, case and final punctuation."""
    return hashlib.sha256(one_line(title).casefold().rstrip(" ?.!:").encode()).hexdigest()
