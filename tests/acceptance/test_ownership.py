"""`--deconflict-paths` in the real program: proven before anything starts, and checked afterwards."""

from pathlib import Path

import pytest

from tests.acceptance.program import Ran, commit_stories, run, write_story, writes
from tests.conftest import git

SHARED = ("--bg-isolation", "none", "--max-stories", "2")


@pytest.fixture
def backlog(repo: Path) -> Path:
    """Return two stories; only the first says what it owns."""
    write_story(repo, "auth", owns=["packages/auth/**"], command=writes("auth.txt"))
    write_story(repo, "billing", command=writes("billing.txt"))
    commit_stories(repo)
    return repo


def _nothing_started(repo: Path) -> bool:
    beside = repo.parent / f"{repo.name}.worktrees"
    branches = git(repo, "branch", "--list", "autopilot/*")
    return not branches and not beside.exists() and not (repo / ".git" / "autopilot").exists()


def _refused(ran: Ran, repo: Path) -> str:
    assert ran.code == 1
    assert ran.document["error"]["hint"]
    assert _nothing_started(repo)
    message: str = ran.document["error"]["message"]
    return message


def test_one_tree_without_specs_is_refused(backlog: Path) -> None:
    """Acceptance 16: `none`, two stories, no `--deconflict-paths`: exit 1, and nothing was started."""
    ran = run(backlog, "run", *SHARED, "--json")
    assert "needs --deconflict-paths" in _refused(ran, backlog)
    assert ran.document["error"]["code"] == "settings"


@pytest.mark.parametrize("command", ["plan", "run"])
def test_overlapping_claims_are_refused_with_a_witness(backlog: Path, command: str) -> None:
    """Acceptance 17: the witness path, both stories and both globs, and what to do."""
    ran = run(backlog, command, *SHARED, "--deconflict-paths=billing=packages/*/api/**", "--json")
    message = _refused(ran, backlog)
    assert ran.document["error"]["code"] == "claim"
    for word in ("auth", "billing", "packages/auth/api", "'packages/auth/**'", "'packages/*/api/**'"):
        assert word in message
    assert "narrow" in ran.document["error"]["hint"]


def test_a_story_without_a_claim_is_named(backlog: Path) -> None:
    """In one tree nobody works without a claim."""
    ran = run(backlog, "plan", *SHARED, "--deconflict-paths", "packages/**", "--json")
    assert "story billing owns no paths" in _refused(ran, backlog)


def test_a_claim_outside_the_fence_is_refused(backlog: Path) -> None:
    """A fence around all claims finds the one that leaves it."""
    flags = ("--deconflict-paths", "packages/**", "--deconflict-paths", "billing=ci/**")
    message = _refused(run(backlog, "plan", *SHARED, *flags, "--json"), backlog)
    assert message == "story billing owns ci by 'ci/**', outside of packages/**"


def test_the_nearest_story_is_suggested(backlog: Path) -> None:
    """A claim for a story that is not there names the one that was meant."""
    ran = run(backlog, "plan", "--deconflict-paths", "biling=ci/**", "--json")
    assert "'biling'" in _refused(ran, backlog)
    assert "did you mean 'billing'?" in ran.document["error"]["hint"]


def test_a_plan_for_one_tree_shows_the_claims_and_their_proof(backlog: Path) -> None:
    """The plan says who owns what, and that it is proven."""
    specs = '["packages/**", "packages/{id}/**", "!packages/{id}/dist/"]'
    (backlog / "autopilot-multi.toml").write_text(
        f'bg-isolation = "none"\nenforce = "detect"\ndeconflict-paths = {specs}\n'
    )
    ran = run(backlog, "plan")
    assert ran.code == 0
    assert "claims proven disjoint, within packages/**" in ran.out
    assert "owns packages/billing/** !packages/billing/dist/" in ran.out
    data = run(backlog, "plan", "--json").data
    assert (data["disjoint"], data["fence"], data["isolation"]) == (True, ["packages/**"], "none")
    assert data["enforcement"] == "detect"
    assert _nothing_started(backlog)


def test_the_case_of_letters_does_not_tell_claims_apart_where_files_cannot(backlog: Path) -> None:
    """Where `.GIT` and `.git` are one file, so are `Docs` and `docs`."""
    flags = ("--deconflict-paths", "auth=Docs/**", "--deconflict-paths", "billing=docs/x")
    assert run(backlog, "plan", *SHARED, *flags).code == 0
    (backlog / ".GIT").symlink_to(".git")
    assert "both own docs/x" in _refused(run(backlog, "plan", *SHARED, *flags, "--json"), backlog)


def test_a_claim_from_the_command_line_is_checked_like_owns(backlog: Path) -> None:
    """Acceptance 19: in worktrees a named claim or a pattern holds a story, and the path is named."""
    script = "mkdir -p packages/billing && echo x > packages/billing/a && echo y > stray.txt"
    write_story(backlog, "billing", command=script)
    write_story(backlog, "auth", owns=["nowhere/**"], command=writes("auth.txt"))
    flags = ("--deconflict-paths", "packages/{id}/**", "--deconflict-paths", "auth=*.txt")
    ran = run(backlog, *flags, "--json")
    assert ran.code == 4
    assert ran.story("auth")["status"] == "done"
    assert ran.story("billing")["status"] == "failed"
    assert "stray.txt" in ran.story("billing")["reason"]
    assert "packages/billing/a" not in ran.story("billing")["reason"]


def test_an_overlap_in_worktrees_is_only_said(backlog: Path) -> None:
    """Stories in worktrees may own the same paths; the plan warns that they may conflict."""
    ran = run(backlog, "plan", "--deconflict-paths", "billing=packages/*/api/**", "--json")
    assert ran.code == 0
    assert ran.data["disjoint"] is False
    assert "both own packages/auth/api" in ran.err
    assert "conflict when merged" in ran.err
