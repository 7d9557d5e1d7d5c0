"""Entries of worktrees that are written without git: the same as git's own, whole or not there at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation.git.direct import linked
from isolation.git.direct.linked import add_entry, draft_entry, is_simple
from isolation.git.registrations import clear_missing, move_entry, removed_entries
from isolation.git.repository import Repository
from tests.conftest import git
from tests.isolation.worktree.worktrees import git_dir_of, make


def entry(folder: Path) -> dict[str, bytes]:
    """Return the files of an entry, with its own name as `NAME`."""
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(os.fsencode(folder.name), b"NAME")
        for path in folder.rglob("*")
        if path.is_file()
    }


def add(repository: Repository, path: Path, branch: str, reason: str = "why") -> None:
    """Register a worktree on a branch at HEAD."""
    tip = git(repository.top, "rev-parse", "HEAD").strip()
    draft = draft_entry(repository.common_dir, path, branch, reason)
    add_entry(repository.common_dir, draft, path, branch, tip)


def test_an_entry_is_as_git_writes_it(repository: Repository) -> None:
    """File by file and byte by byte; also the pointer in the worktree itself."""
    top, common, reason = repository.top, repository.common_dir, "autopilot-multi run r story s"
    theirs, ours = top.parent / "by-git", top.parent / "by-us"
    adding = ("worktree", "add", "-q", "--no-checkout", "--lock", "--reason", reason, "--no-track")
    git(top, *adding, "-b", "autopilot/by-git", str(theirs), "HEAD")
    git(top, "branch", "--no-track", "autopilot/by-us", "HEAD")
    add(repository, ours, "autopilot/by-us", reason)
    expected, made = entry(git_dir_of(theirs)), entry(git_dir_of(ours))
    seconds = {"logs/HEAD"}  # the time in it may differ by one
    assert made.keys() == expected.keys()
    assert {name: made[name] for name in made.keys() - seconds} == {
        name: expected[name] for name in expected.keys() - seconds
    }
    assert made["logs/HEAD"].split(b">")[0] == expected["logs/HEAD"].split(b">")[0]
    assert [path.name for path in ours.iterdir()] == [".git"]
    assert (ours / ".git").read_bytes() == (theirs / ".git").read_bytes().replace(b"by-git", b"by-us")
    git(ours, "checkout", "-q", "--force", "autopilot/by-us", "--")
    assert git(ours, "status", "--porcelain") == ""
    assert not list((common / "autopilot" / "trash").iterdir())


def test_two_worktrees_of_one_name_have_two_entries(repository: Repository) -> None:
    """As git does it, the second gets a number."""
    paths = [repository.top.parent / folder / "same" for folder in ("a", "b", "c")]
    for number, path in enumerate(paths):
        path.parent.mkdir()
        git(repository.top, "branch", f"same-{number}", "HEAD")
        add(repository, path, f"same-{number}")
    assert [git_dir_of(path).name for path in paths] == ["same", "same1", "same2"]


def test_empty_folders_may_be_removed_meanwhile(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever removes the last worktree removes its folder, and git its list, without our lock."""
    top, common = repository.top, repository.common_dir
    root = top.parent / "trees"
    root.mkdir()
    free_name = linked._free_name

    def removed(listed: Path, name: str) -> Path:
        root.rmdir()
        (common / "worktrees").rmdir()
        return free_name(listed, name)

    monkeypatch.setattr(linked, "_free_name", removed)
    git(top, "branch", "mine", "HEAD")
    add(repository, root / "mine", "mine")
    git(root / "mine", "checkout", "-q", "--force", "mine", "--")
    assert git(root / "mine", "status", "--porcelain") == ""


@pytest.mark.parametrize("setting", ["extensions.worktreeConfig=true", "core.sharedRepository=group"])
async def test_what_is_not_simple_is_left_to_git(
    repository: Repository, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git writes more there than these files, or with other modes."""
    git(repository.top, "config", *setting.split("="))
    assert not is_simple(repository.common_dir)
    monkeypatch.setattr("isolation.worktree.registering.draft.add_entry", None)
    workspace = await make(repository, "one")
    assert git(workspace.path, "status", "--porcelain") == ""


async def test_a_worktree_costs_no_process_before_its_checkout(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git's own commands would be four."""
    await make(repository, "first")  # who commits, and where the user's hooks are, is asked once
    trace = repository.top.parent / "trace"
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(trace))
    await make(repository, "one")
    started = [line for line in trace.read_text().splitlines() if '"event":"start"' in line]
    assert [
        word for word in ("worktree", "branch", "symbolic-ref") if any(f'"{word}"' in x for x in started)
    ] == []


async def test_a_full_disk_leaves_neither_entry_nor_branch(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The story fails with the system's words, and the next attempt starts from scratch."""

    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(linked, "first_line_of_log", full)
        with pytest.raises(Exception, match="No space left on device"):
            await make(repository, "one")
    assert repository.branch_tip("autopilot/one") is None
    assert not list((repository.common_dir / "worktrees").iterdir())
    workspace = await make(repository, "one")
    assert git(workspace.path, "status", "--porcelain") == ""


async def test_a_kill_before_the_entry_is_there_is_made_good(repository: Repository) -> None:
    """What is left is a branch, and a folder with a pointer that leads nowhere."""
    path = repository.top.parent / "repo.worktrees" / "one"
    git(repository.top, "branch", "--no-track", "autopilot/one", "HEAD")
    path.mkdir(parents=True)
    (path / ".git").write_text(f"gitdir: {repository.common_dir / 'worktrees' / 'one'}\n")
    workspace = await make(repository, "one")
    assert workspace.path == path
    assert git(path, "status", "--porcelain", "--branch") == "## autopilot/one\n"


@pytest.fixture
def elsewhere(repository: Repository) -> Iterator[Path]:
    """Provide a folder on another disk, to which our folder in the git directory leads."""
    memory = Path("/dev/shm")  # noqa: S108  a folder of its own is made there
    if not memory.is_dir() or memory.stat().st_dev == repository.common_dir.stat().st_dev:
        pytest.skip("this machine has no second disk that everybody may write to")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        shutil.rmtree(repository.common_dir / "autopilot", ignore_errors=True)
        (repository.common_dir / "autopilot").symlink_to(folder)
        yield Path(folder)


@pytest.mark.usefixtures("elsewhere")
async def test_our_folder_may_be_on_another_disk(repository: Repository) -> None:
    """Git makes the entry where ours cannot be moved; it is removed, and nothing is left beside the list."""
    workspace = await make(repository, "one")
    assert git(workspace.path, "status", "--porcelain", "--branch") == "## autopilot/one\n"
    shutil.rmtree(workspace.path)
    clear_missing(repository, workspace.path)
    assert "autopilot/one" not in git(repository.top, "worktree", "list")
    assert not [path for path in repository.common_dir.iterdir() if path.name.startswith("autopilot-")]
    assert not removed_entries(repository).exists()


async def test_an_entry_is_kept_on_another_disk_and_comes_back(
    repository: Repository, elsewhere: Path
) -> None:
    """As a whole, in both directions."""
    workspace = await make(repository, "one")
    listed, kept = git_dir_of(workspace.path), elsewhere / "kept"
    files = entry(listed)
    move_entry(listed, kept)
    assert "autopilot/one" not in git(repository.top, "worktree", "list")
    move_entry(kept, listed)
    assert entry(listed) == files
    assert "autopilot/one" in git(repository.top, "worktree", "list")
    assert not kept.exists()
