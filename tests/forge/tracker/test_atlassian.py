"""The real MCP server for Jira, mcp-atlassian, against a scripted Jira: Plan and Decompose of a flow."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import run, started
from tests.conftest import git
from tests.forge.tracker.jira_service import TOKEN, Jira, serving
from tests.forge.tracker.scenes import (
    STATE,
    configure,
    ended_at_decompose,
    epics,
    planned_story,
    tasks,
    with_token,
)

PROGRAM = Path(sys.prefix, "forge-tools/atlassian/bin/mcp-atlassian")
LIMIT = 300.0
ALL = [
    ("SHOP-1", "Epic", "Storage"),
    ("SHOP-2", "Epic", "Shop window"),
    ("SHOP-3", "Task", "Initial structure"),
    ("SHOP-4", "Task", "Tables"),
    ("SHOP-5", "Task", "Pages"),
]

pytestmark = [
    pytest.mark.forge,
    pytest.mark.skipif(not PROGRAM.exists(), reason="`make forge-tools` installs mcp-atlassian"),
]


@pytest.fixture
def jira() -> Iterator[Jira]:
    """Yield a scripted Jira that the user's own server is configured for."""
    with serving() as (service, url):
        env = {"JIRA_URL": url, "JIRA_PERSONAL_TOKEN": TOKEN}
        configure(atlassian={"command": str(PROGRAM), "env": env})
        yield service


def everything_once(repo: Path, jira: Jira) -> None:
    """Require that each work item and each link exists once, and that the files name them."""
    assert jira.created == ALL
    assert jira.requests.count("POST /rest/api/2/issue") == len(ALL)
    assert jira.epics == {"SHOP-3": "SHOP-1", "SHOP-4": "SHOP-1", "SHOP-5": "SHOP-2"}
    assert jira.blockers == [("SHOP-4", "SHOP-3"), ("SHOP-5", "SHOP-3"), ("SHOP-5", "SHOP-4")]
    found = tasks(repo)
    assert list(found) == [
        "SHOP-3_initial_structure.md",
        "SHOP-4_tables.md",
        "SHOP-5_pages.md",
        "dependencies.md",
    ]
    assert "Dependencies: SHOP-3, SHOP-4_tables.md\n" in found["SHOP-5_pages.md"]
    assert [line for line in epics(repo).splitlines() if "Tracker" in line] == [
        "Tracker: SHOP-1",
        "Tracker: SHOP-2",
    ]
    home = os.environ["HOME"]
    assert not with_token(repo.parent, TOKEN, except_in=home), "no file of the run has the secret"


def test_work_items_are_created_once_although_the_run_is_killed(repo: Path, jira: Jira) -> None:
    """Killed twice while Jira holds its answer: an epic and a task exist that nobody was told of."""
    planned_story(repo)
    for number, summary in enumerate(("Shop window", "Tables")):
        jira.hold(summary)
        with started(repo, *(["resume"] if number else [])) as program:
            assert jira.held.wait(LIMIT), program.err
            program.send(signal.SIGKILL)
            program.finish()
        jira.go_on.set()
    ran = run(repo, "resume", "--json", limit=LIMIT)
    ended_at_decompose(ran)
    everything_once(repo, jira)
    assert "tracker: jira" in git(repo, "show", f"autopilot/a:{STATE}")


def test_denied_retried_skipped_and_synced_later(repo: Path, jira: Jira) -> None:
    """The gate asks before Plan; without the tracker files are pending, until `tracker sync` creates all."""
    jira.denied = True
    planned_story(repo)
    ran = run(repo, "--json", limit=LIMIT)
    assert ran.story("a")["step"]["name"] == "Plan"
    assert "Tracker authentication failed" in ran.story("a")["reason"]
    assert "Authentication failed for Jira API (401)" in ran.err
    assert run(repo, "decide", "a", "A").code == 0
    ran = run(repo, "resume", "--json", limit=LIMIT)
    assert "Tracker authentication failed" in ran.story("a")["reason"], "retried, and denied again"
    assert run(repo, "decide", "a", "B").code == 0
    ended_at_decompose(run(repo, "resume", "--json", limit=LIMIT))
    assert "tracker: local" in git(repo, "show", f"autopilot/a:{STATE}")
    assert epics(repo).count("Tracker: pending") == 2
    assert "Tracker: pending" in tasks(repo)["02_tables.md"]
    denied = run(repo, "tracker", "sync", limit=LIMIT)
    assert denied.code == 1
    assert "Authentication failed for Jira API (401)" in denied.err
    assert jira.created == []
    jira.denied = False
    would = run(repo, "tracker", "sync", "--dry-run")
    assert "a: would create task 'Pages' in Jira" in would.out
    assert jira.created == []
    done = run(repo, "tracker", "sync", limit=LIMIT)
    assert done.code == 0, done.err
    everything_once(repo, jira)


def test_access_that_is_granted_after_a_retry_continues(repo: Path, jira: Jira) -> None:
    """The answer A asks the tracker again, and the step runs."""
    jira.denied = True
    planned_story(repo)
    assert "Tracker authentication failed" in run(repo, "--json", limit=LIMIT).story("a")["reason"]
    jira.denied = False
    assert run(repo, "decide", "a", "A").code == 0
    ended_at_decompose(run(repo, "resume", "--json", limit=LIMIT))
    everything_once(repo, jira)
