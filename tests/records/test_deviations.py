"""Deviations in another program's file: one more line at its place, and every other byte as it was."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.records.deviations import append_deviation, with_deviation

HEAD = b"---\nstatus: active\n---\n\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"\n## Deviations\n\nNEW\n"),
        (b"text", b"text\n\n## Deviations\n\nNEW\n"),
        (b"a\r\n", b"a\r\n\r\n## Deviations\r\n\r\nNEW\r\n"),
        (b"## Deviations\n\n(none yet)\n\n## Next\n", b"## Deviations\n\nNEW\n\n## Next\n"),
        (b"## Deviations\n\n- one\n  more\n\n## Next\n", b"## Deviations\n\n- one\n  more\nNEW\n\n## Next\n"),
        (b"## Deviations\n- one", b"## Deviations\n- one\nNEW\n"),
        (b"## Deviations", b"## Deviations\n\nNEW\n"),
        (b"## Deviations\n## Next\n", b"## Deviations\n\nNEW\n\n## Next\n"),
        (b"## Deviations\n\nprose\n", b"## Deviations\n\nNEW\n\nprose\n"),
        (
            b"- no\n## Other\n- no\n## Deviations\n- one\n",
            b"- no\n## Other\n- no\n## Deviations\n- one\nNEW\n",
        ),
    ],
)
def test_one_line_is_added_at_its_place(before: bytes, after: bytes) -> None:
    """At the end of the section, which is made at the end of the file if it is missing."""
    assert with_deviation(HEAD + before, b"NEW") == HEAD + after


def test_stories_that_append_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """Each has its line, whoever reads and replaces the file in between."""
    state = tmp_path / ".claude" / "STATE.md"
    state.parent.mkdir()
    state.write_text("# State\n")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: append_deviation(tmp_path, f"story {number} stays", 0.0), range(40)))
    assert state.read_text().count(" stays\n") == 40


def test_the_first_file_that_exists_counts_and_keeps_its_mode(tmp_path: Path) -> None:
    """A link stays a link, the same deviation is written once, and without a file nothing is."""
    top = tmp_path / "repo"
    top.mkdir()
    append_deviation(top, "beside another", 0.0)
    assert list(top.iterdir()) == []
    real = tmp_path / "real.md"
    real.write_bytes(b"# State\n\xff\n")
    real.chmod(0o600)
    (top / ".codex").mkdir()
    link = top / ".codex" / "STATE.md"
    link.symlink_to(real)
    for _ in range(2):
        append_deviation(top, "beside\nanother", 0.0)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert real.read_bytes() == (
        b"# State\n\xff\n\n## Deviations\n\n- [1970-01-01T00:00:00.000Z] beside another\n"
    )
