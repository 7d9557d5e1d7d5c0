"""The door to git: how it is called, what it answers, and how it fails."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from isolation.errors import CommandKilledError, GitCommandError, RepositoryError
from isolation.git import commits
from isolation.git.checkout import read_status
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository, offload, scrubbed
from tests.conftest import git

ODD_NAMES = ("with space", "new\nline", "ünïcödé", "tab\there", 'quo"te', os.fsdecode(b"latin-\xe9"), "-dash")


def commit(cwd: Path, name: str, text: str) -> str:
    """Commit one file and give the new commit."""
    (cwd / name).write_text(text)
    git(cwd, "add", "-A")
    git(cwd, "commit", "-q", "-m", name)
    return git(cwd, "rev-parse", "HEAD").strip()


def test_scrubbing_keeps_identity_config_and_transport() -> None:
    """Only what points at a repository, index or work tree goes."""
    env = {"GIT_DIR": "x", "GIT_INDEX_FILE": "x", "GIT_WORK_TREE": "x", "GIT_COMMON_DIR": "x"}
    kept = {"GIT_AUTHOR_NAME": "a", "GIT_CONFIG_GLOBAL": "b", "GIT_SSH_COMMAND": "c", "PATH": "d"}
    assert scrubbed({**env, **kept}) == kept


def test_inherited_git_variables_do_not_lead_git_astray(
    make_repository: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With GIT_DIR and an index of another repository around, ours is still the one that answers."""
    ours, other = make_repository("ours"), make_repository("other", {"more": "x"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    repository = Repository.open(ours)
    assert repository.run("ls-files").stdout == "README.md\n"
    assert read_status(repository, ours).dirty == ()
    assert os.environ["GIT_DIR"] == str(other / ".git")


def test_a_variable_given_on_purpose_reaches_git(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private index asked for by the caller is used, an inherited one is not."""
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "inherited"))
    repository.run("read-tree", "HEAD", env={"GIT_INDEX_FILE": str(tmp_path / "private")})
    assert (tmp_path / "private").exists()
    assert not (tmp_path / "inherited").exists()


def test_a_missing_folder_never_means_another_one(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call about a folder that is gone fails, and does not run in the process's own folder."""
    monkeypatch.chdir(repository.top)
    with pytest.raises(GitCommandError, match="cannot change to"):
        repository.run("status", cwd=tmp_path / "gone")


def test_a_checkout_without_git_file_is_not_the_repository_around_it(repo: Path) -> None:
    """A folder inside another repository that lost its `.git` is an error, not that repository."""
    repository = Repository.open(repo)
    inner = repo / "inner"
    inner.mkdir()
    with pytest.raises(GitCommandError, match="not a git repository"):
        read_status(repository, inner)


def test_git_missing_is_said(repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without git on PATH the error says so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RepositoryError, match="git is not installed"):
        Repository.open(repo)


def test_old_git_is_refused(repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A git before 2.31 is refused with its version."""
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho git version 2.30.2\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(RepositoryError, match=r"too old.*2\.30\.2"):
        Repository.open(repo)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_dubious_ownership_is_explained(repo: Path) -> None:
    """A repository of another user names the setting that trusts it."""
    for path in (repo, repo / ".git"):
        os.chown(path, 12345, 12345)
    with pytest.raises(RepositoryError) as caught:
        Repository.open(repo)
    assert f"safe.directory {repo}" in caught.value.hint


def test_bases_are_resolved_or_named(repository: Repository) -> None:
    """A known base gives its commit; an unknown one, or an option in disguise, is named."""
    assert repository.resolve("main") == git(repository.top, "rev-parse", "main").strip()
    for ref in ("nowhere", "--all", "main:README.md"):
        with pytest.raises(RepositoryError, match="unknown base"):
            repository.resolve(ref)


def test_a_repository_without_commits_says_so(tmp_path: Path) -> None:
    """Before the first commit there is nothing to start from, and the error says that."""
    git(tmp_path, "init", "-q", "empty")
    with pytest.raises(RepositoryError, match="no commits yet"):
        Repository.open(tmp_path / "empty").resolve("HEAD")


def test_questions_about_history(repository: Repository) -> None:
    """Tips, ancestry, counts, changed paths with both sides of a rename, branch and HEAD."""
    top = repository.top
    first = repository.resolve("HEAD")
    git(top, "mv", "README.md", "READ.md")
    second = commit(top, "b", "b")
    assert repository.branch_tip("main") == second
    assert repository.branch_tip("other") is None
    assert repository.is_ancestor(first, second)
    assert not repository.is_ancestor(second, first)
    assert repository.count_commits(first, second) == 1
    assert repository.changed_paths(first, second) == ("READ.md", "README.md", "b")
    assert (read_status(repository, repository.top).branch, repository.head()) == ("main", second)
    git(top, "checkout", "-q", "--detach")
    assert read_status(repository, repository.top).branch is None


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rival", [None, "refs/tags/story", "refs/story", "refs/tags/story-2"])
def test_a_branch_is_named_so_that_git_takes_it_for_nothing_else(
    repository: Repository, rival: str | None, *, packed: bool
) -> None:
    """Whatever git would look at first, the name leads to the branch; without a rival it is the plain one."""
    top, old = repository.top, repository.resolve("HEAD")
    if rival:
        git(top, "update-ref", rival, old)
    git(top, "switch", "--quiet", "--create", "story")
    git(top, "commit", "--quiet", "--allow-empty", "-m", "work")
    if packed:
        git(top, "pack-refs", "--all")
    name = repository.name_of_branch("story")
    assert git(top, "rev-parse", "--verify", name) == git(top, "rev-parse", "refs/heads/story")
    assert name == ("heads/story" if rival in {"refs/tags/story", "refs/story"} else "story")


def test_odd_file_names_survive(repository: Repository) -> None:
    """Spaces, line ends, quotes, unicode and bytes that are not UTF-8 come back as they are."""
    top, base = repository.top, repository.resolve("HEAD")
    for name in ODD_NAMES:
        (top / name).write_text("x")
    assert sorted(read_status(repository, top).dirty) == sorted(ODD_NAMES)
    base = git(top, "rev-parse", "HEAD").strip()
    done = commits.checkpoint(repository, top, "main", "odd", 1, base=base, since=base).tip
    assert done is not None
    assert sorted(repository.changed_paths(base, done)) == sorted(ODD_NAMES)
    assert read_status(repository, top).dirty == ()


def test_dirt_is_modified_staged_deleted_renamed_and_untracked_but_not_ignored(
    make_repository: Callable[..., Path],
) -> None:
    """Every kind of uncommitted change is named, whatever the user's settings hide."""
    top = make_repository(files={name: name for name in "abcd"} | {".gitignore": "*.log\n"})
    git(top, "config", "status.showUntrackedFiles", "no")
    (top / "a").write_text("changed")
    git(top, "rm", "-q", "b")
    git(top, "mv", "c", "c2")
    (top / "d").unlink()
    (top / "new").mkdir()
    (top / "new" / "file").write_text("x")
    (top / "ignored.log").write_text("x")
    found = read_status(Repository.open(top), top).dirty
    assert sorted(found) == ["a", "b", "c", "c2", "d", "new/file"]


def test_an_edit_with_restored_size_and_time_is_seen(repository: Repository) -> None:
    """Settings that make git trust size and time do not hide an edit from us."""
    file = repository.top / "README.md"
    git(repository.top, "config", "core.checkStat", "minimal")
    git(repository.top, "config", "core.trustctime", "false")
    before = file.stat()
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns - 10**10))
    git(repository.top, "update-index", "--refresh")
    stamp = file.stat().st_mtime_ns
    edited = file.with_name("edited")
    edited.write_text("HELLO\n")
    os.utime(edited, ns=(stamp, stamp))
    edited.replace(file)
    assert git(repository.top, "status", "--porcelain") == ""
    assert read_status(repository, repository.top).dirty == ("README.md",)


def test_exclude_adds_one_line_and_keeps_the_others(repository: Repository) -> None:
    """Asked twice, the pattern is there once, and what the user wrote stays."""
    path = repository.common_dir / "info" / "exclude"
    path.write_bytes(b"mine\xff\n# no newline at the end")
    path.chmod(0o600)
    repository.exclude("/.orchestrator/")
    repository.exclude("/.orchestrator/")
    assert path.read_bytes() == b"mine\xff\n# no newline at the end\n/.orchestrator/\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (repository.top / ".orchestrator").mkdir()
    (repository.top / ".orchestrator" / "x").write_text("x")
    assert read_status(repository, repository.top).dirty == ()


def test_exclude_asked_for_by_many_at_once_is_there_once(repository: Repository) -> None:
    """Stories that start together do not pile the same line up, nor lose each other's."""
    patterns = ["/.orchestrator/", "/node_modules"] * 8
    askers = [threading.Thread(target=repository.exclude, args=(pattern,)) for pattern in patterns]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    lines = (repository.common_dir / "info" / "exclude").read_text().splitlines()
    assert [lines.count(pattern) for pattern in patterns[:2]] == [1, 1]


def test_the_metadata_lock_excludes_other_processes(repository: Repository) -> None:
    """Another real process that wants the lock gets it only after we let go."""
    code = (
        "import sys; from pathlib import Path; from isolation.git.metadata_lock import metadata_lock\n"
        "print('started', flush=True)\n"
        "with metadata_lock(Path(sys.argv[1])): print('locked', flush=True)\n"
    )
    with metadata_lock(repository.common_dir):
        args = [sys.executable, "-c", code, str(repository.common_dir)]
        other = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "started\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)
    with other:
        assert other.stdout.readline() == "locked\n"
    assert other.returncode == 0


def test_errors_hide_credentials_and_know_a_full_disk(repository: Repository) -> None:
    """The command is named without its password; a failed write for want of room says so."""
    with pytest.raises(GitCommandError) as caught:
        repository.run("fetch", "https://user:secret@example.invalid/x")
    assert "secret" not in str(caught.value)
    assert "example.invalid" in str(caught.value)


def test_a_full_disk_has_its_own_hint(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance 72, the git part: what git says about a full disk becomes a hint about it."""
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    text = "error: unable to write loose object file: No space left on device"
    fake.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 128\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(GitCommandError) as caught:
        repository.run("write-tree")
    assert "free disk space" in caught.value.hint
    assert text in caught.value.message


async def test_a_cancelled_call_still_ends(repository: Repository, tmp_path: Path) -> None:
    """Cancellation never leaves a git command running behind."""
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    os.mkfifo(begun)
    alias = f"alias.slow=!echo begun > {begun}; sleep 0.3; echo ended > {ended}"
    with trio.fail_after(20), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offload, repository.run, "-c", alias, "slow")
            await trio.to_thread.run_sync(begun.read_text)
            scope.cancel()
    assert ended.exists()


def test_watching_a_worktree_never_breaks_its_own_git(make_repository: Callable[..., Path]) -> None:
    """Our look at a tree takes no lock that a story's `git add` or `commit` could run into."""
    top = make_repository(files={f"f{number}": "x" for number in range(300)})
    repository = Repository.open(top)
    failures, over = [], threading.Event()

    def watch() -> None:
        while not over.is_set():
            read_status(repository, top)

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        for number in range(25):
            for name in range(40):
                (top / f"f{name}").write_text(f"{number} {name}")
            for args in (["add", "-A"], ["commit", "-q", "-m", "x"]):
                done = subprocess.run(["git", *args], cwd=top, check=False, capture_output=True, text=True)
                failures += [done.stderr] if done.returncode else []
    finally:
        over.set()
        for watcher in watchers:
            watcher.join()
    assert failures == []


def test_a_command_that_was_killed_is_no_answer(repository: Repository) -> None:
    """Read as an exit code, it would say that a branch does not exist or that a tree is clean."""
    for check in (True, False):
        with pytest.raises(CommandKilledError, match=r"`git .* end` was killed from outside \(signal 9\)"):
            repository.run("-c", "alias.end=!kill -9 $PPID", "end", check=check)


@pytest.mark.parametrize("name", ["HEAD", "gitdir"])
def test_a_fifo_in_place_of_a_worktrees_file_holds_nothing_up(repo: Path, name: str) -> None:
    """Git reads these of every worktree; what waits is freed, and the FIFO stays under another name."""
    git(repo, "worktree", "add", "-q", "-b", "other", str(repo.parent / "other"))
    file = repo / ".git" / "worktrees" / "other" / name
    file.unlink()
    os.mkfifo(repo / "fifo")
    if name == "gitdir":
        file.symlink_to(repo / "fifo")
    else:
        os.mkfifo(file)
    repository = Repository.open(repo)
    repository.run("worktree", "add", "-q", "-b", "new", str(repo.parent / "new"))
    assert (repo.parent / "new" / ".git").exists()
    assert not os.path.lexists(file)
    assert file.with_name(f"{name}.not-a-file").is_fifo()
