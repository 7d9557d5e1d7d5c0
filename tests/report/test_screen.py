"""Whatever a session prints, a terminal shows it as text and nothing more."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.text.instants import iso, span, stopwatch
from runner.core.text.screen import TAIL_BYTES, LineTail, cells, neutral, shorten

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("plain text", "plain text"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x1b]0;new title\x07after", "after"),
        ("\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1;2|device control\x1b\\after", "after"),
        ("\x9b31mred \x9d0;title\x9cafter", "red after"),
        ("\x1b_application\x1b\\after", "after"),
        ("\x1b(0line drawing", "line drawing"),
        ("unfinished \x1b[31", "unfinished "),
        ("unfinished \x1b", "unfinished "),
        ("bell\x07 null\x00 delete\x7f", "bell null delete"),
        ("tab\tbed", "tab bed"),
        (" 10%\r 55%\r100%", "100%"),
        ("windows\r\n", "windows"),
        ("two\nlines\u2028more", "two lines more"),
        ("user\u202etxt.exe", "usertxt.exe"),
        ("lone \udcff surrogate", "lone \ufffd surrogate"),
        ("日本 naïve 🎉", "日本 naïve 🎉"),
    ],
)
def test_hostile_text_becomes_harmless(hostile: str, harmless: str) -> None:
    """Escapes and controls go, the words stay."""
    assert neutral(hostile) == harmless


@given(st.text(st.characters()) | st.text("\x1b[]PX^_\\\x07\x9b\x9c;0m\r\n\tab\u202e"))
def test_nothing_a_terminal_obeys_gets_through(text: str) -> None:
    """No input leaves a control, and harmless text is not changed again."""
    once = neutral(text)
    assert CONTROLS.search(once) is None
    assert neutral(once) == once


@given(st.text(), st.integers(0, 40))
def test_width_is_kept(text: str, width: int) -> None:
    """Shortened text takes no more cells than it may, and fitting text is whole."""
    short = neutral(text, width)
    assert cells(short) <= width
    if cells(neutral(text)) <= width:
        assert short == neutral(text)


def test_wide_characters_are_measured_in_cells() -> None:
    """A CJK character takes two cells, a combining one none."""
    assert cells("日本") == 4
    assert cells("e\u0301") == 1
    assert shorten("日本語", 5) == "日本…"
    assert shorten("日本語", 4) == "日…"


def test_neutral_takes_time_in_proportion() -> None:
    """A megabyte of unfinished sequences is no trap for the patterns."""
    for trap in ("\x1b]", "\x1b[0;", "\x1bP", "\x1b", "\r", "\x9d"):
        assert len(neutral(trap * 100_000)) <= 100_000


def feed(*chunks: bytes) -> str:
    tail = LineTail()
    for chunk in chunks:
        tail.feed(chunk)
    return tail.line


@pytest.mark.parametrize(
    ("chunks", "line"),
    [
        ([], ""),
        ([b"one\ntwo\n"], "two"),
        ([b"one\ntwo"], "two"),
        ([b"on", b"e"], "one"),
        ([b"one ", b"word\n"], "one word"),
        ([b"one\n", b"\n", b"  \n\n"], "one"),
        ([b"one\n", b"\n" * 100_000, b" " * 100_000], "one"),
        ([b" 10%\r", b" 20%\r", b" 30%"], "30%"),
        ([b" 10%\r", b" 20%\r"], "20%"),
        ([b"windows\r\n"], "windows"),
        ([b"windows\r", b"\nnext"], "next"),
        ([b"text\n\x1b[0m\n"], "text"),
        ([b"\xe6\x97", b"\xa5\n"], "日"),
        ([b"broken \xff\n"], "broken \ufffd"),
    ],
)
def test_newest_visible_line_is_told(chunks: list[bytes], line: str) -> None:
    """Lines may come in any pieces; blank ones do not hide the last that shows something."""
    assert feed(*chunks) == line


@given(st.lists(st.text("ab \n\r", max_size=12)), st.data())
def test_chunking_does_not_matter(parts: list[str], data: st.DataObject) -> None:
    """The same bytes in other pieces show the same line, whatever the pieces."""
    whole = "".join(parts).encode()
    cut = data.draw(st.integers(0, len(whole)))
    assert feed(whole[:cut], whole[cut:]).split() == feed(whole).split()


def test_endless_line_costs_nothing() -> None:
    """A gigabyte without a newline keeps a few kilobytes, and its end is shown."""
    tail = LineTail()
    chunk = b"x" * (1 << 20)
    for _ in range(1024):
        tail.feed(chunk)
    tail.feed(b"the end")
    assert len(tail._window) <= TAIL_BYTES + 1
    assert tail.line.endswith("xthe end")


def test_instants_and_spans_read_well() -> None:
    """Durations are rounded before their unit is chosen."""
    assert iso(1767355391.0125) == "2026-01-02T12:03:11.012Z"
    assert [span(value) for value in (0, 12.34, 59.97, 60, 245.4, 3599.7, 4320)] == [
        *("0.0 s", "12.3 s", "1 min 00 s", "1 min 00 s", "4 min 05 s", "1 h 00 min", "1 h 12 min"),
    ]
    assert [stopwatch(value) for value in (-1, 7, 723, 4323)] == ["0:00", "0:07", "12:03", "1:12:03"]
