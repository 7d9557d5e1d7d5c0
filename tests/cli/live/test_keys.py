"""What a terminal sends becomes keys, however it is cut; and every key is declared once."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runner.cli.live.keys import ACTION_OF, BINDINGS, PASTE, KeyDecoder, key_line

SENT = {
    b"\x1b[A": ["up"],
    b"\x1bOB": ["down"],
    b"\x1b[5~": ["pageup"],
    b"\x1b[6~": ["pagedown"],
    b"\x1b[H": ["home"],
    b"\x1b[4~": ["end"],
    b"\r": ["enter"],
    b"\x7f": ["backspace"],
    b"q": ["q"],
    "ü".encode(): ["ü"],
    b"\x1b[1;5C": [],  # Ctrl-Right means nothing here
    b"\x1b[200~s\ny\x1b[201~": [PASTE + "s\ny"],
}


@given(st.lists(st.sampled_from(sorted(SENT))), st.integers(1, 4))
def test_keys_are_the_same_however_they_are_cut(sent: list[bytes], size: int) -> None:
    """A sequence may come in several reads, and several keys in one."""
    decoder, stream = KeyDecoder(), b"".join(sent)
    keys = []
    for at in range(0, len(stream), size):
        keys += decoder.feed(stream[at : at + size])
    assert keys == [key for one in sent for key in SENT[one]]


@given(st.binary(max_size=200))
def test_no_input_breaks_it(sent: bytes) -> None:
    """Anything at all is read without an error, and leaves nothing that grows."""
    decoder = KeyDecoder()
    for at in range(0, len(sent), 7):
        decoder.feed(sent[at : at + 7])
    decoder.flush()
    assert not decoder.waits


def test_a_lone_escape_is_a_key_once_nothing_follows() -> None:
    """Until then it may be the beginning of an arrow."""
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.waits
    assert decoder.flush() == ["esc"]
    assert decoder.feed(b"\x1b") + decoder.feed(b"[B") == ["down"]
    assert decoder.feed(b"\x1bq") == ["esc", "q"]


def test_no_key_has_two_meanings_and_the_line_fits() -> None:
    """Each key belongs to one action; on 80 columns all the useful ones are named."""
    assert len(ACTION_OF) == sum(len(one.keys) for one in BINDINGS.values())
    for width in (20, 40, 80, 200):
        assert len(key_line(width)) <= max(width, len("↑↓  ? help"))
    assert all(one.word in key_line(80) for one in BINDINGS.values())
    assert key_line(30).endswith("? help")


def test_the_page_about_the_dashboard_lists_these_keys() -> None:
    """One row for each binding, in its order, with the same words."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "use-the-dashboard.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    shown = (" ".join(f"`{key}`" for key in one.shown.split()) for one in BINDINGS.values())
    assert rows == [f"| {keys} | {one.help} |" for keys, one in zip(shown, BINDINGS.values(), strict=True)]
