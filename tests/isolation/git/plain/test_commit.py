"""Commits that are made without git are those that git makes; what it would treat otherwise is left to it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolation.git.checkout import index_identity
from isolation.git.commits import Checkpoint
from isolation.git.repository import Repository
from isolation.model import Workspace
from tests.conftest import git
from tests.isolation.git.plain.edits import (
    CHANGES,
    CONFIGURED,
    UNUSUAL,
    UPPER,
    USUAL,
    Edit,
    apply,
    configure,
    write,
)
from tests.isolation.worktree.worktrees import checkpointed, make


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


@pytest.mark.parametrize("how", CONFIGURED)
async def test_what_git_converts_is_left_to_git(
    filled: Repository, how: str, asked: list[str], tmp_path: Path
) -> None:
    """The attributes and settings are those of the commit that stories begin on."""
    configure(filled, how, tmp_path)
    ours, theirs, commands = await _both(filled, write("new.x", "$Id: x$ text"), asked)
    assert "add" in commands
    assert ours.tip == theirs.tip


async def test_an_index_that_only_git_writes_moves_no_branch_before_git_does(
    filled: Repository, asked: list[str]
) -> None:
    """Its names are compressed; the log of the branch shows who has moved it."""
    git(filled.top, "config", "index.version", "4")
    ours, theirs, commands = await _both(filled, write("new"), asked)
    assert {"add", "commit"} <= commands
    assert ours.tip == theirs.tip
    moved = git(filled.top, "reflog", "show", "--format=%gs", "-1", "autopilot/ours")
    assert moved == "autopilot-multi: committed in its worktree\n"  # git's commit, taken over


@pytest.mark.parametrize("place", [".git/info/attributes", ".gitattributes", "folder/.gitattributes"])
async def test_attributes_that_change_are_read_again(
    filled: Repository, asked: list[str], place: str
) -> None:
    """Wherever they are."""
    git(filled.top, "config", "filter.up.clean", UPPER)
    await _both(filled, write("folder/before.x"), asked)
    write(place, "*.x filter=up\n")(filled.top)
    git(filled.top, "add", "-A")
    git(filled.top, "commit", "-q", "--allow-empty", "-m", "attributes")

    workspace = await make(filled, "after")
    write("folder/new.x", "text\n")(workspace.path)
    made = checkpointed(filled, workspace, workspace.index)
    assert git(filled.top, "cat-file", "-p", f"{made.tip}:folder/new.x") == "TEXT\n"


@pytest.mark.parametrize("place", [".gitattributes", "folder/.gitattributes"])
async def test_attributes_that_a_session_deletes_are_left_to_git(
    filled: Repository, asked: list[str], place: str
) -> None:
    """Git reads them in its index as long as they are there."""
    git(filled.top, "config", "filter.up.clean", UPPER)
    write(place, "*.x filter=up\n")(filled.top)
    git(filled.top, "add", "-A")
    git(filled.top, "commit", "-qm", "attributes")

    def deleted(tree: Path) -> None:
        (tree / place).unlink()
        write("folder/new.x", "text\n")(tree)

    ours, theirs, commands = await _both(filled, deleted, asked)
    assert "add" in commands
    assert ours.tip == theirs.tip


async def test_settings_that_change_while_a_run_is_active_count(filled: Repository, asked: list[str]) -> None:
    """Git reads its configuration for each command."""
    await _both(filled, write("before.x"), asked)
    (filled.common_dir / "info").mkdir(exist_ok=True)
    (filled.common_dir / "info" / "exclude").write_text("*.x\n")
    workspace = await make(filled, "after")
    write("after.x")(workspace.path)
    assert checkpointed(filled, workspace, workspace.index).unchanged


async def test_the_index_is_not_replaced_while_a_command_holds_it(
    filled: Repository, asked: list[str]
) -> None:
    """Git waits for its lock, and so does the program."""
    workspace = await make(filled)
    write("new")(workspace.path)
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
    write("new")(workspace.path)
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
        write("new")(workspace.path)
        checkpointed(filled, workspace, index)
        lines.append(git(workspace.path, "reflog", "show", "HEAD", "--format=%H %gn %ge %gs", "-1"))
    assert lines[0] == lines[1]


@settings(max_examples=25)
@given(rounds=st.lists(st.lists(CHANGES, min_size=1, max_size=6), min_size=1, max_size=4))
def test_any_history_of_files_gives_the_commits_that_git_makes(
    rounds: list[list[tuple[str, str | None, bool]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Files that come, change, become executable and go, in folders whose names sort unlike themselves."""
    top = tmp_path_factory.mktemp("histories")
    git(top, "init", "-q", "-b", "main")
    for name in ("kept", "folder/one"):
        write(name)(top)
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
                apply(tree, *change)
            workspace = Workspace(
                path=tree, branch=f"autopilot/{tree.name}", base=base, head=heads[number], reattached=False
            )
            made = checkpointed(repository, workspace, () if number else index)
            heads[number] = made.tip
            index = index if number else made.index
        assert heads[0] == heads[1]
        assert git(trees[0], "status", "--porcelain") == ""
