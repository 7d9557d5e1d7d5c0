"""Commits that are made without git are those that git makes; what it would treat otherwise is left to it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolation.git.checkout import index_identity
from isolation.git.commits import Checkpoint
from isolation.git.plain.commit import MOST
from isolation.git.plain.content import LARGEST
from isolation.git.repository import Repository
from isolation.model import Workspace
from tests.conftest import git
from tests.isolation.worktree.worktrees import checkpointed, make

Edit = Callable[[Path], object]
_MAKES_COMMITS = {"add", "commit", "write-tree", "commit-tree", "update-index", "update-ref", "status"}


@pytest.fixture
def filled(repository: Repository) -> Repository:
    top = repository.top
    for name in ("kept", "edited", "gone", "folder/one", "folder/deep/two", "folder.txt", "folder-too/three"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(f"{name}\n")
    (top / "link").symlink_to("kept")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "files")
    return repository


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the git commands of the program, as they run."""
    found: list[str] = []
    real = Repository.run

    def run(self: Repository, *args: str, **more: object) -> object:
        found.extend(_MAKES_COMMITS.intersection(args))
        return real(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Repository, "run", run)
    return found


async def _both(
    repository: Repository, edit: Edit, asked: list[str]
) -> tuple[Checkpoint, Checkpoint, set[str]]:
    """Commit the same work in two worktrees, one without git; also return which commands that took."""
    ours, theirs = await make(repository, "ours"), await make(repository, "theirs")
    for workspace in (ours, theirs):
        edit(workspace.path)
    asked.clear()
    made = checkpointed(repository, ours, ours.index)
    commands = set(asked)
    expected = checkpointed(repository, theirs, ())
    for workspace in (ours, theirs):
        assert git(workspace.path, "diff", "--cached", "HEAD") == ""
    assert git(ours.path, "status", "--porcelain") == git(theirs.path, "status", "--porcelain")
    git(repository.top, "fsck", "--strict", "--no-dangling")
    return made, expected, commands


def _write(name: str, text: str = "new\n") -> Edit:
    def write(tree: Path) -> None:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)

    return write


def _many(number: int) -> Edit:
    def write(tree: Path) -> None:
        for each in range(number):
            (tree / f"new-{each}").write_text(f"{each}\n")

    return write


def _folder_for_file(tree: Path) -> None:
    (tree / "edited").unlink()
    _write("edited/inside")(tree)


def _file_for_folder(tree: Path) -> None:
    shutil.rmtree(tree / "folder")
    _write("folder")(tree)


def _changed_link(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").symlink_to("gone")


def _file_for_link(tree: Path) -> None:
    (tree / "link").unlink()
    _write("link")(tree)


USUAL: dict[str, Edit] = {
    "a new file": _write("new"),
    "a new file in new folders": _write("a/b/c/new"),
    "a new file in a folder": _write("folder/deep/new"),
    "an edited file": _write("edited", "another text\n"),
    "an empty file": _write("edited", ""),
    "a file as large as can be": _write("edited", "x" * LARGEST),
    "a deleted file": lambda tree: (tree / "gone").unlink(),
    "a deleted folder": lambda tree: shutil.rmtree(tree / "folder"),
    "an executable file": lambda tree: (tree / "kept").chmod(0o755),
    "a file written with the same text": _write("edited", "edited\n"),
    "as many files as can be": _many(MOST),
    "names that sort unlike folders": lambda tree: [
        _write(n)(tree) for n in ("folder0", "folder-", "folder!")
    ],
    "names with spaces and signs": lambda tree: [_write(n)(tree) for n in ("a b", "[x]", "-n", "#x")],
}

UNUSUAL: dict[str, Edit] = {
    "a link": lambda tree: (tree / "new").symlink_to("kept"),
    "a changed link": _changed_link,
    "a file for a link": _file_for_link,
    "a folder for a file": _folder_for_file,
    "a file for a folder": _file_for_folder,
    "a large file": _write("new", "x" * (LARGEST + 1)),
    "many files": _many(MOST + 1),
    "carriage returns": lambda tree: (tree / "new").write_bytes(b"one\r\ntwo\r\n"),
    "a name with letters of other alphabets": _write("é"),
    "a name that is no text": lambda tree: (tree / os.fsdecode(b"\xff")).write_text("new"),
    "a name that other systems read as another": _write("a\\b"),
    "attributes": lambda tree: (_write(".gitattributes", "*.x text\n")(tree), _write("new")(tree)),
    "rules that leave it out": lambda tree: (_write(".gitignore", "new*\n")(tree), _write("newest")(tree)),
}


@pytest.mark.parametrize("edit", USUAL)
async def test_usual_work_is_committed_as_git_would_without_git(
    filled: Repository, edit: str, asked: list[str]
) -> None:
    """The same files, parent, author, date and message make the same commit id, or none."""
    ours, theirs, commands = await _both(filled, USUAL[edit], asked)
    assert commands == set()
    assert (ours.tip, ours.files, ours.unchanged) == (theirs.tip, theirs.files, theirs.unchanged)


@pytest.mark.parametrize("edit", UNUSUAL)
async def test_unusual_work_is_left_to_git(filled: Repository, edit: str, asked: list[str]) -> None:
    """Git decides what of it is committed, and as what."""
    ours, theirs, commands = await _both(filled, UNUSUAL[edit], asked)
    assert "add" in commands
    assert (ours.tip, ours.files, ours.unchanged) == (theirs.tip, theirs.files, theirs.unchanged)


_UPPER = "tr a-z A-Z"
CONFIGURED = {
    "a filter": (("filter.up.clean", _UPPER), "*.x filter=up\n"),
    "a filter by a macro": (("filter.up.clean", _UPPER), "[attr]mine filter=up\n*.x mine\n"),
    "another encoding": (("core.filemode", "true"), "*.x working-tree-encoding=UTF-16LE\n"),
    "expanded ids": (("core.filemode", "true"), "*.x ident\n"),
    "modes that mean nothing": (("core.filemode", "false"), ""),
    "names of any case": (("core.ignorecase", "true"), ""),
    "attributes elsewhere": (("core.attributesfile", "ELSEWHERE"), ""),
    "an included file": (("include.path", "ELSEWHERE"), ""),
}


@pytest.mark.parametrize("how", CONFIGURED)
async def test_what_git_converts_is_left_to_git(
    filled: Repository, how: str, asked: list[str], tmp_path: Path
) -> None:
    """The attributes and settings are those of the commit that stories begin on."""
    (key, value), attributes = CONFIGURED[how]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("[core]\n" if key == "include.path" else "* filter=none\n")
    git(filled.top, "config", key, value.replace("ELSEWHERE", str(elsewhere)))
    if attributes:
        _write(".gitattributes", attributes)(filled.top)
        git(filled.top, "add", "-A")
        git(filled.top, "commit", "-qm", "attributes")
    ours, theirs, commands = await _both(filled, _write("new.x", "$Id: x$ text"), asked)
    assert "add" in commands
    assert ours.tip == theirs.tip


@pytest.mark.parametrize("place", [".git/info/attributes", ".gitattributes", "folder/.gitattributes"])
async def test_attributes_that_change_are_read_again(
    filled: Repository, asked: list[str], place: str
) -> None:
    """Wherever they are."""
    git(filled.top, "config", "filter.up.clean", _UPPER)
    await _both(filled, _write("folder/before.x"), asked)
    _write(place, "*.x filter=up\n")(filled.top)
    git(filled.top, "add", "-A")
    git(filled.top, "commit", "-q", "--allow-empty", "-m", "attributes")

    workspace = await make(filled, "after")
    _write("folder/new.x", "text\n")(workspace.path)
    made = checkpointed(filled, workspace, workspace.index)
    assert git(filled.top, "cat-file", "-p", f"{made.tip}:folder/new.x") == "TEXT\n"


@pytest.mark.parametrize("place", [".gitattributes", "folder/.gitattributes"])
async def test_attributes_that_a_session_deletes_are_left_to_git(
    filled: Repository, asked: list[str], place: str
) -> None:
    """Git reads them in its index as long as they are there."""
    git(filled.top, "config", "filter.up.clean", _UPPER)
    _write(place, "*.x filter=up\n")(filled.top)
    git(filled.top, "add", "-A")
    git(filled.top, "commit", "-qm", "attributes")

    def deleted(tree: Path) -> None:
        (tree / place).unlink()
        _write("folder/new.x", "text\n")(tree)

    ours, theirs, commands = await _both(filled, deleted, asked)
    assert "add" in commands
    assert ours.tip == theirs.tip


async def test_settings_that_change_while_a_run_is_active_count(filled: Repository, asked: list[str]) -> None:
    """Git reads its configuration for each command."""
    await _both(filled, _write("before.x"), asked)
    (filled.common_dir / "info").mkdir(exist_ok=True)
    (filled.common_dir / "info" / "exclude").write_text("*.x\n")
    workspace = await make(filled, "after")
    _write("after.x")(workspace.path)
    assert checkpointed(filled, workspace, workspace.index).unchanged


async def test_the_index_is_not_replaced_while_a_command_holds_it(
    filled: Repository, asked: list[str]
) -> None:
    """Git waits for its lock, and so does the program."""
    workspace = await make(filled)
    _write("new")(workspace.path)
    git_dir = Path(git(workspace.path, "rev-parse", "--absolute-git-dir").strip())
    (git_dir / "index.lock").touch()
    asked.clear()
    with pytest.raises(Exception, match=r"index\.lock"):
        checkpointed(filled, workspace, workspace.index)
    assert "add" in asked
    assert filled.branch_tip(workspace.branch) == workspace.head


async def test_a_hook_for_refs_has_its_say(filled: Repository, asked: list[str]) -> None:
    """A hook that forbids it is the user's, and git runs it."""
    workspace = await make(filled)
    _write("new")(workspace.path)
    hook = filled.common_dir / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho ran >> {filled.top.parent}/ran\n")
    hook.chmod(0o755)
    made = checkpointed(filled, workspace, workspace.index)
    assert made.tip == filled.branch_tip(workspace.branch) != workspace.head
    assert (filled.top.parent / "ran").exists() == ("commit" not in asked)


async def test_the_log_of_head_names_the_commit(filled: Repository) -> None:
    """As `git commit` writes it; recovery and `git reflog` read it."""
    ours, theirs = await make(filled, "ours"), await make(filled, "theirs")
    lines = []
    for workspace, index in ((ours, ours.index), (theirs, ())):
        _write("new")(workspace.path)
        checkpointed(filled, workspace, index)
        lines.append(git(workspace.path, "reflog", "show", "HEAD", "--format=%H %gn %ge %gs", "-1"))
    assert lines[0] == lines[1]


_NAMES = st.sampled_from(
    ["a", "b", "a.b", "a-b", "a/x", "a/y", "b/c/d", "b/c-d", "b.c/d", "kept", "folder/one"]
)
_CHANGES = st.tuples(_NAMES, st.sampled_from(["", "one\n", "two\n", None]), st.booleans())


@settings(max_examples=25)
@given(rounds=st.lists(st.lists(_CHANGES, min_size=1, max_size=6), min_size=1, max_size=4))
def test_any_history_of_files_gives_the_commits_that_git_makes(
    rounds: list[list[tuple[str, str | None, bool]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Files that come, change, become executable and go, in folders whose names sort unlike themselves."""
    top = tmp_path_factory.mktemp("histories")
    git(top, "init", "-q", "-b", "main")
    for name in ("kept", "folder/one"):
        _write(name)(top)
    git(top, "add", "-A")
    git(top, "commit", "-qm", "begin")
    base, repository = git(top, "rev-parse", "HEAD").strip(), Repository.open(top)
    trees = [top.parent / f"{top.name}-{name}" for name in ("ours", "theirs")]
    for tree in trees:
        git(top, "worktree", "add", "-q", "-b", f"autopilot/{tree.name}", str(tree))
    heads, index = [base, base], index_identity(trees[0])
    for changes in rounds:
        for number, tree in enumerate(trees):
            for change in changes:
                _change(tree, *change)
            workspace = Workspace(
                path=tree, branch=f"autopilot/{tree.name}", base=base, head=heads[number], reattached=False
            )
            made = checkpointed(repository, workspace, () if number else index)
            heads[number] = made.tip
            index = index if number else made.index
        assert heads[0] == heads[1]
        assert git(trees[0], "status", "--porcelain") == ""


def _change(tree: Path, name: str, text: str | None, executable: bool) -> None:  # noqa: FBT001  as drawn
    path = tree / name
    if any(parent.is_file() for parent in path.parents) or path.is_dir():
        return
    if text is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)
