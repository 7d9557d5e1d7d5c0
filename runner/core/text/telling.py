"""The lines of an output that say why it failed."""

import re

from runner.core.text.screen import neutral, shorten

MOST_LINES = 6
_LONGEST = 500
_READ = 20_000
_TELLING = re.compile(
    r"error|\bfail(?:ed|ure|s)?\b|fatal|panic|assert|exception|\bnot ok\b|not found|no such|denied|refused"
    r"|cannot|can't|undefined|unexpected|\bexpected\b",
    re.IGNORECASE,
)


def telling_lines(output: str, *, most: int = MOST_LINES) -> list[str]:
    """Return the last lines that name an error, and the very last line; without any, the last lines.

    They are safe for a terminal, and keep their indentation.
    """
    lines = [neutral(line).rstrip() for line in output[-_READ:].splitlines()]
    lines = [shorten(line, _LONGEST) for line in lines if line.strip()]
    telling = [number for number, line in enumerate(lines) if _TELLING.search(line)]
    if not telling:
        return lines[-most:]
    last = len(lines) - 1
    chosen = telling[-most:] if telling[-1] == last else [*telling[-(most - 1) :], last]
    return [lines[number] for number in chosen]


def failing_command(reason: str, output: str) -> str:
    """Return the verify command that a failed attempt is about; empty if it failed otherwise."""
    start = reason.find("verify ")
    _, _, rest = reason[start:].partition("`") if start >= 0 else ("", "", "")
    end = rest.find("`")
    while end >= 0:  # a command may contain backticks itself
        if output.startswith(f"$ {rest[:end]}\n"):
            return rest[:end]
        end = rest.find("`", end + 1)
    return ""
