"""Task and epic files in a workspace: marked as pending, and written with the ids of their work items."""

import stat
from pathlib import Path

import pytest

from runner.core.errors import SystemFaultError
from runner.forge.tracker.files import load_items, mark_pending, write_ids


def test_a_file_that_cannot_be_marked_is_a_clear_error(tmp_path: Path) -> None:
    """One that is gone again."""
    with pytest.raises(SystemFaultError, match="cannot be written"):
        mark_pending([tmp_path / "nowhere.md"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"# Title\n\nText\n", b"# Title\n\nTracker: pending\n\nText\n"),
        (b"# Title\nText\n", b"# Title\n\nTracker: pending\n\nText\n"),
        (b"# Title\r\nText\r\n", b"# Title\r\n\r\nTracker: pending\r\n\r\nText\r\n"),
        (b"# Title", b"# Title\n\nTracker: pending\n"),
        (b"Text\n", b"Tracker: pending\n\nText\n"),
        (b"", b"Tracker: pending\n"),
        (b"---\nid: 1\n---\n# T\n\xff\n", b"---\nid: 1\n---\n# T\n\nTracker: pending\n\n\xff\n"),
        (b"---\nid: 1\n---\nText\n", b"---\nid: 1\n---\n\nTracker: pending\n\nText\n"),
    ],
)
def test_the_pending_marker_is_put_below_the_heading_once(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    """Every other byte stays, and so do the file's rights; a second time changes nothing."""
    path = tmp_path / "01_a.md"
    path.write_bytes(before)
    path.chmod(0o640)
    assert mark_pending([path]) == (path,)
    assert path.read_bytes() == after
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert mark_pending([path]) == ()
    assert path.read_bytes() == after


@pytest.mark.parametrize("line", ["Tracker: PROJ-12", "- **Tracker**: pending", "tracker: x"])
def test_a_file_that_names_its_tracker_is_left_alone(tmp_path: Path, line: str) -> None:
    """What has an id is not pending."""
    path = tmp_path / "a.md"
    path.write_text(f"# T\n\n{line}\n")
    assert mark_pending([path]) == ()


def test_ids_and_names_are_written_once_whenever_it_was_interrupted(tmp_path: Path) -> None:
    """From a state with the ids in the files but the old names, the rest is completed; then no more."""
    folder = tmp_path / "docs/t"
    folder.mkdir(parents=True)
    (folder / "01_a.md").write_text("# A\n\nTracker: ST-1\n")
    (folder / "02_b.md").write_text("# B\n\nDependencies: 01_a\n")
    items = load_items(tmp_path, sorted(folder.iterdir()))
    assert write_ids(tmp_path, "docs", items, {"docs/t/b": "ST-2"})
    assert sorted(path.name for path in folder.iterdir()) == ["ST-1_a.md", "ST-2_b.md"]
    assert "Dependencies: ST-1_a\n" in (folder / "ST-2_b.md").read_text()
    again = load_items(tmp_path, sorted(folder.iterdir()))
    assert [(item.key, item.id) for item in again] == [("docs/t/a", "ST-1"), ("docs/t/b", "ST-2")]
    assert not write_ids(tmp_path, "docs", again, {})


def test_no_file_takes_the_place_of_another(tmp_path: Path) -> None:
    """Where a file of the new name exists, both stay."""
    (tmp_path / "01_a.md").write_text("# A\n\nTracker: ST-1\n")
    (tmp_path / "ST-1_a.md").write_text("# Other\n")
    write_ids(tmp_path, ".", load_items(tmp_path, [tmp_path / "01_a.md"]), {})
    assert (tmp_path / "ST-1_a.md").read_text() == "# Other\n"
    assert (tmp_path / "01_a.md").exists()


def test_what_a_link_leads_to_is_neither_sent_nor_changed(tmp_path: Path) -> None:
    """A session could link to the user's own files."""
    (tmp_path / "secret.md").write_text("# S\n")
    work = tmp_path / "work"
    work.mkdir()
    (work / "01_a.md").symlink_to("../secret.md")
    (work / "out").symlink_to("..")
    assert load_items(work, [work / "01_a.md", work / "out/secret.md"]) == ()
    assert mark_pending([work / "01_a.md"]) == ()
    assert (tmp_path / "secret.md").read_text() == "# S\n"
