"""A session's entries for people: as lines of a terminal, and as plain values for pages and programs."""

from collections.abc import Iterable, Iterator

from runner.core.conversation.entry import Entry, Kind
from runner.core.model import SessionRecord, Usage
from runner.core.text.instants import clock, span
from runner.core.text.screen import neutral
from runner.core.text.words import count
from runner.report.terminal.table import Look

_MARKS = {Kind.MESSAGE: "● ", Kind.TOOL: "→ ", Kind.ERROR: "✗ ", Kind.NOTE: "· ", Kind.THOUGHT: "~ "}
_COLORS = {Kind.TOOL: "cyan", Kind.ERROR: "red", Kind.NOTE: "dim", Kind.THOUGHT: "dim", Kind.RESULT: "dim"}
_NO_AGENT = frozenset({"", "command", "verify"})
"""What stands in place of an agent where a session is a command of the user's."""
_RESULT_INDENT = "    "
_NESTED_INDENT = "  "


def lines_of(entries: Iterable[Entry], look: Look, *, begun: bool = False) -> Iterator[str]:
    """Return entries as lines; a message stands apart from what is before it, also if that was `begun`."""
    for entry in entries:
        if entry.kind is Kind.MESSAGE and begun:
            yield ""
        yield from entry_lines(entry, look)
        begun = True


def entry_lines(entry: Entry, look: Look) -> list[str]:
    """Return one entry as lines: its mark, its text, and how much of it is folded."""
    mark = _MARKS.get(entry.kind, "")
    first = (_NESTED_INDENT if entry.nested else "") + (_RESULT_INDENT if entry.kind is Kind.RESULT else "")
    color, rest = _COLORS.get(entry.kind, ""), first + " " * len(mark)
    lines = [look.paint(line, color) for line in entry.text.split("\n")]
    lines = [(rest if number else first + mark) + line for number, line in enumerate(lines)]
    if not entry.more:
        return lines
    folded = look.paint(f"… {count(entry.more, 'more line')}", "dim")
    if entry.kind is Kind.TOOL:
        return [f"{lines[0]} {folded}", *lines[1:]]
    if not entry.ends:
        return [*lines, rest + folded]
    # The end of a failure is shown, so what is folded was before it.
    return [first + mark + folded, rest + lines[0][len(rest) :], *lines[1:]]


def has_agent(session: SessionRecord) -> bool:
    """Whether an agent did the session, and not a story's own command or a verify command."""
    return session.agent not in _NO_AGENT


def title_of(number: int, session: SessionRecord) -> str:
    """Return the line above a session."""
    who = f" by {neutral(session.worker)}" if has_agent(session) else ""
    step = neutral(session.step.name)
    return f"--- session {number}: {step}, attempt {session.attempt}{who}, {clock(session.started_at)}"


def ending_of(number: int, session: SessionRecord) -> str:
    """Return the line below a session that has ended: how, after how long, and what it used."""
    if session.ended_at is None or session.outcome is None:
        return ""
    how = (
        session.outcome.value if not session.detail else f"{session.outcome.value}: {neutral(session.detail)}"
    )
    words = [how, span(session.ended_at - session.started_at), *usage_words(session.usage)]
    return f"--- session {number} ended: {', '.join(words)}"


def usage_words(usage: Usage) -> list[str]:
    """Return what a session has used, as far as it is known."""
    words = []
    if usage.input_tokens is not None:
        words.append(f"{usage.input_tokens:,} tokens in")
    if usage.output_tokens is not None:
        words.append(f"{usage.output_tokens:,} out")
    if usage.cost_usd is not None:
        words.append(f"${usage.cost_usd:.2f}")
    return words


def document_of(entry: Entry) -> dict[str, str | int | bool]:
    """Return an entry as plain values: for `logs --json`, and for the template of a page.

    All texts are without control characters; a page escapes them once more. A page shows `text`, and folds
    `detail` where `more` is not 0.
    """
    return {
        "kind": entry.kind.value,
        "text": entry.text,
        "detail": entry.detail,
        "more": entry.more,
        "nested": entry.nested,
    }
