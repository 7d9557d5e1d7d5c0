"""Ignored files and shared directories that a fresh worktree needs."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from isolation.errors import WorkspaceError
from isolation.git.checkout import read_status
from isolation.git.repository import Repository
from isolation.model import Workspace
from isolation.worktree.provision import provision
from tests.conftest import git
from tests.isolation.worktree.worktrees import make

IGNORED = {
    ".gitignore": ".env*\nlocal/\nnode_modules/\n*.key\n",
    ".worktreeinclude": ".env*\n*.key\nlocal/\n",
}


@pytest.fixture
def repository(make_repository: Callable[..., Path]) -> Repository:
    return Repository.open(make_repository(files=IGNORED))


@pytest.fixture
def workspace(repository: Repository) -> Workspace:
    return trio.run(make, repository)


def test_ignored_files_that_match_are_copied_with_their_mode(
    repository: Repository, workspace: Workspace
) -> None:
    """Real copies, folders included, never wider than the original, and not shown as dirt."""
    top = repository.top
    odd = os.fsdecode(b".env \xe9\n")
    (top / ".env").write_text("SECRET=1")
    (top / ".env").chmod(0o600)
    (top / odd).write_text("odd")
    (top / "local").mkdir()
    (top / "local" / "tool").write_text("#!/bin/sh\n")
    (top / "local" / "tool").chmod(0o4755)
    report = provision(repository, workspace.path)
    assert sorted(report.copied) == sorted([".env", odd, "local/tool"])
    assert (workspace.path / ".env").stat().st_mode & 0o7777 == 0o600
    assert (workspace.path / "local" / "tool").stat().st_mode & 0o7777 == 0o755
    assert not (workspace.path / ".env").samefile(top / ".env")
    assert read_status(repository, workspace.path).dirty == ()


def test_files_that_git_does_not_ignore_are_not_copied(repository: Repository, workspace: Workspace) -> None:
    """A tracked or merely untracked file that matches stays where it is."""
    (repository.common_dir / "info" / "exclude").write_text("")
    (repository.top / ".worktreeinclude").write_text("*\n")
    (repository.top / "notes").write_text("x")
    report = provision(repository, workspace.path)
    assert report.copied == ()
    reasons = {each.path: each.reason for each in report.skipped}
    assert reasons["notes"] == "it is not copied, since git does not ignore it; add it to .gitignore"


def test_a_secret_is_not_copied_where_the_branch_would_commit_it(
    repository: Repository, workspace: Workspace
) -> None:
    """Ignored in the main checkout but not on the story's branch: skipped, with the reason."""
    (repository.top / ".env").write_text("SECRET=1")
    (workspace.path / ".gitignore").write_text("")
    report = provision(repository, workspace.path)
    assert [(each.path, each.reason) for each in report.skipped] == [
        (".env", "it is not copied, since git does not ignore it on the story's branch")
    ]
    assert not (workspace.path / ".env").exists()


def test_links_that_lead_out_are_refused(
    repository: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    """A link inside the checkout is kept as a link; one that escapes, or is absolute, is skipped."""
    top = repository.top
    (tmp_path / "outside").write_text("x")
    (top / "in.key").symlink_to("README.md")
    (top / "out.key").symlink_to("../outside")
    (top / "absolute.key").symlink_to(top / "README.md")
    report = provision(repository, workspace.path)
    assert report.copied == ("in.key",)
    assert {each.path for each in report.skipped} == {"out.key", "absolute.key"}
    assert (workspace.path / "in.key").readlink() == Path("README.md")


def test_nothing_is_overwritten_and_no_link_is_followed_out(
    repository: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    """What is there stays; a folder of the worktree that leads elsewhere is not written through."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (repository.top / ".env").write_text("new")
    (repository.top / "local").mkdir()
    (repository.top / "local" / "file").write_text("x")
    (workspace.path / ".env").write_text("old")
    (workspace.path / "local").symlink_to(elsewhere)
    (workspace.path / ".gitignore").write_text(".env*\nlocal\n")
    report = provision(repository, workspace.path)
    assert report.copied == ()
    assert (workspace.path / ".env").read_text() == "old"
    assert list(elsewhere.iterdir()) == []


def test_shared_directories_are_linked_and_not_shown_as_dirt(
    repository: Repository, workspace: Workspace
) -> None:
    """`node_modules/` does not match a link; it is hidden from git all the same, and from `add -A`."""
    (repository.top / "node_modules" / "left-pad").mkdir(parents=True)
    (repository.top / "packages [a]" / "node_modules").mkdir(parents=True)
    wanted = ("node_modules", "packages [a]/node_modules/", "absent", ".worktreeinclude")
    report = provision(repository, workspace.path, wanted)
    assert report.linked == wanted[:2]
    assert {each.path for each in report.skipped} == {"absent", ".worktreeinclude"}
    assert (workspace.path / "node_modules" / "left-pad").is_dir()
    assert read_status(repository, workspace.path).dirty == ()
    git(workspace.path, "add", "-A")
    assert git(workspace.path, "diff", "--cached", "--name-only") == ""
    again = provision(repository, workspace.path, wanted)
    assert again.linked == ()
    assert {each.path for each in again.skipped} == {"absent", ".worktreeinclude"}, "our links are no news"
    reasons = {each.path: each.reason for each in again.skipped}
    assert reasons["absent"].endswith("create it there, or remove it from `symlink-directories`")


def test_a_second_opening_says_nothing_of_what_the_first_one_brought(
    repository: Repository, workspace: Workspace
) -> None:
    """A file that is there unchanged is no news; one that the story changed is kept, and named."""
    (repository.top / ".env").write_text("one")
    (repository.top / "a.key").write_text("key")
    assert sorted(provision(repository, workspace.path).copied) == [".env", "a.key"]
    (workspace.path / ".env").write_text("two")
    again = provision(repository, workspace.path)
    assert again.copied == ()
    assert [(each.path, each.reason) for each in again.skipped] == [
        (".env", "the worktree has its own, which is kept")
    ]


def test_a_directory_that_git_tracks_is_not_linked(repository: Repository, workspace: Workspace) -> None:
    """Only what git ignores may be shared between stories."""
    (repository.top / "src").mkdir()
    report = provision(repository, workspace.path, ("src",))
    assert [each.reason for each in report.skipped] == [
        "it is not linked, since git does not ignore it; add it to .gitignore"
    ]


@pytest.mark.parametrize("name", ["../x", "/etc", "", "a/../../b", ".git/hooks", "."])
def test_names_that_lead_out_are_refused(repository: Repository, workspace: Workspace, name: str) -> None:
    """Acceptance 11: a setting that escapes the checkout is an error."""
    with pytest.raises(WorkspaceError, match="symlink-directories"):
        provision(repository, workspace.path, (name,))


@pytest.fixture
def sharing_disk(tmp_path: Path) -> Iterator[Path]:
    """Have a folder on a file system whose files can share blocks."""
    if os.geteuid() != 0 or shutil.which("mkfs.btrfs") is None or shutil.which("filefrag") is None:
        pytest.skip("a disk can be mounted by root only, with the tools of btrfs")
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, place], check=False).returncode:
        pytest.skip("no loop device can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_copy_shares_its_blocks_where_the_file_system_can(sharing_disk: Path) -> None:
    """It takes no room of its own, until one of the two is written to, and then only that one changes."""
    top = sharing_disk / "repo"
    top.mkdir()
    git(top, "init", "-q")
    for name, text in IGNORED.items():
        (top / name).write_text(text)
    git(top, "add", "-A")
    git(top, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "first")
    large = b"0123456789abcdef" * (1 << 16)
    (top / "model.key").write_bytes(large)
    os.sync()
    repository = Repository.open(top)
    tree = trio.run(make, repository).path
    assert provision(repository, tree).copied == ("model.key",)
    listed = subprocess.run(
        ["filefrag", "-v", tree / "model.key"], check=True, capture_output=True, text=True
    )
    assert "shared" in listed.stdout
    with (tree / "model.key").open("r+b") as file:
        file.write(b"mine")
    assert (top / "model.key").read_bytes() == large
    assert (tree / "model.key").read_bytes() == b"mine" + large[4:]
