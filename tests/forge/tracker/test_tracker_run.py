"""Whole runs with a tracker: work items are created once, and named in the files that describe them."""

from pathlib import Path

import pytest

from tests.acceptance.program import run
from tests.conftest import git
from tests.forge.tracker.scenes import (
    STATE,
    Scripted,
    configure,
    ended_at_decompose,
    epics,
    planned_story,
    tasks,
)


@pytest.fixture
def jira(tmp_path: Path) -> Scripted:
    """Return a scripted Jira that nothing is configured for yet."""
    return Scripted(tmp_path / "jira")


def test_epics_and_tasks_become_work_items_once(repo: Path, jira: Scripted) -> None:
    """Found by its tools; what was made before the server died is found; files and references get the ids."""
    configure(work=jira.entry)
    jira.set("die-after-create")
    planned_story(repo)
    ran = run(repo, "--json")
    assert "ended by itself with code 7" in ran.story("a")["reason"]
    assert run(repo, "decide", "a", "A").code == 0
    ran = run(repo, "resume", "--json")
    ended_at_decompose(ran)
    kinds = [(one["key"], one["type"], one["summary"]) for one in jira.items]
    assert kinds == [
        ("SHOP-1", "Epic", "Storage"),
        ("SHOP-2", "Epic", "Shop window"),
        ("SHOP-3", "Task", "Initial structure"),
        ("SHOP-4", "Task", "Tables"),
        ("SHOP-5", "Task", "Pages"),
    ]
    parents = [one.get("parent", {}).get("key") for one in jira.items[2:]]
    assert parents == ["SHOP-1", "SHOP-1", "SHOP-2"]
    blockers = [[link["inward_issue"]["key"] for link in one["issuelinks"]] for one in jira.items[2:]]
    assert blockers == [[], ["SHOP-3"], ["SHOP-3", "SHOP-4"]]
    found = tasks(repo)
    assert list(found) == [
        "SHOP-3_initial_structure.md",
        "SHOP-4_tables.md",
        "SHOP-5_pages.md",
        "dependencies.md",
    ]
    assert "Tracker: SHOP-4\n" in found["SHOP-4_tables.md"]
    assert "Dependencies: SHOP-3_initial_structure\n" in found["SHOP-4_tables.md"]
    assert "Dependencies: SHOP-3, SHOP-4_tables.md\n" in found["SHOP-5_pages.md"]
    assert found["dependencies.md"] == "Batch 1: SHOP-3_initial_structure.md\nBatch 2: SHOP-4, SHOP-5\n"
    assert "## Epic: Storage\n\nTracker: SHOP-1\n" in epics(repo)
    assert "tracker: jira" in git(repo, "show", f"autopilot/a:{STATE}")
