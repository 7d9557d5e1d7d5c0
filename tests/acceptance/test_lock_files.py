"""Lock files: what no story owns gets a last story, and a tracked file is never open to all of them."""

from pathlib import Path

from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git

PACKAGES = ("auth", "billing", "web")


def monorepo(repo: Path) -> None:
    """Make three packages with one lock file, and a story for each of them."""
    for name in PACKAGES:
        package = repo / "packages" / name
        package.mkdir(parents=True)
        (package / "version").write_text("1\n")
        write_story(
            repo, name, owns=[f"packages/{name}/**"], command=f"echo {name} 2 > packages/{name}/version"
        )
    (repo / "package-lock.json").write_text("1\n1\n1\n")
    (repo / "packages" / "web" / "Cargo.lock").write_text("")
    commit_stories(repo)


def test_plan_offers_the_story_that_makes_one_branch_of_everything(repo: Path) -> None:
    """The offered text is a story as it is; with it, the last branch holds all changes and the lock file."""
    monorepo(repo)
    offered = run(repo, "plan").err
    assert "no story owns package-lock.json" in offered
    assert "Cargo.lock" not in offered, "the story of its package owns it"
    text = offered.partition("lock-file.md:\n")[2]
    assert "command: npm install --package-lock-only\n" in text
    assert "depends_on: [auth, billing, web]" in text
    story = text.replace("npm install --package-lock-only", "cat packages/*/version > package-lock.json")
    (repo / "stories" / "lock-file.md").write_text(story.partition("# Update the lock file")[0] + "# Lock\n")
    commit_stories(repo)
    assert "no story owns" not in run(repo, "plan").err
    ran = run(repo, "--json")
    assert ran.code == 0, ran.err
    assert git(repo, "show", "autopilot/lock-file:package-lock.json") == "auth 2\nbilling 2\nweb 2\n"
    for name in PACKAGES:
        git(repo, "merge-base", "--is-ancestor", f"autopilot/{name}", "autopilot/lock-file")


def test_a_tracked_file_is_not_open_to_all_stories_of_a_shared_tree(repo: Path) -> None:
    """It is refused before anything starts; one that only the default opens is warned of; one story may."""
    monorepo(repo)
    (repo / "node_modules").mkdir()
    (repo / "node_modules" / "kept.js").write_text("")
    settings = repo / "autopilot-multi.toml"
    shared = 'bg-isolation = "none"\nenforce = "detect"\ndeconflict-paths = ["packages/{id}/**"]\n'
    settings.write_text(shared + 'shared-writable = ["package-lock.json", "**/.turbo/**"]\n')
    git(repo, "add", "-A", "-f")
    git(repo, "commit", "-q", "-m", "settings")
    refused = run(repo, "--json")
    assert refused.code == 1
    assert (
        "shared-writable contains tracked files: package-lock.json;" in refused.document["error"]["message"]
    )
    assert "depends on all others" in refused.document["error"]["hint"]
    assert run(repo, "plan", "--max-stories=1").code == 0
    settings.write_text(shared)
    warned = run(repo, "plan")
    assert warned.code == 0, warned.err
    assert "shared-writable contains tracked files: node_modules/kept.js" in warned.err
