"""What a story left is found without git's status: just what git would commit, or git is asked."""

import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from isolation.git import checkout
from isolation.git.checkout import index_identity
from isolation.git.commits import Checkpoint
from isolation.git.direct import tree_look
from isolation.git.direct.tree_look import settled
from isolation.git.repository import Repository
from isolation.model import Workspace
from isolation.worktree.removal import close
from tests.conftest import git
from tests.isolation.worktree.worktrees import checkpointed, make

Edit = Callable[[Path], object]


def _fill(top: Path) -> None:
    """Make files of all kinds, and rules of what to ignore."""
    for name in ("kept", "edited", "gone", "folder/one", "folder/two", "folder/deep/three"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(f"{name}\n")
    (top / ".gitignore").write_text("*.log\nbuild/\n")
    (top / "link").symlink_to("kept")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "files of all kinds")


@pytest.fixture
def filled(repository: Repository) -> Repository:
    _fill(repository.top)
    return repository


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the git commands of the program, as they run."""
    found: list[str] = []
    real = Repository.run

    def run(self: Repository, *args: str, **more: object) -> object:
        found.append(next(word for word in args if not word.startswith("-") and "=" not in word))
        return real(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Repository, "run", run)
    return found


def _same_size(tree: Path) -> None:
    (tree / "edited").write_text("EDITED\n")


def _same_size_and_times(tree: Path) -> None:
    before = (tree / "edited").stat()
    (tree / "edited").write_text("EDITED\n")
    os.utime(tree / "edited", ns=(before.st_atime_ns, before.st_mtime_ns))


def _through_a_mapping(tree: Path) -> None:
    with (tree / "edited").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:4] = b"EDIT"


def _replaced(tree: Path) -> None:
    (tree / "new").write_text("EDITED\n")
    (tree / "new").rename(tree / "edited")


def _swapped(tree: Path) -> None:
    (tree / "kept").rename(tree / "aside")
    (tree / "edited").rename(tree / "kept")
    (tree / "aside").rename(tree / "edited")


def _file_to_folder(tree: Path) -> None:
    (tree / "edited").unlink()
    (tree / "edited").mkdir()
    (tree / "edited" / "inside").write_text("inside")


def _folder_to_file(tree: Path) -> None:
    shutil.rmtree(tree / "folder")
    (tree / "folder").write_text("a file now")


def _folder_to_link(tree: Path) -> None:
    """Replace a folder by a link to where its very files are now: none of them has changed."""
    (tree / "folder").rename(tree / "moved")
    (tree / "folder").symlink_to("moved")


def _folder_to_link_outside(tree: Path) -> None:
    """Replace a folder by a link; in the first tree that is edited, to its very files."""
    outside = tree.parent / "outside"
    if outside.exists():
        shutil.rmtree(tree / "folder")
    else:
        (tree / "folder").rename(outside)
    (tree / "folder").symlink_to(outside)


def _file_to_link(tree: Path) -> None:
    (tree / "edited").unlink()
    (tree / "edited").symlink_to("kept")


def _other_link(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").symlink_to("gone")


def _new_in_new_folders(tree: Path) -> None:
    (tree / "a/b/c").mkdir(parents=True)
    (tree / "a/b/c/new").write_text("new")


def _ignored_and_new(tree: Path) -> None:
    (tree / "build").mkdir()
    (tree / "build" / "object").write_text("ignored")
    (tree / "out.log").write_text("ignored")
    (tree / "folder" / "new").write_text("new")


def _ignored_no_longer(tree: Path) -> None:
    (tree / ".gitignore").write_text("nothing\n")
    (tree / "out.log").write_text("no longer ignored")


def _staged(tree: Path) -> None:
    (tree / "edited").write_text("staged\n")
    git(tree, "add", "edited")


def _staged_and_taken_back(tree: Path) -> None:
    (tree / "edited").write_text("staged\n")
    git(tree, "add", "edited")
    (tree / "edited").write_text("edited\n")


def _committed(tree: Path) -> None:
    (tree / "edited").write_text("committed\n")
    git(tree, "commit", "-qam", "by the session")
    (tree / "new").write_text("after it")


def _hidden(tree: Path) -> None:
    (tree / "new").write_text("new")
    git(tree, "update-index", "--assume-unchanged", "kept")


EDITS: dict[str, Edit] = {
    "nothing": lambda _: None,
    "edited": lambda tree: (tree / "edited").write_text("another text\n"),
    "same size": _same_size,
    "same size and times": _same_size_and_times,
    "through a mapping": _through_a_mapping,
    "replaced": _replaced,
    "swapped": _swapped,
    "executable": lambda tree: (tree / "kept").chmod(0o755),
    "only touched": lambda tree: (tree / "kept").touch(),
    "deleted": lambda tree: (tree / "gone").unlink(),
    "folder deleted": lambda tree: shutil.rmtree(tree / "folder"),
    "file to folder": _file_to_folder,
    "folder to file": _folder_to_file,
    "folder to link": _folder_to_link,
    "folder to link outside": _folder_to_link_outside,
    "file to link": _file_to_link,
    "other link": _other_link,
    "new": lambda tree: (tree / "new").write_text("new"),
    "new, in a folder": lambda tree: (tree / "folder/deep/new").write_text("new"),
    "new, in new folders": _new_in_new_folders,
    "empty folder": lambda tree: (tree / "empty").mkdir(),
    "only ignored": lambda tree: (tree / "out.log").write_text("ignored"),
    "ignored and new": _ignored_and_new,
    "ignored no longer": _ignored_no_longer,
    "name with a line break": lambda tree: (tree / "a\nb").write_text("new"),
    "name that is no text": lambda tree: (tree / os.fsdecode(b"\xff")).write_text("new"),
    "name like a pattern": lambda tree: (tree / "*").write_text("new"),
    "name like an option": lambda tree: (tree / "--all").write_text("new"),
    "staged": _staged,
    "staged and taken back": _staged_and_taken_back,
    "committed": _committed,
    "hidden": _hidden,
}
LEFT_TO_GIT = {"staged", "staged and taken back", "committed", "hidden"}


@pytest.mark.parametrize("edit", EDITS)
async def test_the_commit_is_the_one_that_git_would_find(
    filled: Repository, edit: str, asked: list[str]
) -> None:
    """Two worktrees with the same work: one is looked at, the other one is left to git's status."""
    looked, left = await make(filled, "looked"), await make(filled, "left")
    assert looked.index
    for workspace in (looked, left):
        EDITS[edit](workspace.path)
    asked.clear()
    ours = checkpointed(filled, looked, looked.index)
    assert ("status" in asked) is (edit in LEFT_TO_GIT)
    theirs = checkpointed(filled, left, ())
    assert _tree(filled, ours) == _tree(filled, theirs)
    assert (ours.files, ours.unchanged, ours.commits) == (theirs.files, theirs.unchanged, theirs.commits)
    assert sorted(ours.among or ()) == sorted(theirs.among or ())
    assert git(looked.path, "status", "--porcelain") == git(left.path, "status", "--porcelain")


def _tree(repository: Repository, made: Checkpoint) -> str:
    return git(repository.top, "rev-parse", f"{made.tip}^{{tree}}")


_STEPS = sorted(set(EDITS) - LEFT_TO_GIT - {"folder to link outside"})


@settings(max_examples=25)
@given(rounds=st.lists(st.lists(st.sampled_from(_STEPS), min_size=1, max_size=5), min_size=1, max_size=3))
def test_any_work_is_committed_as_git_would(
    rounds: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Edits in any order, several commits one after the other, each in the moment after the last."""
    top = tmp_path_factory.mktemp("histories")
    git(top, "init", "-q", "-b", "main")
    _fill(top)
    looked, left = (top.parent / f"{top.name}-{name}" for name in ("looked", "left"))
    for path in (looked, left):
        git(top, "worktree", "add", "-q", "-b", f"autopilot/{path.name}", str(path))
    repository = Repository.open(top)
    base = git(top, "rev-parse", "HEAD").strip()
    heads, index = {looked: base, left: base}, index_identity(looked)
    for edits in rounds:
        for path in (looked, left):
            for edit in edits:
                try:
                    EDITS[edit](path)
                except OSError:
                    continue  # an earlier edit is in its way
        made = {}
        for path in (looked, left):
            workspace = Workspace(
                path=path, branch=f"autopilot/{path.name}", base=base, head=heads[path], reattached=False
            )
            made[path] = checkpointed(repository, workspace, index if path == looked else ())
            heads[path] = made[path].tip
        assert _tree(repository, made[looked]) == _tree(repository, made[left])
        assert git(looked, "status", "--porcelain") == git(left, "status", "--porcelain")
        index = made[looked].index


async def test_a_repository_in_the_tree_is_refused_as_before(filled: Repository) -> None:
    """Git would commit its id, and none of its files."""
    workspace = await make(filled)
    nested = workspace.path / "folder" / "nested"
    nested.mkdir()
    git(nested, "init", "-q")
    (nested / "file").write_text("file")
    git(nested, "add", "-A")
    git(nested, "commit", "-qm", "nested")
    with pytest.raises(Exception, match=r"folder/nested.*is a git repository of its own"):
        checkpointed(filled, workspace, workspace.index)


async def test_a_checkout_with_a_submodule_is_verified_without_asking_git(
    filled: Repository, asked: list[str]
) -> None:
    """Git leaves an empty folder for it."""
    inner = filled.top / "inner"
    git(filled.top, "init", "-q", "inner")
    git(inner, "commit", "-q", "--allow-empty", "-m", "inner")
    git(filled.top, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
    git(filled.top, "commit", "-q", "-m", "a submodule")
    asked.clear()
    workspace = await make(filled)
    assert "checkout" in asked
    assert "status" not in asked
    assert not any((workspace.path / "inner").iterdir())


async def test_a_large_tree_is_left_to_git(
    filled: Repository, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, git's status takes less than a look."""
    monkeypatch.setattr(tree_look, "_LARGEST", 100)
    workspace = await make(filled)
    (workspace.path / "new").write_text("new")
    asked.clear()
    checkpointed(filled, workspace, workspace.index)
    assert "status" in asked


async def test_a_tree_with_many_new_files_is_left_to_git(filled: Repository, asked: list[str]) -> None:
    """Installed packages, for example, which git ignores as a whole."""
    workspace = await make(filled)
    (workspace.path / "build").mkdir()
    for number in range(2001):
        (workspace.path / "build" / f"{number}").touch()
    asked.clear()
    assert checkpointed(filled, workspace, workspace.index).unchanged
    assert "status" in asked


async def test_a_worktree_is_closed_without_asking_git(filled: Repository, asked: list[str]) -> None:
    """What was known at the commit is compared with what is there now."""
    workspace = await make(filled)
    (workspace.path / "new").write_text("new")
    made = checkpointed(filled, workspace, workspace.index)
    assert made.index
    asked.clear()
    closing = await close(filled, replace(workspace, head=made.tip, index=made.index))
    assert closing.removed
    assert "status" not in asked
    assert not workspace.path.exists()


@pytest.mark.parametrize(
    "late", ["edited", "same size and times", "deleted", "new", "replaced", "staged", "folder to link"]
)
async def test_what_is_written_after_the_commit_keeps_the_worktree(filled: Repository, late: str) -> None:
    """A verification may write, and so may the user."""
    workspace = await make(filled)
    (workspace.path / "kept").write_text("work")
    made = checkpointed(filled, workspace, workspace.index)
    EDITS[late](workspace.path)
    closing = await close(filled, replace(workspace, head=made.tip, index=made.index))
    assert not closing.removed
    assert closing.reason
    assert workspace.path.exists()


async def test_a_branch_that_moved_after_the_commit_is_left_to_git(
    filled: Repository, asked: list[str]
) -> None:
    """What is known is known of one commit only."""
    workspace = await make(filled)
    (workspace.path / "new").write_text("new")
    made = checkpointed(filled, workspace, workspace.index)
    tip = git(filled.top, "commit-tree", "-p", made.tip, "-m", "another", f"{made.tip}^{{tree}}").strip()
    git(filled.top, "update-ref", f"refs/heads/{workspace.branch}", tip)
    asked.clear()
    assert checkout.seen_status(filled, workspace.path, workspace.branch, made.tip, made.index) is None


def test_an_index_is_settled_once_the_clock_of_files_has_moved_on(
    filled: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written from then on gets another time than any that the index holds."""
    index = filled.common_dir / "index"
    for _ in range(20):
        os.utime(index)  # now, by the clock of files
        found = settled(index)
        late = filled.top / "late"
        late.write_text("late")
        assert late.stat().st_ctime_ns > found[2]
        late.unlink()
    monkeypatch.setattr("time.clock_gettime_ns", lambda _: 0)  # a clock that stands still
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert settled(index) == ()
