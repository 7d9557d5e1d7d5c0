"""`land`: from the branches of done stories to one verified main, by the real program."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.landing_project import six_stories
from tests.acceptance.program import run
from tests.conftest import git


def tree_of(repo: Path, name: str) -> str:
    return git(repo, "rev-parse", f"{name}^{{tree}}").strip()


def tip_of(repo: Path, name: str = "main") -> str:
    return git(repo, "rev-parse", name).strip()


def test_six_stories_end_in_a_green_main(make_repository: Callable[..., Path]) -> None:
    """All that can be there is on main and green; the conflict and the pair that is red are named."""
    repo = six_stories(make_repository)
    ran = run(repo, "--max-stories=3", "--json")
    assert ran.code == 0, ran.err
    before = tip_of(repo)
    (repo / "notes.txt").write_text("mine\n")
    shown = run(repo, "land", "--dry-run")
    assert shown.code == 0, shown.err
    assert all(story in shown.out for story in ("a-search", "d-invoice", "f-docs"))
    assert tip_of(repo) == before

    landed = run(repo, "land", "--json")
    assert landed.code == 4, landed.err
    data = landed.data
    assert set(data["landed"]) == {"a-search", "c-vat", "e-label", "f-docs"}
    left = {each["id"]: each for each in data["not_landed"]}
    assert set(left) == {"b-mail", "d-invoice"}
    assert (left["b-mail"]["why"], left["b-mail"]["with"]) == ("conflict", ["a-search"])
    assert left["b-mail"]["files"] == ["CHANGELOG.md"]
    assert (left["d-invoice"]["why"], left["d-invoice"]["with"]) == ("red-together", ["c-vat"])
    assert any("ImportError" in line for line in left["d-invoice"]["output"])
    assert data["before"] == before
    assert tip_of(repo) == data["after"]
    assert tree_of(repo, "main") == data["tree"]
    green = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "-q"], cwd=repo, check=False, capture_output=True
    )
    assert green.returncode == 0, green.stderr
    assert (repo / "README.md").read_text() == "# Shop\n"
    assert git(repo, "status", "--porcelain").strip() == "?? notes.txt"
    message = git(repo, "log", "-1", "--format=%B")
    assert f"Autopilot-Landing: {data['landing_id']}" in message
    assert "Autopilot-Story: " in message
    assert tip_of(repo, f"refs/autopilot/landed/{data['landing_id']}") == before
    assert tip_of(repo, "autopilot/d-invoice")

    status = run(repo, "status", "--json")
    assert status.story("a-search")["merged"] == "main"
    again = run(repo, "land")
    assert again.code == 3
    assert "not landed: d-invoice: red together with c-vat" in again.out or "with it on main" in again.out
    undone = run(repo, "undo", "--yes")
    assert undone.code == 0, undone.err
    assert tip_of(repo) == before
    assert git(repo, "status", "--porcelain").strip() == "?? notes.txt"
    assert run(repo, "status", "--json").story("a-search")["merged"] is None
