"""How full the context of a session is, judged by what its agent reports; a rule over plain counts.

No agent says how much of its context is left. What fills it can be counted: tool calls, artifacts and large
files that were read. What shows that it is full can be seen: results that were truncated, and tool calls that
fail one after another. From *caution* on a session is asked to end at its next sub-step, in *danger* it is
ended there.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct, field

from runner.core.model import Outcome, SessionRecord
from runner.core.text.words import count

if TYPE_CHECKING:
    from runner.core.work_settings import ContextSettings

DOCS = "_docs"
"""The folder in which stories keep their artifacts, unless a setting says otherwise."""
_STATE_FILES = ("_autodev_state.md", "_autopilot_state.md")
_MOST_FILES = 10_000


class Zone(StrEnum):
    """How full the context of a session is, from good to bad."""

    SAFE = "safe"
    CAUTION = "caution"
    DANGER = "danger"


class ToolResult(Struct, frozen=True, kw_only=True):
    """What came back from one tool call: how many characters, whether all of it, and whether it failed."""

    id: str
    size: int = 0
    truncated: bool = False
    failed: bool = False


class ContextUse(Struct, frozen=True, kw_only=True):
    """What a conversation has taken in; `failures` are those since the last tool call that succeeded."""

    tools: int = 0
    artifacts: int = 0
    large_files: int = 0
    truncated: int = 0
    failures: int = 0


class Judgment(Struct, frozen=True, kw_only=True):
    """A zone, and the signs that led to it, in words."""

    zone: Zone
    signs: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The signs in one line."""
        return ", ".join(self.signs)


class ContextCount(Struct):
    """Counts what the agent of one session reports about its own conversation, in bounded memory."""

    tools: int = 0
    ended: int = 0
    truncated: int = 0
    failures: int = 0
    _sizes: dict[str, int] = field(default_factory=dict)
    _reading: dict[str, set[str]] = field(default_factory=dict)

    def add(
        self, *, tools: int, reads: Iterable[tuple[str, str]] = (), results: Iterable[ToolResult] = ()
    ) -> None:
        """Add what one line reported; `reads` are tool calls, each with a file that it reads."""
        self.tools += tools
        for tool, path in reads:
            if len(self._sizes) < _MOST_FILES and len(self._reading) < _MOST_FILES:
                self._sizes.setdefault(path, 0)
                self._reading.setdefault(tool, set()).add(path)
        for result in results:
            self.ended += 1
            self.truncated += result.truncated
            self.failures = self.failures + 1 if result.failed else 0
            files = self._reading.pop(result.id, set())
            # A command that reads several files does not say how large each of them is.
            if len(files) == 1 and not result.failed:
                (path,) = files
                self._sizes[path] = max(self._sizes[path], result.size)

    def use(self, large: float, *, tools_before: int = 0, docs: Iterable[str] = (DOCS,)) -> ContextUse:
        """Return the counts; a file is large from so many characters on.

        `tools_before` are tool calls of earlier sessions in the same conversation, `docs` the folders of
        artifacts.
        """
        return ContextUse(
            tools=self.tools + tools_before,
            artifacts=len({_artifact(path, docs) for path in self._sizes} - {""}),
            large_files=sum(size >= large for size in self._sizes.values()),
            truncated=self.truncated,
            failures=self.failures,
        )


def judge(use: ContextUse, limits: "ContextSettings") -> Judgment:
    """Return the zone; a limit of 0 leaves its sign out."""
    danger = (
        (use.truncated, limits.danger_truncated, count(use.truncated, "truncated result")),
        (use.failures, limits.danger_failures, f"{count(use.failures, 'failed tool call')} in a row"),
        (use.tools, limits.danger_tools, count(use.tools, "tool call")),
    )
    caution = (
        (use.tools, limits.caution_tools, count(use.tools, "tool call")),
        (use.artifacts, limits.caution_artifacts, f"{count(use.artifacts, 'artifact')} read"),
        (use.large_files, limits.caution_large_files, f"{count(use.large_files, 'large file')} read"),
    )
    for zone, signs in ((Zone.DANGER, danger), (Zone.CAUTION, caution)):
        seen = tuple(words for number, limit, words in signs if limit and number >= limit)
        if seen:
            return Judgment(zone=zone, signs=seen)
    return Judgment(zone=Zone.SAFE)


def reached_context_limit(session: SessionRecord) -> bool:
    """Whether a session ended before its step because its context was full, by itself or by the runner."""
    return session.outcome is Outcome.PARTIAL and session.zone in {Zone.CAUTION, Zone.DANGER}


def _artifact(path: str, docs: Iterable[str]) -> str:
    """Return the name of an artifact, whether its path is absolute or not; empty for another file."""
    for folder in docs:
        _, found, inside = f"/{path}".partition(f"/{folder}/")
        if found and not inside.endswith(_STATE_FILES):
            return f"{folder}/{inside}"
    return ""
