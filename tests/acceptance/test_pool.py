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
