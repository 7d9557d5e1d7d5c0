"""The log of a session as people read it, in safe lines: its end, what was added, what has a word."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from runner.agents.conversation.log_reader import LogReader
from runner.core.text.screen import neutral
from runner.report.conversation import lines_of
from runner.report.terminal.table import PLAIN

MOST_LINES = 2000
"""How many lines a page shows; the end counts."""

MOST_BYTES = 1 << 20
MOST_FOUND = 500
_LONGEST = 4000


class LogTail:
    """The end of a log that grows. `total` counts all lines so far, from where reading began."""

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        self.lines: deque[str] = deque(maxlen=MOST_LINES)
        self.total = 0
        self._reader = LogReader(path, agent, _beginning(path))

    def advance(self) -> list[str]:
        """Read what was added, and return the new lines."""
        rendered = lines_of(self._reader.entries(), PLAIN, begun=self.total > 0)
        new = [safe(line) for line in rendered]
        self.lines.extend(new)
        self.total += len(new)
        return new


def safe(line: str) -> str:
    """Return a line of output without anything that could act on a screen."""
    return neutral(line.replace("\t", "    "))[:_LONGEST]


def found_in(path: Path, agent: str, word: str) -> Sequence[tuple[int, str]]:
    """Return the last lines of a log that have a word, in any case, with their numbers."""
    wanted, hits = word.casefold(), deque[tuple[int, str]](maxlen=MOST_FOUND)
    entries = LogReader(path, agent).entries(last=True)
    for number, line in enumerate(lines_of(entries, PLAIN), 1):
        shown = safe(line)
        if wanted in shown.casefold():
            hits.append((number, shown))
    return tuple(hits)


def _beginning(path: Path) -> int:
    """Return where the last `MOST_BYTES` of a log begin with a whole line."""
    try:
        with path.open("rb") as file:
            place = max(0, file.seek(0, 2) - MOST_BYTES)
            file.seek(place)
            return place + (len(file.readline()) if place else 0)
    except OSError:
        return 0
