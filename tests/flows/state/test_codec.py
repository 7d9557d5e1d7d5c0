"""Values as they stand in text: every value can be written, and reads back as itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.flows.state.text.codec import (
    decode_bullet,
    decode_row,
    decode_text,
    decode_word,
    encode_bullet,
    encode_row,
    encode_scalar,
    quote,
)
from runner.flows.state.text.edits import Edit, apply, insert_after, line_end, newline_of, remove_line
from runner.flows.state.text.layout import Section, Span, keys, visible
from runner.flows.state.text.listing import bullets, read_bullets, read_table, table_rows

_LINES = (
    *("| Step | Name |", "|------|------|", "| 1 | a |", "| x | b |", "| ... | … |", "|", " | 2 |"),
    *(
        "- one",
        "* none",
        "- [what]",
        "  more of it",
        "-",
        "+ two",
        "step: 1",
        "  name: a # b",
        "\tdetail: ",
        "",
    ),
)


@given(st.text())
def test_scalars_read_back(value: str) -> None:
    """With quotes where they are needed, without where they are not."""
    for encoded in (encode_scalar(value), quote(value)):
        assert "\n" not in encoded
        assert "\r" not in encoded
        assert decode_text(encoded).value == value
        assert decode_word(encoded + "  ← remark").value == value


@given(st.text())
def test_bullets_read_back(value: str) -> None:
    """Also those that would say nothing."""
    line = encode_bullet(value)
    assert line.startswith("- ")
    assert "\n" not in line
    assert decode_bullet(line[2:]) == value


@given(st.lists(st.text(), min_size=2, max_size=5))
def test_rows_read_back_folded(cells: list[str]) -> None:
    """Cells are single lines without outer blanks; bars and backslashes in them are theirs."""
    once = decode_row(encode_row(tuple(cells))[1:])
    assert decode_row(encode_row(once)[1:]) == once
    assert not any("\n" in cell or cell != cell.strip(" \t\r") for cell in once)


@pytest.mark.parametrize(
    ("raw", "word", "value", "length"),
    [
        ("done", True, "done", 4),
        ('"done"', True, "done", 6),
        ("'it''s'", False, "it's", 7),
        ("3 # remark", True, "3", 1),
        ("fix #3 # 4", False, "fix #3 # 4", 10),
        ("3 ← remark", False, "3", 1),
        ("3 <!-- remark -->", False, "3", 1),
        ('"a" and "b"', False, '"a" and "b"', 11),
        ("'tis", False, "'tis", 4),
        (r'"a\"b\\c\nd\re\x"', False, 'a"b\\c\nd\rex', 17),
        ("# all remark", True, "", 0),
    ],
)
def test_scalars_by_example(raw: str, word: bool, value: str, length: int) -> None:  # noqa: FBT001  a table's column
    """Quotes, remarks and escapes."""
    scalar = (decode_word if word else decode_text)(raw)
    assert (scalar.value, scalar.length) == (value, length)


@pytest.mark.parametrize("raw", ["none", "None.", "N/A", "", "[none]", "[blocker 1, if any]"])
def test_bullets_that_say_nothing(raw: str) -> None:
    """They hold a place and are no items."""
    assert decode_bullet(raw) is None


@pytest.mark.parametrize(
    ("raw", "cells"),
    [
        (" a | b |", ("a", "b")),
        ("a|b", ("a", "b")),
        (r" a \| b | c |", ("a | b", "c")),
        (" a |  | c |", ("a", "", "c")),
        (" a | b|c |", ("a", "b", "c")),
        ("|", ("",)),
        ("", ("",)),
    ],
)
def test_rows_by_example(raw: str, cells: tuple[str, ...]) -> None:
    """Tight rows take a short way that gives the same."""
    assert decode_row(raw) == cells


def test_edits_keep_what_they_do_not_name() -> None:
    """Places are those of the old text; insertions at one place keep their order."""
    assert apply("abc", [Edit(2, 3, "C"), Edit(0, 0, "1"), Edit(0, 0, "2")]) == "12abC"
    assert (newline_of("a\r\nb\n"), newline_of("a\nb\r\n"), newline_of("a"), newline_of("\n")) == (
        "\r\n",
        "\n",
        "\n",
        "\n",
    )
    assert (line_end("ab\r\nc", 0), line_end("ab\r\nc", 4), line_end("\n", 0)) == (2, 5, 0)
    assert apply("a\r\nb", [insert_after("a\r\nb", 0, ["x", "y"])]) == "a\r\nx\r\ny\r\nb"
    assert apply("a\nb", [remove_line("a\nb", 2)]) == "a\n"
    assert apply("a\nb", [remove_line("a\nb", 0)]) == "b"


def test_hidden_spans_are_cut_out() -> None:
    """What lies before, across and behind a span."""
    hidden = (Span(0, 2), Span(4, 6), Span(5, 7), Span(9, 12), Span(20, 30))
    assert visible(Span(1, 10), hidden) == [Span(1, 1), Span(2, 4), Span(6, 6), Span(7, 9), Span(10, 10)]


@given(st.lists(st.sampled_from(_LINES), max_size=12), st.integers(0, 90), st.integers(0, 90))
def test_what_is_read_is_what_has_a_position(lines: list[str], one: int, other: int) -> None:
    """Reading looks for no positions; a change finds the same values at theirs, also beside hidden lines."""
    text = "\n".join(["## Title", *lines, ""])
    section = Section("title", 0, len("## Title"), len(text), 2)
    hidden = (Span(min(one, other), max(one, other)),)
    for cover in ((), hidden):
        assert table_rows(text, section, cover, "step") == read_table(text, section, cover, "step").values
        assert bullets(text, section, cover) == read_bullets(text, section, cover).values
    for key in keys(text, section.body):
        assert text.startswith(key.raw, key.start)
        assert text[: key.line].endswith("\n")
        assert text[key.line : key.start].strip(" \t") == f"{key.name}:"


def test_a_row_below_the_head_is_a_row_whatever_it_says() -> None:
    """A head comes once, so a step may be called as the column is."""
    text = "## Title\n| Step | Name |\n|------|------|\n| step | a |\n"
    section = Section("title", 0, len("## Title"), len(text), 2)
    assert table_rows(text, section, (), "step") == [("step", "a")]
