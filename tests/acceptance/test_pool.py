"""The pool of worktrees through the real program: what one run leaves, the next one starts with."""

from pathlib import Path

from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git

WHERE = "git rev-parse --git-dir > where.txt"


def test_the_second_run_starts_with_the_trees_of_the_first(repo: Path) -> None:
    """Finished worktrees wait as spares, are shown, claimed by the next run's stories, and emptied by gc."""
    root = repo.parent / f"{repo.name}.worktrees"
    (repo / ".gitignore").write_text("*.o\n")
    write_story(repo, "one", command="echo x > x.txt; echo x > junk.o")
    write_story(repo, "two", command="echo broken > README.md; exit 1", max_attempts=1)
    commit_stories(repo)
    run(repo, "--pool=1")
    assert (root / "two").is_dir()  # a story that failed keeps its tree
    assert not (root / "one").exists()
    (spare,) = root.glob("_spare-*")
    kept = Path((spare / ".git").read_text().strip()).name  # its part of the git directory
    assert run(repo, "status").out.splitlines()[-1] == "1 spare worktree ready for stories"
    assert run(repo, "status", "--json").data["spare_worktrees"] == 1
    checks = {each["name"]: each for each in run(repo, "doctor", "--json").data["checks"]}
    assert checks["pool"]["detail"].startswith("1 spare worktree ready for stories")
    listed = git(repo, "worktree", "list", "--verbose")
    assert "a spare worktree, ready for a story" in listed

    write_story(repo, "three", command=f"ls -a > seen.txt; {WHERE}")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "three")
    assert run(repo, "three", "--pool=1").code == 0
    assert Path(git(repo, "show", "autopilot/three:where.txt").strip()).name == kept
    seen = git(repo, "show", "autopilot/three:seen.txt").split()
    assert sorted(set(seen) - {".", "..", "seen.txt", ".orchestrator"}) == sorted(
        {".git", ".gitignore", "README.md", "stories"}
    )
    assert not spare.exists()
    assert len(list(root.glob("_spare-*"))) == 1
    removed = run(repo, "gc", "--apply", "--json").data["worktrees"]
    assert [row["verdict"] for row in removed if "_spare-" in row["path"]] == ["removed"]
    assert not list(root.glob("_spare-*"))
    assert "spare" not in run(repo, "status").out


def test_the_first_story_of_a_run_without_spares_gets_the_tree_that_was_begun_early(repo: Path) -> None:
    """It was checked out while the program loaded; nothing is left of that but the story's worktree."""
    root = repo.parent / f"{repo.name}.worktrees"
    write_story(repo, "one", command=f"{WHERE}; exit 1", max_attempts=1)
    commit_stories(repo)
    run(repo, "--pool=1", real_start=True)
    assert not list(root.glob("_spare-*"))
    where = (root / "one" / "where.txt").read_text().strip()
    assert Path(where).name.startswith("_spare-")
    assert git(root / "one", "status", "--porcelain") == "?? where.txt\n"


_PREPARED = """
for i in $(seq 600); do
  grep -qs 'prepared":"[0-9a-f]' "$(git rev-parse --git-common-dir)"/autopilot/pool/*.seal && break
  sleep 0.1
done
"""


def _prepare_ahead(repo: Path, *, hook: str = "true", changes: str = "true") -> None:
    """Two stories in turn: while the first one works, the hook runs in the spare that the second one gets."""
    (repo / ".gitignore").write_text("modules/\n")
    (repo / "package-lock.json").write_text("{}\n")
    (repo / "autopilot-multi.toml").write_text(
        'pool = 2\nmax-stories = 1\nprepare = "pool"\n[hooks]\n'
        f'after_create = "mkdir -p modules; echo $AUTOPILOT_STORY_ID $(pwd) >> modules/ran; {hook}"\n'
    )
    write_story(repo, "a", command=f"cp modules/ran ran-a; {changes}\n{_PREPARED}")
    write_story(repo, "b", command="cp modules/ran ran-b", depends_on=["a"])
    commit_stories(repo)
    assert run(repo).code == 0


def test_the_hook_runs_ahead_in_a_spare(repo: Path) -> None:
    """The second story finds what the hook made, at the path that it sees; the hook does not run again."""
    _prepare_ahead(repo)
    assert git(repo, "show", "autopilot/a:ran-a").split() == ["a", str(repo)]
    assert git(repo, "show", "autopilot/b:ran-b").split() == ["_pool", str(repo)]


def test_a_changed_lock_file_runs_the_hook_again(repo: Path) -> None:
    """It runs in the tree of the story then, after it has run in the spare."""
    _prepare_ahead(repo, changes="echo '{1}' > package-lock.json")
    ran = git(repo, "show", "autopilot/b:ran-b").splitlines()
    assert [line.split()[0] for line in ran] == ["_pool", "b"]
