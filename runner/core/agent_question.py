"""Turns the question that an agent writes into its result file into one of the Choose form.

A badly written question is repaired only where nothing has to be guessed: white space, letters in
front of options, empty and repeated options, a recommendation given as text. Everything else
becomes a plain question, to continue or to abort, that quotes the agent. What is too long for its line
is shown in full in the details.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from isolation.patterns import pattern
from runner.core.choose import FEWEST, LETTERS, Option, Question, QuestionKind
from runner.core.text.names import one_line
from runner.core.text.screen import cells, shorten

MAX_CELLS = 100
"""The widest title or option; the rest of a longer one goes into the details."""

_LONGEST = 2000
_QUOTED = 12
_PREFIX = pattern(r"\(?([A-Da-d])[).:]\s+")
_LETTER = pattern(r"(?:option\s+)?\(?([A-Da-d])[).:]?", re.IGNORECASE)
_MARK = pattern(r"\s*\(recommended\)", re.IGNORECASE)
_FILLER = frozenset({"", "-", "—", "...", "…", "n/a", "tbd"})


class AgentQuestion(Struct, frozen=True, kw_only=True):
    """The question to ask, and what was repaired or could not be used, for the log."""

    question: Question
    notes: tuple[str, ...] = ()


class _Raw(Struct, frozen=True, kw_only=True):
    """One option as the agent wrote it; `index` is its position in the list."""

    index: int
    text: str
    more: str = ""
    destructive: bool = False
    recommended: bool = False


def from_result(decision: Mapping[str, Any]) -> AgentQuestion:
    """Read the `decision` of a result file; the result is always a question that can be asked."""
    title = _text(decision.get("question")) or _text(decision.get("context")) or "The agent asks for help"
    context = _text(decision.get("context"))
    extra = [context] if context and context != title else []
    given = decision.get("options")
    raw = [_raw(index, one) for index, one in enumerate(given)] if isinstance(given, list) else []
    kept = _without_filler(raw)
    notes = [f"left out {len(raw) - len(kept)} empty or repeated options"] if len(kept) < len(raw) else []
    if not FEWEST <= len(kept) <= len(LETTERS):
        return _plain(title, extra, raw, f"it gives {len(kept)} usable options, not 2 to 4")
    chosen = _recommended(decision.get("recommendation"), raw, kept)
    if chosen is None:
        notes.append("the agent's question recommends none of its options, so only you can answer it")
    options, more = _options(kept)
    reason = _text(decision.get("reason")) or "the agent gave no reason"
    question = Question(
        kind=QuestionKind.DECISION,
        title=shorten(title, MAX_CELLS),
        details=(*_overflow(title), *extra, *more),
        options=options,
        # The form has a recommendation; without one the first option is named, and never taken unasked.
        recommendation=LETTERS[kept.index(chosen) if chosen else 0],
        why=reason if chosen else "the agent recommends none of these",
        must_ask=chosen is None,
    )
    return AgentQuestion(question=question, notes=tuple(notes))


def _text(value: Any) -> str:
    return shorten(one_line(value), _LONGEST) if isinstance(value, str) else ""


def _raw(index: int, value: Any) -> _Raw:
    """Read one option: a string, or a table with `label` and `description`."""
    table: Mapping[str, Any] = value if isinstance(value, Mapping) else {"label": value}
    written = _text(table.get("label")) or _text(table.get("text"))
    prefix = _PREFIX.match(written)
    # Another letter than its own is part of the text, such as "A. Smith's version" as option B.
    if prefix and LETTERS.index(prefix.group(1).upper()) == index:
        written = written[prefix.end() :]
    marked = _MARK.search(written) is not None
    return _Raw(
        index=index,
        text=_MARK.sub("", written).strip(),
        more=_text(table.get("description")),
        destructive=table.get("destructive") is True,
        recommended=marked or table.get("recommended") is True,
    )


def _without_filler(raw: Iterable[_Raw]) -> list[_Raw]:
    """Drop options that say nothing, or repeat an earlier one."""
    kept: list[_Raw] = []
    for one in raw:
        repeated = any(one.text.casefold() == other.text.casefold() for other in kept)
        if one.text.casefold() not in _FILLER and not repeated:
            kept.append(one)
    return kept


def _recommended(value: Any, raw: Sequence[_Raw], kept: Sequence[_Raw]) -> _Raw | None:
    """Find the one option that the agent recommends: by letter, by its text, or by its mark."""
    said = _text(value)
    letter = _LETTER.fullmatch(said)
    if letter:
        index = LETTERS.index(letter.group(1).upper())
        named = [raw[index].text.casefold()] if index < len(raw) else []
    elif said:
        prefix = _PREFIX.match(said)
        named = [_MARK.sub("", said[prefix.end() :] if prefix else said).strip().casefold()]
    else:
        named = [one.text.casefold() for one in kept if one.recommended]
    found = [one for one in kept if one.text.casefold() in named]
    return found[0] if len(found) == 1 else None


def _options(kept: Sequence[_Raw]) -> tuple[tuple[Option, ...], list[str]]:
    """Assign letters to the options; what does not fit into a line goes into the details."""
    options: list[Option] = []
    more: list[str] = []
    for letter, one in zip(LETTERS, kept, strict=False):
        whole = f"{one.text} — {one.more}" if one.more else one.text
        text = whole
        if cells(whole) > MAX_CELLS:
            more.append(f"{letter}) {whole}")
            text = shorten(one.text, MAX_CELLS)
        if any(text.casefold() == other.text.casefold() for other in options):
            text = f"{shorten(text, MAX_CELLS - 4)} ({letter})"
        options.append(Option(letter=letter, text=text, destructive=one.destructive))
    return tuple(options), more


def _overflow(title: str) -> list[str]:
    return [title] if cells(title) > MAX_CELLS else []


def _plain(title: str, extra: Sequence[str], raw: Sequence[_Raw], problem: str) -> AgentQuestion:
    """Ask whether to continue or to abort, and quote what the agent wrote."""
    quoted = [
        f"It offered: {one.text} — {one.more}" if one.more else f"It offered: {one.text}" for one in raw
    ]
    left_out = [f"It offered {len(quoted) - _QUOTED} more."] if len(quoted) > _QUOTED else []
    question = Question(
        kind=QuestionKind.DECISION,
        title=shorten(title, MAX_CELLS),
        details=(*_overflow(title), *extra, *(line.rstrip(" :") for line in quoted[:_QUOTED]), *left_out),
        options=(
            Option(letter="A", text="Continue — the agent decides for itself"),
            Option(letter="B", text="Abort — investigate and fix manually"),
        ),
        recommendation="B",
        why="the agent asked for help, and did not say what it would do",
    )
    return AgentQuestion(
        question=question, notes=(f"the agent's question could not be used as it is: {problem}",)
    )
