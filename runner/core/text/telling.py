"""The lines of an output that say why it failed."""

import re

from isolation.patterns import pattern
from runner.core.model import SessionKind, SessionRecord, StorySnapshot
from runner.core.text.screen import neutral, shorten

MOST_LINES = 6
_LONGEST = 500
_READ = 20_000
_COMMAND = frozenset({"", "command"})
"""What stands in place of an agent where a story has a command of its own."""
LACKED = (
    "\nThe command ran without the files and folders below: they are in the worktree, but git ignores them "
    "or they are empty, so no commit holds them. If the work needs one, change .gitignore, or add it with "
    "`git add --force`; if it can be built or installed, the commands must do that."
)
"""What the next session reads after the output of a verify command, with their names; not output itself."""
_TELLING = pattern(
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


def telling_line(output: str) -> str:
    """Return the last line that names an error; without any, the last line; empty without output."""
    lines = telling_lines(output)
    named = [line for line in lines if _TELLING.search(line)]
    return (named or lines or [""])[-1].strip()


def explaining_output(story: StorySnapshot) -> str:
    """Return the output that the reason of a story is about; empty if it is about no output.

    The reason may be that no session could begin: then an older output explains nothing.
    """
    output = story.step_history.last_failure
    command = failing_command(story.reason, output)
    if command:
        return _printed(output, command)
    failed = _failed_session(story)
    return output if failed and story.reason.endswith(failed.detail) else ""


def named_reason(story: StorySnapshot) -> str:
    """Return the reason of a story; where it is the exit code of a session, with whose."""
    failed = _failed_session(story)
    how = f"session: {failed.detail}" if failed else ""
    if failed is None or failed.kind is not SessionKind.WORK or not story.reason.endswith(how):
        return story.reason
    whose = "its command" if failed.agent in _COMMAND else f"session of {failed.worker}"
    return f"{story.reason.removesuffix(how)}{whose}: {failed.detail}"


def _failed_session(story: StorySnapshot) -> SessionRecord | None:
    return next((session for session in reversed(story.sessions) if session.detail), None)


def with_line(reason: str, output: str) -> str:
    """Return a reason with the line of the output that says most about it, unless it says that already."""
    line = telling_line(_printed(output, failing_command(reason, output)))
    plain = neutral(reason)
    return plain if not line or line in plain else f"{plain} — {line}"


def _printed(output: str, command: str) -> str:
    """Return what a command printed, of the output of its failed attempt."""
    return output.removeprefix(f"$ {command}\n").partition(f"\n{LACKED}\n")[0]


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
