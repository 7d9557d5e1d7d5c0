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

from isolation import commits
from isolation.errors import GitCommandError, MergeConflictError, RepositoryError, WorkspaceError
from isolation.repository import GitOutput, Repository, metadata_lock, offload, scrubbed
from tests.conftest import git

ODD_NAMES = ("with space", "new\nline", "ünïcödé", "tab\there", 'quo"te', os.fsdecode(b"latin-\xe9"), "-dash")


@pytest.fixture
def repository(repo: Path) -> Repository:
    return Repository.open(repo)


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
    assert repository.dirty_paths(ours) == ()
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
    """GitPython would run in the process's own folder; here the call fails instead."""
    monkeypatch.chdir(repository.top)
    with pytest.raises(GitCommandError, match="cannot change to"):
        repository.run("status", cwd=tmp_path / "gone")


def test_a_checkout_without_git_file_is_not_the_repository_around_it(repo: Path) -> None:
    """A folder inside another repository that lost its `.git` is an error, not that repository."""
    repository = Repository.open(repo)
    inner = repo / "inner"
    inner.mkdir()
    with pytest.raises(GitCommandError, match="not a git repository"):
        repository.dirty_paths(inner)


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
    assert (repository.current_branch(), repository.head()) == ("main", second)
    git(top, "checkout", "-q", "--detach")
    assert repository.current_branch() is None


def test_odd_file_names_survive(repository: Repository) -> None:
    """Spaces, line ends, quotes, unicode and bytes that are not UTF-8 come back as they are."""
    top, base = repository.top, repository.resolve("HEAD")
    for name in ODD_NAMES:
        (top / name).write_text("x")
    assert sorted(repository.dirty_paths(top)) == sorted(ODD_NAMES)
    done = commits.checkpoint(repository, top, "main", "odd", 1)
    assert done is not None
    assert sorted(repository.changed_paths(base, done)) == sorted(ODD_NAMES)
    assert repository.dirty_paths(top) == ()


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
    found = Repository.open(top).dirty_paths(top)
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
    assert repository.dirty_paths(repository.top) == ("README.md",)


def test_checkpoint_commits_everything_once(repository: Repository) -> None:
    """A checkpoint holds all changes; without changes there is none; trailers and date stay."""
    top = repository.top
    (top / "new").write_text("x")
    (top / "README.md").unlink()
    done = commits.checkpoint(repository, top, "main", "work\n\nAutopilot-Story: a\n", 1_700_000_000)
    assert done is not None
    assert repository.head() == done
    assert repository.dirty_paths(top) == ()
    assert git(top, "log", "-1", "--format=%at %ct %an%n%(trailers:only)").split("\n")[:2] == [
        "1700000000 1700000000 Test",
        "Autopilot-Story: a",
    ]
    assert commits.checkpoint(repository, top, "main", "again", 1_700_000_000) is None


def test_a_repeated_checkpoint_gives_the_same_commit(repository: Repository) -> None:
    """Torn between commit and branch move, the same checkpoint done again has the same id."""
    top, before = repository.top, repository.resolve("HEAD")
    (top / "new").write_text("x")
    first = commits.checkpoint(repository, top, "main", "work", 5)
    git(top, "update-ref", "refs/heads/main", before)
    assert commits.checkpoint(repository, top, "main", "work", 5) == first


def test_without_an_identity_the_runner_commits_under_its_own_name(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No name configured: the commit is the runner's, and `has_identity` says so."""
    assert repository.has_identity()
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name)
    assert not repository.has_identity()
    (repository.top / "new").write_text("x")
    commits.checkpoint(repository, repository.top, "main", "work", 5)
    assert git(repository.top, "log", "-1", "--format=%an <%ae>").strip() == (
        "autopilot-multi <autopilot-multi@localhost>"
    )


def test_a_checkpoint_off_its_branch_is_refused(repository: Repository) -> None:
    """On another branch, or on none, nothing is committed."""
    git(repository.top, "switch", "-q", "-c", "other")
    (repository.top / "new").write_text("x")
    with pytest.raises(WorkspaceError, match="on branch other, not on main"):
        commits.checkpoint(repository, repository.top, "main", "work", 5)
    assert repository.dirty_paths(repository.top) == ("new",)


def test_a_checkpoint_in_the_middle_of_a_merge_is_refused(repository: Repository) -> None:
    """Conflict markers are never committed as somebody's work."""
    top = repository.top
    git(top, "switch", "-q", "-c", "other")
    commit(top, "README.md", "theirs\n")
    git(top, "switch", "-q", "main")
    commit(top, "README.md", "ours\n")
    subprocess.run(["git", "merge", "-q", "other"], cwd=top, check=False, capture_output=True)
    with pytest.raises(WorkspaceError, match="middle of a merge"):
        commits.checkpoint(repository, top, "main", "work", 5)


def test_a_nested_repository_without_a_commit_is_named(repository: Repository) -> None:
    """What git cannot add is an error; the error names the folder."""
    git(repository.top, "init", "-q", "vendor/tool")
    (repository.top / "vendor" / "tool" / "file").write_text("x")
    with pytest.raises(WorkspaceError, match="vendor/tool/ is a git repository without a commit"):
        commits.checkpoint(repository, repository.top, "main", "work", 5)


async def test_a_held_index_lock_is_waited_for(repository: Repository) -> None:
    """Reliability 20: released in time, the checkpoint succeeds."""
    lock = repository.top / ".git" / "index.lock"
    lock.write_text("")
    (repository.top / "new").write_text("x")
    waiting = threading.Event()
    original = commits.retried

    def release() -> None:
        waiting.wait(10)
        lock.unlink()

    def observed(repository: Repository, args: tuple[str, ...], cwd: Path) -> GitOutput:
        waiting.set()
        return original(repository, args, cwd)

    with pytest.MonkeyPatch.context() as patch, trio.fail_after(30):
        patch.setattr(commits, "retried", observed)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, release)
            done = await offload(commits.checkpoint, repository, repository.top, "main", "work", 5.0)
    assert done is not None


def test_an_index_lock_that_stays_is_an_error_and_stays(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reliability 20: the patience is bounded, and the lock is never deleted."""
    monkeypatch.setattr(commits, "_WAITS", (0.01, 0.01))
    lock = repository.top / ".git" / "index.lock"
    lock.write_text("")
    (repository.top / "new").write_text("x")
    with pytest.raises(GitCommandError) as caught:
        commits.checkpoint(repository, repository.top, "main", "work", 5)
    assert "lock" in caught.value.hint
    assert lock.exists()


def test_several_parents_are_merged_without_a_checkout(repository: Repository) -> None:
    """Acceptance 24: the start is the merge of the tips, the same for the same tips."""
    top = repository.top
    base = repository.resolve("HEAD")
    tips = []
    for name in "abc":
        git(top, "switch", "-q", "-c", f"story-{name}", base)
        tips.append(commit(top, name, name))
    git(top, "switch", "-q", "main")
    merged = commits.merge_parents(repository, [*tips, base], "Merge")
    assert all(repository.is_ancestor(tip, merged) for tip in tips)
    assert sorted(repository.changed_paths(base, merged)) == ["a", "b", "c"]
    assert commits.merge_parents(repository, [*tips, base], "Merge") == merged
    assert repository.head() == base
    assert repository.dirty_paths(top) == ()


def test_parents_that_others_contain_are_left_out(repository: Repository) -> None:
    """One tip that has all the others in its history is given back as it is."""
    base = repository.resolve("HEAD")
    tip = commit(repository.top, "a", "a")
    assert commits.merge_parents(repository, [base, tip, base], "Merge") == tip


def test_a_merge_conflict_names_the_files(repository: Repository) -> None:
    """Acceptance 24: tips that do not merge fail with the paths."""
    top, base = repository.top, repository.resolve("HEAD")
    tips = []
    for name in "ab":
        git(top, "switch", "-q", "-c", f"story-{name}", base)
        (top / "ünï code").write_text(name)
        tips.append(commit(top, "README.md", name))
    with pytest.raises(MergeConflictError) as caught:
        commits.merge_parents(repository, tips, "Merge")
    assert caught.value.paths == ("README.md", "ünï code")
    assert "README.md, ünï code" in caught.value.message


def test_a_git_that_cannot_merge_trees_is_named(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several parents with a git before 2.38 say which version is needed."""
    top, base = repository.top, repository.resolve("HEAD")
    tips = []
    for name in "ab":
        git(top, "switch", "-q", "-c", f"story-{name}", base)
        tips.append(commit(top, name, name))
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\ncase "$*" in *merge-tree*) exit 129;; esac\nexec /usr/bin/git "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(RepositoryError, match=r"2\.38"):
        commits.merge_parents(repository, tips, "Merge")


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
    assert repository.dirty_paths(repository.top) == ()


def test_the_metadata_lock_excludes_other_processes(repository: Repository) -> None:
    """Another real process that wants the lock gets it only after we let go."""
    code = (
        "import sys; from pathlib import Path; from isolation.repository import metadata_lock\n"
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
            nursery.start_soon(repository.call, "-c", alias, "slow")
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
            repository.dirty_paths(top)

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
