"""The folders of a spare tell by their times whether a name has come or gone."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.git.repository import Repository
from isolation.worktree.pool.claim import is_unchanged
from isolation.worktree.pool.folders import has_same_folders, remember_folders
from isolation.worktree.pool.making import make_spare
from isolation.worktree.pool.seals import Seal, folder_times, load_seals
from tests.isolation.worktree.pool.behavior import Stories, fill


@pytest.fixture
def stories(repo: Path) -> Stories:
    fill(repo)
    return Stories(repo)


@pytest.fixture
def spare(stories: Stories) -> Seal:
    base = stories.repository.resolve("main")
    assert make_spare(stories.repository, stories.root, base, "run-1", guarded=True) == ""
    (seal,) = load_seals(stories.repository.common_dir)
    return seal


def times(stories: Stories, spare: Seal) -> Path:
    return folder_times(stories.repository.common_dir, spare.name)


def add(tree: Path) -> None:
    (tree / "src" / "new.txt").write_text("new")


def add_ignored(tree: Path) -> None:
    (tree / "src" / "new.pyc").write_text("new")


def add_folder(tree: Path) -> None:
    (tree / "empty").mkdir()


def delete(tree: Path) -> None:
    (tree / "src" / "f1.py").unlink()


def replace(tree: Path) -> None:
    (tree / "other").write_text("other")
    (tree / "other").rename(tree / "src" / "f1.py")


def set_back(tree: Path) -> None:
    """Add a name, and set the time of the folder back, as far as a program can."""
    before = (tree / "src").stat()
    add(tree)
    os.utime(tree / "src", ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_spare_that_was_left_alone_needs_no_walk(
    stories: Stories, spare: Seal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are looked at, and its folders, but not what is in them."""
    asked: list[str] = []
    run = Repository.run

    def noted(repository: Repository, *args: str, **options: object) -> object:
        asked.append(args[0])
        return run(repository, *args, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(Repository, "run", noted)
    assert has_same_folders(times(stories, spare), Path(spare.path))
    assert is_unchanged(stories.repository, spare, thorough=False)
    assert asked == ["diff-files"]


@pytest.mark.parametrize("act", [add, add_ignored, add_folder, delete, replace, set_back])
def test_a_name_that_comes_or_goes_is_noticed(
    stories: Stories, spare: Seal, act: Callable[[Path], None]
) -> None:
    """Also if git ignores it, and if the time of the folder was set back."""
    act(Path(spare.path))
    assert not has_same_folders(times(stories, spare), Path(spare.path))
    if act is not add_folder:  # git knows no empty folders
        assert not is_unchanged(stories.repository, spare, thorough=False)


def test_what_came_and_went_again_is_left_to_the_walk(stories: Stories, spare: Seal) -> None:
    """The folder has another time, and the spare is as it was."""
    add(Path(spare.path))
    (Path(spare.path) / "src" / "new.txt").unlink()
    assert not has_same_folders(times(stories, spare), Path(spare.path))
    assert is_unchanged(stories.repository, spare, thorough=False)


def test_without_nanoseconds_nothing_is_known(
    stories: Stories, spare: Seal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems know seconds only: a change right after the look leaves no trace there."""
    lstat = os.lstat

    class Seconds:
        def __init__(self, path: bytes) -> None:
            found = lstat(path)
            self.st_ino, self.st_mode = found.st_ino, found.st_mode
            self.st_ctime_ns = found.st_ctime_ns // 10**9 * 10**9

    file, tree = times(stories, spare), Path(spare.path)
    file.unlink()
    monkeypatch.setattr(os, "lstat", Seconds)
    remember_folders(stories.repository, file, tree, spare.commit)
    assert not has_same_folders(file, tree)
