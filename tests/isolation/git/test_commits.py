"""The checkpoints that the program makes."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from isolation.errors import GitCommandError, WorkspaceError
from isolation.git import commits
from isolation.git.checkout import read_status
from isolation.git.repository import Repository
from tests.conftest import git
from tests.isolation.worktree.worktrees import checkpoint_of_main, commit


def test_a_checkpoint_takes_what_lies_outside_a_sparse_checkout(repository: Repository) -> None:
    """A story may write where its sparse checkout shows nothing; that is committed like all the rest."""
    top = repository.top
    for name in ("seen", "unseen"):
        (top / name).mkdir()
        commit(top, f"{name}/old")
    git(top, "sparse-checkout", "set", "seen")
    (top / "unseen").mkdir(exist_ok=True)
    (top / "unseen" / "new").write_text("x")
    (top / "unseen" / "old").write_text("changed")
    done = checkpoint_of_main(repository, "work\n", 1_700_000_000)
    assert git(top, "diff-tree", "-r", "--name-only", "--no-commit-id", done).split() == [
        "unseen/new",
        "unseen/old",
    ]
    assert git(top, "ls-tree", "-r", "--name-only", done).split() == [
        "README.md",
        "seen/old",
        "unseen/new",
        "unseen/old",
    ]


def test_checkpoint_commits_everything_once(repository: Repository) -> None:
    """A checkpoint holds all changes; without changes there is none; trailers and date stay."""
    top = repository.top
    (top / "new").write_text("x")
    (top / "README.md").unlink()
    done = checkpoint_of_main(repository, "work\n\nAutopilot-Story: a\n", 1_700_000_000)
    assert repository.head() == done
    assert read_status(repository, top).dirty == ()
    assert git(top, "log", "-1", "--format=%at %ct %an%n%(trailers:only)").split("\n")[:2] == [
        "1700000000 1700000000 Test",
        "Autopilot-Story: a",
    ]
    assert checkpoint_of_main(repository, "again", 1_700_000_000) == done


@pytest.mark.parametrize("log", ["true", "false"])
def test_a_first_commit_is_known_with_and_without_a_log(repository: Repository, log: str) -> None:
    """Where git logs what it does, that is read; else git is asked; what is told is the same."""
    top = repository.top
    git(top, "config", "core.logAllRefUpdates", log)
    shutil.rmtree(repository.common_dir / "logs", ignore_errors=True)
    base = repository.resolve("HEAD")
    (top / "new").write_text("x")
    made = commits.checkpoint(repository, top, "main", "work", 5, base=base, since=base)
    assert (made.tip, made.commits, made.files) == (repository.resolve("HEAD"), 1, 1)
    assert (repository.common_dir / "logs" / "HEAD").exists() == (log == "true")


@pytest.mark.parametrize("line", ["", "two words", "{base} " + "f" * 40 + " forged"])
def test_a_log_that_says_something_else_is_not_believed(repository: Repository, line: str) -> None:
    """What a session wrote there itself does not decide where the branch stands."""
    top, base = repository.top, repository.resolve("HEAD")
    (top / "new").write_text("x")
    with (repository.common_dir / "logs" / "HEAD").open("a") as log:
        log.write(line.format(base=base) + "\n")
    made = commits.checkpoint(repository, top, "main", "work", 5, base=base, since=base)
    assert (made.tip, made.commits) == (repository.resolve("HEAD"), 1)
    (repository.common_dir / "logs" / "HEAD").write_text(line.format(base=base) + "\n")
    again = commits.checkpoint(repository, top, "main", "work", 5, base=base, since=base)
    assert again.tip == made.tip


def test_a_log_is_not_asked_when_nothing_was_committed(repository: Repository) -> None:
    """What was staged and then undone differs, and leaves nothing to commit."""
    top, base = repository.top, repository.resolve("HEAD")
    before = (top / "README.md").read_text()
    (top / "README.md").write_text("changed")
    git(top, "add", "README.md")
    (top / "README.md").write_text(before)
    assert read_status(repository, top).dirty
    with (repository.common_dir / "logs" / "HEAD").open("a") as log:
        log.write(f"{base} {'f' * 40} forged\n")
    made = commits.checkpoint(repository, top, "main", "work", 5, base=base, since=base)
    assert (made.tip, made.commits, made.files) == (base, 0, 0)


@pytest.mark.parametrize("earlier", [0, 1], ids=["its first commit", "a later one"])
def test_a_foreign_commit_during_a_checkpoint_is_an_error(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, earlier: int
) -> None:
    """Nothing is told of a branch that another process moves at the same time."""
    top, base = repository.top, repository.resolve("HEAD")
    for number in range(earlier):
        commit(top, f"earlier-{number}")
    (top / "new").write_text("x")
    stage = commits._stage_all

    def intrude(repository: Repository, cwd: Path, dirty: Sequence[str]) -> None:
        git(cwd, "commit", "--quiet", "--allow-empty", "-m", "theirs")
        stage(repository, cwd, dirty)

    monkeypatch.setattr(commits, "_stage_all", intrude)
    with pytest.raises(WorkspaceError, match=r"moved from .* during a checkpoint"):
        commits.checkpoint(repository, top, "main", "work", 5, base=base, since=base)


def test_a_checkpoint_counts_what_the_session_changed(repository: Repository) -> None:
    """New, changed and deleted paths count once each, whatever committed them, and again after a repeat."""
    top, before = repository.top, repository.resolve("HEAD")

    def files(since: str) -> int | None:
        made = commits.checkpoint(repository, top, "main", "work", 5, base=before, since=since)
        return made.files

    assert files(before) == 0
    (top / "README.md").unlink()
    (top / "new").mkdir()
    for name in ("one", "two"):
        (top / "new" / name).write_text("x")
    assert files(before) == 3
    assert files(before) == 3, "interrupted after its commit and repeated"
    between = repository.resolve("HEAD")
    assert files(between) == 0
    commit(top, "own", "x")
    (top / "own").write_text("y")
    (top / "more").write_text("x")
    assert files(between) == 2, "one that it committed itself and changed again, one that it left"
    assert files("0" * 40) is None, "a start commit that is gone does not fail the checkpoint"


@pytest.mark.parametrize(
    "rewrite",
    [
        ("commit", "-q", "--amend", "-m", "another first"),
        ("reset", "-q", "--hard", "HEAD~1"),
        ("reset", "-q", "--soft", "HEAD~1"),
        ("checkout", "-q", "-B", "main", "aside"),
    ],
)
def test_a_branch_that_has_lost_its_base_is_refused(repository: Repository, rewrite: tuple[str, ...]) -> None:
    """What was verified without the base is not what a merge would give; the files stay where they are."""
    top = repository.top
    orphan = git(top, "commit-tree", "HEAD^{tree}", "-m", "another root").strip()
    git(top, "branch", "aside", orphan)
    base = commit(top, "base", "x")
    git(top, *rewrite)
    (top / "work").write_text("x")
    for _ in range(2):
        with pytest.raises(WorkspaceError, match="the history of main was rewritten") as raised:
            commits.checkpoint(repository, top, "main", "work", 5, base=base, since=base)
    assert f"git reset --soft {base[:10]}" in (raised.value.hint or "")
    assert git(top, "show", "main:work") == "x"


def test_a_repeated_checkpoint_gives_the_same_commit(repository: Repository) -> None:
    """Torn between commit and branch move, the same checkpoint done again has the same id."""
    top, before = repository.top, repository.resolve("HEAD")
    (top / "new").write_text("x")
    first = checkpoint_of_main(repository, "work", 5)
    git(top, "update-ref", "refs/heads/main", before)
    assert checkpoint_of_main(repository, "work", 5) == first


def test_without_an_identity_the_runner_commits_under_its_own_name(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No name configured: the commit is the runner's, and `has_identity` says so."""
    assert repository.has_identity
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name)
    repository = Repository.open(repository.top)
    assert not repository.has_identity
    (repository.top / "new").write_text("x")
    checkpoint_of_main(repository, "work", 5)
    assert git(repository.top, "log", "-1", "--format=%an <%ae>").strip() == (
        "autopilot-multi <autopilot-multi@localhost>"
    )


def test_a_checkpoint_off_its_branch_is_refused(repository: Repository) -> None:
    """On another branch, or on none, nothing is committed."""
    git(repository.top, "switch", "-q", "-c", "other")
    (repository.top / "new").write_text("x")
    with pytest.raises(WorkspaceError, match="on branch other, not on main"):
        checkpoint_of_main(repository, "work", 5)
    assert read_status(repository, repository.top).dirty == ("new",)


@pytest.mark.parametrize("lost", ["branch", "commit", "sparse"])
def test_a_branch_that_is_lost_is_put_back_and_the_work_committed(repository: Repository, lost: str) -> None:
    """Deleted, or with the objects of its commit: it is where the session found it, with all files.

    In a sparse checkout the files are not all there, so that only the way back is named.
    """
    top, before = repository.top, repository.resolve("HEAD")
    if lost == "sparse":
        git(top, "config", "core.sparseCheckout", "true")
    (top / "new").write_text("x")
    if lost == "commit":
        there = set((top / ".git" / "objects").glob("??/*"))
        git(top, "add", "-A")
        git(top, "commit", "-q", "-m", "own")
        for made in set((top / ".git" / "objects").glob("??/*")) - there:
            made.unlink()
    else:
        git(top, "update-ref", "-d", "refs/heads/main")
    if lost == "sparse":
        with pytest.raises(WorkspaceError, match=r"^branch main is gone$") as refused:
            commits.checkpoint(repository, top, "main", "work", 5, base=before, since=before)
        assert refused.value.hint.startswith(f"`git branch main {before[:12]}`")
        return
    found = commits.checkpoint(repository, top, "main", "work", 5, base=before, since=before)
    assert git(top, "rev-parse", "main~1", "main").split() == [before, found.tip]
    assert git(top, "show", "main:new") == "x"
    assert git(top, "status", "--porcelain") == ""
    git(top, "fsck", "--connectivity-only", "main")


def test_a_checkpoint_in_the_middle_of_a_merge_is_refused(repository: Repository) -> None:
    """Conflict markers are never committed as work."""
    top = repository.top
    git(top, "switch", "-q", "-c", "other")
    commit(top, "README.md", "theirs\n")
    git(top, "switch", "-q", "main")
    commit(top, "README.md", "ours\n")
    subprocess.run(["git", "merge", "-q", "other"], cwd=top, check=False, capture_output=True)
    with pytest.raises(WorkspaceError, match="middle of a merge"):
        checkpoint_of_main(repository, "work", 5)


def test_a_checkpoint_is_what_was_asked_for_whatever_the_user_has_set_up(repository: Repository) -> None:
    """Hooks, signing and the cleaning of messages are for commits that people make."""
    top = repository.top
    git(top, "config", "commit.gpgSign", "true")
    git(top, "config", "gpg.program", "false")
    for name in ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit"):
        hook = top / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {top.parent}/hooked\nexit 1\n")
        hook.chmod(0o755)
    (top / "new").write_text("x")
    message = "#17: work\n\n# a heading\n\nAutopilot-Story: a\n"
    done = checkpoint_of_main(repository, message, 5)
    assert git(top, "show", "--no-patch", "--format=%B", done).rstrip("\n") == message.rstrip("\n")
    assert not (top.parent / "hooked").exists()


def test_a_nested_repository_without_a_commit_is_named(repository: Repository) -> None:
    """What git cannot add is an error; the error names the folder."""
    git(repository.top, "init", "-q", "vendor/tool")
    (repository.top / "vendor" / "tool" / "file").write_text("x")
    with pytest.raises(WorkspaceError, match="vendor/tool/ is a git repository without a commit"):
        checkpoint_of_main(repository, "work", 5)


def test_a_nested_repository_with_commits_is_refused_until_its_files_can_be_committed(
    repository: Repository,
) -> None:
    """A commit would hold its id and none of its files: no work that a branch could bring along."""
    inner = repository.top / "web app"
    git(repository.top, "init", "-q", str(inner))
    commit(inner, "index.html")
    with pytest.raises(WorkspaceError, match=r"web app inside .* is a git repository of its own") as refused:
        checkpoint_of_main(repository, "work", 5)
    assert "remove web app/.git" in refused.value.hint
    shutil.rmtree(inner / ".git")
    done = checkpoint_of_main(repository, "work", 5)
    assert "web app/index.html" in git(repository.top, "ls-tree", "-r", "--name-only", done).splitlines()


def _add_submodule(repository: Repository, library: Path) -> None:
    git(library.parent, "init", "-q", str(library))
    commit(library, "code")
    add = ("submodule", "--quiet", "add", str(library), "lib")
    git(repository.top, "-c", "protocol.file.allow=always", *add)


def test_a_submodule_that_was_added_is_committed(repository: Repository, tmp_path: Path) -> None:
    """A session may add a submodule: others can fetch what its id stands for."""
    _add_submodule(repository, tmp_path / "library")
    done = checkpoint_of_main(repository, "work", 5)
    assert "lib" in git(repository.top, "ls-tree", "--name-only", done).split()


@pytest.mark.parametrize("name", ["code", "new"])
def test_what_is_uncommitted_in_a_submodule_is_refused(
    repository: Repository, tmp_path: Path, name: str
) -> None:
    """A commit holds the submodule's id alone; once it is committed there, the new id is."""
    _add_submodule(repository, tmp_path / "library")
    checkpoint_of_main(repository, "with a submodule", 5)
    top = repository.top
    (top / "lib" / name).write_text("changed")
    (top / "beside").write_text("x")
    for _ in range(2):
        with pytest.raises(WorkspaceError, match="uncommitted files in a submodule") as refused:
            checkpoint_of_main(repository, "work", 6)
    assert refused.value.message.endswith(": lib")
    assert git(top, "show", "main:beside") == "x", "what can be committed is"
    inner = commit(top / "lib", name, "changed")
    assert git(top, "rev-parse", f"{checkpoint_of_main(repository, 'work', 7)}:lib").strip() == inner


def test_a_submodule_that_the_user_ignores_is_no_hindrance(repository: Repository, tmp_path: Path) -> None:
    """`ignore` in .gitmodules says that what a build leaves there is nothing."""
    _add_submodule(repository, tmp_path / "library")
    git(repository.top, "config", "--file", ".gitmodules", "submodule.lib.ignore", "untracked")
    checkpoint_of_main(repository, "with a submodule", 5)
    (repository.top / "lib" / "built").write_text("x")
    checkpoint_of_main(repository, "work", 6)
    (repository.top / "lib" / "code").write_text("changed")
    with pytest.raises(WorkspaceError, match="uncommitted files in a submodule"):
        checkpoint_of_main(repository, "work", 7)


def test_a_held_index_lock_is_waited_for(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reliability 20: released while we wait, the checkpoint succeeds."""
    lock = repository.top / ".git" / "index.lock"
    lock.write_text("")
    (repository.top / "new").write_text("x")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            lock.unlink()

    monkeypatch.setattr("isolation.git.commits.time.sleep", wait)
    assert checkpoint_of_main(repository, "work", 5) == repository.head()
    # Shorter ones wait for the clock by which files are stamped.
    assert [wait for wait in waits if wait >= 0.05] == [0.05, 0.1, 0.2]


def test_an_index_lock_that_stays_is_an_error_and_stays(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reliability 20: the patience is bounded, and the lock is never deleted."""
    monkeypatch.setattr(commits, "_WAITS", (0.01, 0.01))
    lock = repository.top / ".git" / "index.lock"
    lock.write_text("")
    (repository.top / "new").write_text("x")
    with pytest.raises(GitCommandError) as caught:
        checkpoint_of_main(repository, "work", 5)
    assert "lock" in caught.value.hint
    assert lock.exists()


def test_a_checkpoint_writes_no_object_again(repository: Repository) -> None:
    """Files that are as young as the index look changed to git, which may not touch the objects it has."""
    top = repository.top
    for number in range(9):
        commit(top, f"f{number}")
    git(top, "repack", "-a", "-d", "-q")
    git(top, "prune-packed")
    tree = top.parent / f"{top.name}.worktrees" / "a"
    git(top, "worktree", "add", "-q", "-b", "autopilot/a", str(tree))
    (tree / "new").write_text("x")
    base = repository.resolve("HEAD")
    commits.checkpoint(repository, tree, "autopilot/a", "work", 5, base=base, since=base)
    assert int(git(top, "count-objects").split()[0]) == 3  # the file, the tree and the commit


def test_more_files_than_are_named_and_what_is_gone_again_are_committed(repository: Repository) -> None:
    """Whether they are named to git or found by it makes no difference to what a commit holds."""
    top = repository.top
    commit(top, "old")
    git(top, "rm", "-q", "--cached", "old")
    (top / "old").unlink()  # there is nothing to name any more
    (top / "*").write_text("no pattern")
    few = checkpoint_of_main(repository, "few", 1)
    assert git(top, "ls-tree", "--name-only", few).split() == ["*", "README.md"]
    for number in range(60):
        (top / f"many{number}").write_text("x")
    many = checkpoint_of_main(repository, "many", 1)
    assert len(git(top, "ls-tree", "--name-only", many).split()) == 62
