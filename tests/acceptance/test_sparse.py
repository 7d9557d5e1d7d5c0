"""Sparse worktrees through the real program: a story sees only some folders, and commits like any other."""

from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git

SEEN = "find . -type f -not -path './.git*' -not -path './.orchestrator/*' | sort"


@pytest.fixture
def packages(repo: Path) -> Path:
    """Return a repository with three packages and a folder that two of them need."""
    for name in ("a", "b", "c", "common/inner"):
        folder = repo / "packages" / name
        folder.mkdir(parents=True)
        (folder / "code.txt").write_text(f"{name}\n")
    (repo / "tools").mkdir()
    (repo / "tools" / "run").write_text("x\n")
    return repo


def _seen(repo: Path, story: str) -> set[str]:
    lines = git(repo, "show", f"autopilot/{story}:packages/{story}/seen.txt").split()
    return {line.removeprefix("./") for line in lines if not line.endswith("seen.txt")}


def test_a_story_sees_the_folders_that_it_owns_and_those_of_all(packages: Path) -> None:
    """Commits hold all files; verify, another try, landing and removal work; the main checkout stays full."""
    repo, root = packages, packages.parent / f"{packages.name}.worktrees"
    look = "mkdir -p packages/{0}; " + SEEN + " > packages/{0}/seen.txt"
    outside = "mkdir -p tools/more; echo new > tools/more/x; echo changed > tools/run"
    write_story(repo, "a", owns=["packages/a/**", "tools/**"], command=f"{look.format('a')}; {outside}")
    write_story(repo, "b", owns=["packages/b/*.txt"], command=look.format("b"), verify=["test -e tools/run"])
    write_story(repo, "c", command=look.format("c"))
    failing = "cd $(git rev-parse --git-dir) && { test -e again || { touch again; exit 1; }; } && cd - "
    write_story(repo, "d", owns=["README.md"], command=f"{failing} && ls > README.md", max_attempts=1)
    commit_stories(repo)
    before = git(repo, "ls-files", "-v")
    settings = (
        "--sparse=owns",
        "--sparse-paths=packages/common/",
        "--sparse-paths=packages/none",
        "--pool=2",
    )
    notes = run(repo, "plan", *settings).err
    assert "sparse-paths: packages/none is not in HEAD" in notes
    assert "sparse owns: c gets a full worktree" in notes
    ran = run(repo, "run", *settings, "--verify-in=clean", "--json")
    status = {story["id"]: story["status"] for story in ran.data["stories"]}
    assert status == {"a": "done", "b": "done", "c": "done", "d": "failed"}
    top = {"README.md"}
    common = {"packages/common/inner/code.txt"}
    assert _seen(repo, "a") == {*top, *common, "packages/a/code.txt", "tools/run"}
    assert _seen(repo, "b") == {*top, *common, "packages/b/code.txt"}
    assert "packages/a/code.txt" in _seen(repo, "c")
    # Nothing that a tree leaves out is deleted by its commit.
    assert git(repo, "diff", "--name-status", "--no-renames", "main", "autopilot/a").split("\n")[:-1] == [
        "A\tpackages/a/seen.txt",
        "A\ttools/more/x",
        "M\ttools/run",
    ]
    assert (git(repo, "ls-files", "-v"), git(repo, "status", "--porcelain")) == (before, "")
    # The tree of the failed story is as sparse as before when it is tried again, and no spare is sparse.
    there = {path.name for path in (root / "d").iterdir()} - {".orchestrator"}
    assert there == {".git", "README.md", "packages"}
    assert not any(
        "sparse" in path.read_text() for path in repo.glob(".git/worktrees/*spare*/config.worktree")
    )
    again = run(repo, "run", *settings, "--retry-failed", "--json")
    assert again.code == 0, again.err
    assert "packages" in git(repo, "show", "autopilot/d:README.md")
    assert run(repo, "land", "--json").code == 0
    assert git(repo, "show", "main:tools/run") == "changed\n"
    assert not [path for path in root.glob("*") if path.name in "abcd"]


def test_what_cannot_be_sparse_says_so(packages: Path) -> None:
    """A story may write what its tree leaves out; a shared tree is never sparse, a bare one cannot be."""
    repo = packages
    command = f"{SEEN} > packages/a/seen.txt; mkdir tools; echo changed > tools/run; echo new > tools/new"
    write_story(repo, "a", command=command)
    commit_stories(repo)
    assert run(repo, "run", "--sparse-paths=packages/a").code == 0
    assert _seen(repo, "a") == {"README.md", "packages/a/code.txt"}
    assert git(
        repo, "diff", "--name-status", "--no-renames", "main", "autopilot/a", "--", "tools"
    ).split() == [
        *("A", "tools/new"),
        *("M", "tools/run"),
    ]
    shared = ("--bg-isolation=none", "--sparse-paths=packages", "--max-stories=1")
    assert "they change nothing in a shared tree" in run(repo, "plan", *shared).err
    git(repo.parent, "clone", "-q", "--bare", str(repo), "bare.git")
    git(repo.parent / "bare.git", "worktree", "add", "-q", str(repo.parent / "linked"), "main")
    refused = run(repo.parent / "linked", "run", "--sparse-paths=packages", "--json")
    assert refused.code == 1
    assert "cannot be sparse" in refused.document["error"]["message"]
