"""What a story owns in the shared tree is committed without git as git would commit it, or by git."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolation.claims import globs
from isolation.git import private_index
from isolation.git.plain.commit import MOST
from isolation.git.plain.trees import LeftToGitError
from isolation.git.private_index import ClaimTree, NewCommit, claim_tree
from isolation.git.repository import Repository
from isolation.paths import claim_index_path
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
    fill,
    many,
    write,
)

_COMMIT = NewCommit(message="Work\n\nAutopilot-Story: one\n", date=1_700_000_000.5)
_OWN = ("own/**",)
_LEFT = {"update-index", "write-tree", "commit-tree"}


@pytest.fixture
def owned(repository: Repository) -> Repository:
    """Return a repository in which a story owns a folder."""
    fill(repository.top / "own")
    (repository.top / "own/link").unlink()
    write("other/of-nobody")(repository.top)
    _commit_all(repository, "files")
    return repository


def _commit_all(repository: Repository, message: str) -> None:
    git(repository.top, "add", "-A")
    git(repository.top, "commit", "-q", "--allow-empty", "-m", message)


def _tree(
    repository: Repository,
    own: tuple[str, ...] = _OWN,
    *,
    tip: str = "",
    commit: NewCommit | None = _COMMIT,
    by_git: bool = False,
) -> ClaimTree:
    with pytest.MonkeyPatch.context() as patch:
        if by_git:
            patch.setattr(private_index, "_built_plainly", _leave_to_git)
        return claim_tree(
            repository,
            repository.top,
            index=claim_index_path(repository.common_dir, "autopilot/one"),
            tip=tip or repository.resolve("HEAD"),
            claim=globs.compile(own),
            commit=commit,
        )


def _leave_to_git(*_: object, **__: object) -> ClaimTree:
    raise LeftToGitError("as asked for")


def _both(
    repository: Repository,
    edit: Edit,
    asked: list[str],
    own: tuple[str, ...] = _OWN,
    *,
    commit: NewCommit = _COMMIT,
) -> tuple[ClaimTree, set[str]]:
    """Commit the same work as is and by git; return it, and which commands the first one took."""
    _tree(repository, own)  # the files of the commit are listed once
    edit(repository.top / "own")
    before = _state(repository)
    asked.clear()
    ours = _tree(repository, own, commit=commit)
    commands = set(asked)
    git(repository.top, "fsck", "--strict", "--no-dangling")
    by_git = _tree(repository, own, commit=commit, by_git=True)
    assert (ours.tree, ours.changed, ours.tip) == (by_git.tree, by_git.changed, by_git.tip)
    assert _state(repository) == before
    assert not list((repository.common_dir / "objects").glob("??/tmp*"))
    return ours, commands


def _state(repository: Repository) -> tuple[str, bytes]:
    return git(repository.top, "for-each-ref"), (repository.common_dir / "index").read_bytes()


@pytest.mark.parametrize("edit", [name for name in USUAL if "as many" not in name])
def test_usual_work_is_committed_as_git_would_without_git(
    owned: Repository, edit: str, asked: list[str]
) -> None:
    """The same tree, paths and commit id."""
    made, commands = _both(owned, USUAL[edit], asked)
    assert commands == set()
    assert bool(made.changed) == (made.tip != owned.resolve("HEAD")) == ("same text" not in edit)
    assert all(path.startswith("own/") for path in made.changed)


@pytest.mark.parametrize("edit", [name for name in UNUSUAL if "link" not in name])
def test_unusual_work_is_left_to_git(owned: Repository, edit: str, asked: list[str]) -> None:
    """Git decides what of it is committed, and as what."""
    _, commands = _both(owned, UNUSUAL[edit], asked)
    assert "update-index" in commands


@pytest.mark.parametrize("edit", [name for name in UNUSUAL if "link" in name])
def test_links_are_left_to_git(owned: Repository, edit: str, asked: list[str]) -> None:
    """Where a file was, or where a link was."""
    (owned.top / "own/link").symlink_to("kept")
    _commit_all(owned, "a link")
    _, commands = _both(owned, UNUSUAL[edit], asked)
    assert "update-index" in commands


@pytest.mark.parametrize("how", CONFIGURED)
def test_what_git_converts_is_left_to_git(
    owned: Repository, how: str, asked: list[str], tmp_path: Path
) -> None:
    """By attributes and settings of the tree, of the commit, or of both."""
    configure(owned, how, tmp_path)
    _, commands = _both(owned, write("new.x", "$Id: x$ text"), asked)
    assert "update-index" in commands


def _linked(rules: Path) -> None:
    rules.unlink()
    rules.symlink_to("/dev/null")


@pytest.mark.parametrize("lose", [Path.unlink, _linked])
@pytest.mark.parametrize("place", [".gitattributes", "own/.gitattributes"])
@pytest.mark.parametrize("name", ["new.x", "kept.x"])
def test_attributes_that_only_the_commit_has_are_left_to_git(
    owned: Repository, asked: list[str], place: str, name: str, lose: Edit
) -> None:
    """Anybody may have deleted them in the tree; git reads them in its index then, for old files, too."""
    write("own/kept.x", "text\n")(owned.top)
    _commit_all(owned, "before there is a filter")
    git(owned.top, "config", "filter.up.clean", UPPER)
    write(place, "*.x filter=up\n")(owned.top)
    git(owned.top, "add", place)
    git(owned.top, "commit", "-qm", "attributes")
    lose(owned.top / place)
    made, commands = _both(owned, write(name, "text\n"), asked, (*_OWN, "!own/.gitattributes"))
    assert "update-index" in commands
    assert git(owned.top, "cat-file", "-p", f"{made.tree}:own/{name}") == "TEXT\n"


def test_rules_of_the_tree_that_change_between_two_stories_count(owned: Repository, asked: list[str]) -> None:
    """Another story may own them, and they hold for what git is asked next."""
    one, two = ("own/one",), ("own/two",)
    _both(owned, write("one"), asked, one)
    write(".gitignore", "two\n")(owned.top)
    made, _ = _both(owned, write("two"), asked, two)
    assert made.changed == ()
    write(".gitignore", "")(owned.top)
    made, commands = _both(owned, write("two"), asked, two)
    assert (made.changed, commands) == (("own/two",), set())
    git(owned.top, "config", "filter.up.clean", UPPER)
    write(".gitattributes", "two filter=up\n")(owned.top)
    made, _ = _both(owned, write("two"), asked, two)
    assert git(owned.top, "cat-file", "-p", f"{made.tree}:own/two") == "NEW\n"


@pytest.mark.parametrize("more", [0, 1])
def test_only_a_few_files_are_looked_at_without_git(owned: Repository, asked: list[str], more: int) -> None:
    """Those that the commit has count, too: each is compared."""
    tracked = len(git(owned.top, "ls-files", "own").splitlines())
    _, commands = _both(owned, many(MOST - tracked + more), asked)
    assert bool(commands) == bool(more)


def test_a_folder_that_became_a_link_is_left_to_git(owned: Repository, asked: list[str]) -> None:
    """Nothing behind it is the story's."""

    def linked(own: Path) -> None:
        shutil.rmtree(own / "folder")
        (own / "folder").symlink_to("../other")

    made, commands = _both(owned, linked, asked)
    assert "update-index" in commands
    assert made.changed == ("own/folder", "own/folder/deep/two", "own/folder/one")


def test_a_claim_behind_a_link_is_left_to_git(owned: Repository, asked: list[str]) -> None:
    """What is there belongs to another place in the tree."""
    (owned.top / "behind").symlink_to("other")
    made, commands = _both(owned, write("../other/new"), asked, ("behind/new",))
    assert made.changed == ()
    assert commands == {"ls-files"}


@pytest.mark.parametrize("inside", ["own/new", "own/sub/new"])
def test_a_repository_around_a_claim_is_left_to_git(owned: Repository, asked: list[str], inside: str) -> None:
    """Its files are not the repository's."""
    git(owned.top, "init", "-q", "own/nested" if "sub" in inside else "own")
    own = (inside.replace("own/sub", "own/nested"),)
    made, commands = _both(owned, lambda top: write(own[0])(top.parent), asked, own)
    assert "ls-files" in commands
    assert made.changed == () or "sub" not in inside


def test_a_repository_in_a_claim_keeps_its_files(owned: Repository, asked: list[str]) -> None:
    """Also if the claim does not own what shows that it is one."""

    def nested(own: Path) -> None:
        write("new.md")(own)
        git(own, "init", "-q", "nested")
        write("nested/new.md")(own)
        git(own / "nested", "add", "-A")
        git(own / "nested", "commit", "-qm", "of its own")

    made, commands = _both(owned, nested, asked, ("own/**/*.md",))
    assert "ls-files" in commands
    assert made.changed == ("own/new.md",)


def test_files_of_a_kind_that_git_does_not_know_are_left_to_git(owned: Repository, asked: list[str]) -> None:
    """It passes over a FIFO, and so does a commit."""

    def fifo(own: Path) -> None:
        os.mkfifo(own / "fifo")
        write("new")(own)

    made, commands = _both(owned, fifo, asked)
    assert "ls-files" in commands
    assert made.changed == ("own/new",)


def test_files_that_nobody_owns_are_not_looked_at(owned: Repository, asked: list[str]) -> None:
    """However unusual they are."""
    (owned.top / "own/strange").symlink_to("kept")
    made, commands = _both(owned, write("new.md"), asked, ("own/*.md",))
    assert (made.changed, commands) == (("own/new.md",), set())


@pytest.mark.parametrize(
    "message", ["no end of line", "of \udcff another encoding\n", "no character: \uffff\n"]
)
def test_a_message_that_git_would_change_is_left_to_git(
    owned: Repository, asked: list[str], message: str
) -> None:
    """So the same commit comes out."""
    _, commands = _both(owned, write("new"), asked, commit=NewCommit(message=message, date=1.0))
    assert "commit-tree" in commands


_FORMATS = ("index.version=4", "core.splitIndex=true", "core.sparseCheckout=true", "attr.tree=HEAD")


@pytest.mark.parametrize("setting", _FORMATS)
def test_an_unusual_index_is_left_to_git(owned: Repository, asked: list[str], setting: str) -> None:
    """Git writes it as the user has it written, and may read attributes elsewhere."""
    git(owned.top, "config", *setting.split("="))
    _, commands = _both(owned, write("new"), asked)
    assert "update-index" in commands


def test_a_user_without_a_name_commits_as_this_program(
    owned: Repository, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with git."""
    for who in ("AUTHOR", "COMMITTER"):
        for what in ("NAME", "EMAIL"):
            monkeypatch.delenv(f"GIT_{who}_{what}", raising=False)
    made, commands = _both(Repository.open(owned.top), write("new"), asked)
    assert commands == set()
    assert git(owned.top, "log", "-1", "--format=%an %ae %cn %ce", made.tip).split() == [
        *("autopilot-multi", "autopilot-multi@localhost") * 2
    ]


def test_an_object_that_is_there_is_safe_from_a_gc(owned: Repository, asked: list[str]) -> None:
    """What no ref holds is removed once it is old; git makes what it needs again young."""
    text = "written before\n"
    write("draft", text)(owned.top.parent)
    found = git(owned.top, "hash-object", "-w", str(owned.top.parent / "draft")).strip()
    place = owned.common_dir / "objects" / found[:2] / found[2:]
    os.utime(place, (1.0, 1.0))
    _tree(owned)
    write("own/new", text)(owned.top)
    asked.clear()
    assert _tree(owned).changed == ("own/new",)
    assert asked == []
    assert place.stat().st_mtime > 1.0


def test_a_full_disk_is_left_to_git(
    owned: Repository, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is wrong, if it meets the same."""

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("isolation.git.plain.objects.sync_disk", full)
    _, commands = _both(owned, write("new"), asked)
    assert commands >= _LEFT


def test_a_look_without_a_commit_makes_none(owned: Repository, asked: list[str]) -> None:
    """It gives the tree alone, on top of the same commit."""
    _tree(owned)
    write("own/new")(owned.top)
    head = owned.resolve("HEAD")
    asked.clear()
    found = _tree(owned, commit=None)
    assert asked == []
    assert (found.tip, found.changed) == (head, ("own/new",))
    assert found.tree == _tree(owned, commit=None, by_git=True).tree


def test_the_commit_that_many_stories_begin_on_stays_known(owned: Repository, asked: list[str]) -> None:
    """Also while others go on from commits of their own."""
    base, write_new = owned.resolve("HEAD"), write("own/new")
    for number in range(4):
        _tree(owned, tip=base)
        write("own/new", f"{number}\n")(owned.top)
        own = _tree(owned, tip=base).tip
        write_new(owned.top)
        asked.clear()
        _tree(owned, tip=own)
        assert asked.count("read-tree") == 1
        asked.clear()
        _tree(owned, tip=base)
        assert asked == []


@settings(max_examples=25)
@given(rounds=st.lists(st.lists(CHANGES, min_size=1, max_size=6), min_size=1, max_size=4))
def test_any_history_of_files_gives_the_commits_that_git_makes(
    rounds: list[list[tuple[str, str | None, bool]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Files that come, change, become executable and go, in folders whose names sort unlike themselves."""
    top = tmp_path_factory.mktemp("histories")
    git(top, "init", "-q", "-b", "main")
    for name in ("kept", "own/kept", "own/folder/one"):
        write(name)(top)
    git(top, "add", "-A")
    git(top, "commit", "-qm", "begin")
    repository = Repository.open(top)
    tip = repository.resolve("HEAD")
    for changes in rounds:
        for change in changes:
            apply(top / "own", *change)
        ours, theirs = (_tree(repository, tip=tip, by_git=by_git) for by_git in (False, True))
        assert (ours.tip, ours.changed) == (theirs.tip, theirs.changed)
        tip = ours.tip
