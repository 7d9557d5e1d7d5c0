"""Quick questions about files have the answers of pathlib, errors included."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.files.lookups import is_file, is_folder, is_link, is_there, present

QUESTIONS: list[tuple[Callable[[Path | str], bool], Callable[[Path], bool]]] = [
    (is_there, Path.exists),
    (is_folder, Path.is_dir),
    (is_file, Path.is_file),
    (is_link, Path.is_symlink),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one name of each kind."""
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name, target in (("to-file", "file"), ("to-folder", "folder"), ("nowhere", "gone"), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
    return tmp_path


def test_the_answers_are_those_of_pathlib(folder: Path) -> None:
    """For each kind of file, also behind a link, for what is not there and for what no name can be."""
    names = [path.name for path in folder.iterdir() if path.name != "home"]
    assert len(names) == 7
    for name in (*names, "gone", "file/below", "gone/below", "nul\0"):
        for ask, pathlib_asks in QUESTIONS:
            expected = pathlib_asks(folder / name)
            assert ask(folder / name) is expected, (ask, name)
            assert ask(f"{folder}/{name}") is expected, (ask, name)


@pytest.mark.parametrize("ask", [ask for ask, _ in QUESTIONS])
def test_what_cannot_be_looked_at_does_not_count_as_gone(
    folder: Path, ask: Callable[[Path | str], bool]
) -> None:
    """Otherwise an error of the disk could let a worktree go that still has something in it."""
    with pytest.raises(OSError, match="too long"):
        ask(f"{folder}/{'x' * 300}")


def test_names_that_are_there_in_their_order(folder: Path) -> None:
    """A link that leads nowhere is not there, and a folder that is gone has none."""
    wanted = ("to-folder", "gone", "nowhere", "file", "fifo")
    assert present(folder, wanted) == ["to-folder", "file", "fifo"]
    assert present(folder / "gone", wanted) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_asked_for_each(folder: Path) -> None:
    """A session may have taken away the right to list it; git still finds what is there."""
    folder.chmod(0o300)
    try:
        assert present(folder, ("file", "gone")) == ["file"]
    finally:
        folder.chmod(0o700)
