"""Whole runs with a tracker: work items are created once, and named in the files that describe them."""

import json
import os
from pathlib import Path

import pytest

from tests.acceptance.program import run
from tests.conftest import git
from tests.forge.tracker.scenes import (
    STATE,
    TOKEN,
    Scripted,
    configure,
    ended_at_decompose,
    epics,
    planned_story,
    tasks,
    with_token,
)

LIMIT = 180.0
"""Loading the package takes seconds on a busy machine."""


@pytest.fixture
def jira(tmp_path: Path) -> Scripted:
    """Return a scripted Jira that nothing is configured for yet."""
    return Scripted(tmp_path / "jira")


def test_epics_and_tasks_become_work_items_once(repo: Path, jira: Scripted) -> None:
    """Found by its tools; what was made before the server died is found; files and references get the ids."""
    configure(work=jira.entry)
    jira.set("die-after-create")
    planned_story(repo)
    ran = run(repo, "--json", limit=LIMIT)
    assert "ended by itself with code 7" in ran.story("a")["reason"]
    assert run(repo, "decide", "a", "A").code == 0
    ran = run(repo, "resume", "--json", limit=LIMIT)
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
    assert not with_token(repo.parent, TOKEN, except_in=os.environ["HOME"]), (
        "no file of the run has the secret"
    )
    assert TOKEN not in ran.err + ran.out


def test_what_is_pending_is_created_later(repo: Path, jira: Scripted) -> None:
    """Without a tracker files are marked; `tracker sync` says what it would do, does it, and does it once."""
    planned_story(repo)
    ended_at_decompose(run(repo, "--json", limit=LIMIT))
    assert epics(repo).count("Tracker: pending") == 2
    assert "01_initial_structure.md" in tasks(repo)
    configure(work=jira.entry)
    tip = git(repo, "rev-parse", "autopilot/a")
    would = run(repo, "tracker", "sync", "--dry-run")
    assert would.code == 0, would.err
    assert "a: would create epic 'Storage' in the tracker\n" in would.out
    assert "a: would link task 'Tables' to what it waits for, task 'Initial structure'\n" in would.out
    assert (jira.items, git(repo, "rev-parse", "autopilot/a")) == ([], tip)
    done = run(repo, "tracker", "sync", "a", limit=LIMIT)
    assert done.code == 0, done.err
    assert [one["summary"] for one in jira.items] == [
        "Storage",
        "Shop window",
        "Initial structure",
        "Tables",
        "Pages",
    ]
    assert "Tracker: SHOP-5\n" in tasks(repo)["SHOP-5_pages.md"]
    assert "Tracker: SHOP-2\n" in epics(repo)
    again = run(repo, "tracker", "sync")
    assert (again.code, again.out) == (0, "nothing is pending\n")
    assert len(jira.items) == 5


def test_a_server_of_the_repository_is_not_started_before_the_user_agrees(
    repo: Path, jira: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its files name is a command of somebody else's; nothing at all runs without a yes."""
    monkeypatch.setenv("AUTOPILOT_MULTI_TRUST", "ask")
    (repo / ".mcp.json").write_text(json.dumps({"mcpServers": {"jira": jira.entry}}))
    planned_story(repo)
    assert run(repo, "trust").code == 1
    assert run(repo, "trust", "--yes").code == 0
    entry = {**jira.entry, "args": [*jira.entry["args"], "more"]}
    (repo / ".mcp.json").write_text(json.dumps({"mcpServers": {"jira": entry}}))
    git(repo, "commit", "-q", "-a", "-m", "another server")
    refused = run(repo)
    assert refused.code == 1
    assert "tracker: MCP server jira" in refused.err
    assert "plain_server.py more" in refused.err
    assert jira.calls == []
