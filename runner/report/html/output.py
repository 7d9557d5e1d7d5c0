"""What is long in a story's card: the end of a session's output, and the diff. Both escaped, both bounded."""

from collections.abc import Iterable, Sequence
from html import escape

from isolation.git.diffstat import Diff
from runner.core.text.screen import neutral
from runner.core.text.words import count

SHOWN_LINES = 25
"""How many lines of output are seen at once; those before them are folded."""

_TAB = 4
_KINDS = {"+": "plus", "-": "minus", "@": "at"}


def session_output(tail: str, most: int) -> str:
    """Return the end of an output: its last lines, and folded above them as many earlier ones as fit."""
    lines = list(_fitting(reversed(tail.split("\n")), most))[::-1]
    earlier, last = lines[:-SHOWN_LINES], lines[-SHOWN_LINES:]
    shown = f'<div class="end">{_pre(last)}</div>'
    if not earlier:
        return shown
    head = f"<summary>{count(len(earlier), 'earlier line')}</summary>"
    return f'<details class="fold">{head}{_pre(earlier)}</details>\n{shown}'


def folded_diff(diff: Diff, most: int, command: str) -> str:
    """Return a folded diff; `command` shows all of it where it had to be cut."""
    if not diff.text:
        return ""
    lines = [neutral(line.expandtabs(_TAB)) for line in diff.text.split("\n")]
    kept = list(_fitting(lines, most))
    cut = ""
    if len(kept) < len(lines) or not diff.whole:
        cut = f"<p>The diff continues; <code>{escape(neutral(command))}</code> shows all of it.</p>"
    body = _pre([_colored(line) for line in kept], ' class="diff"')
    return f'<details class="fold"><summary>Diff</summary>{body}{cut}</details>'


def prose(text: str, most: int) -> str:
    """Return text of unknown origin as one line of a paragraph; what is in backticks is shown as code."""
    plain = neutral(text)
    parts = (plain if len(plain) <= most else plain[: most - 1] + "…").split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))  # one of them has no partner
    return "".join(
        f"<code>{escape(part)}</code>" if odd % 2 else escape(part) for odd, part in enumerate(parts)
    )


def _pre(lines: Sequence[str], attributes: str = "") -> str:
    return f"<pre{attributes}>" + "\n".join(lines) + "</pre>"


def _fitting(lines: Iterable[str], most: int) -> Iterable[str]:
    """Escape as many of the first lines as fit; escaping makes some of them much longer."""
    for line in lines:
        escaped = escape(line)
        most -= len(escaped.encode()) + 1
        if most < 0:
            return
        yield escaped


def _colored(line: str) -> str:
    if line.startswith(("diff ", "+++", "---", "index ", "new file", "deleted file")):
        return f'<span class="head">{line}</span>'
    kind = _KINDS.get(line[:1])
    return f'<span class="{kind}">{line}</span>' if kind else line
