"""Azure DevOps by the tools of @azure-devops/mcp: the recorded list is that of the package."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.forge.tracker import ado, jira
from tests.acceptance.program import run
from tests.conftest import git
from tests.forge.tracker.scenes import (
    PACKAGE,
    STATE,
    Scripted,
    configure,
    ended_at_decompose,
    planned_story,
    tasks,
)

TOOLS = Path(sys.prefix, "forge-tools")
HERE = Path(__file__).parent
PRELOAD = """
const Module = require("module"), load = Module._load;
Module._load = function (name, ...rest) {
  return name.endsWith("keytar.node") ? {} : load.call(this, name, ...rest);
};
"""
"""Without install scripts the module of the system's key ring is not built; listing tools needs none."""


def recorded(file: str) -> dict[str, object]:
    """Read a recorded list of tools."""
    found: dict[str, object] = json.loads((HERE / file).read_text())
    return found


@pytest.mark.parametrize(
    ("file", "used"), [("azure_devops_tools.json", ado.TOOLS), ("atlassian_tools.json", jira.TOOLS)]
)
def test_the_tools_that_are_used_are_tools_of_the_real_server(file: str, used: frozenset[str]) -> None:
    """By the list that was recorded from the package."""
    names = recorded(file)["names"]
    assert isinstance(names, list)
    assert used <= set(names)


def listed(command: list[str], env: dict[str, str]) -> dict[str, object]:
    """Ask a real server for its tools."""
    messages: list[dict[str, Any]] = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-03-26",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list", "params": {}},
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **env},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(text.encode())
        server.stdin.flush()
        server.stdout.readline()
        answer = json.loads(server.stdout.readline())
        server.kill()
    return {tool["name"]: tool["inputSchema"] for tool in answer["result"]["tools"]}


def shape(schema: Any) -> Any:
    """Return what a schema demands; the order of words in descriptions and defaults differs at each start."""
    if isinstance(schema, dict):
        said = {"description", "default", "$schema"}
        return {key: shape(value) for key, value in schema.items() if key not in said}
    return [shape(one) for one in schema] if isinstance(schema, list) else schema


@pytest.mark.forge
def test_the_recorded_tools_are_those_of_the_packages(tmp_path: Path) -> None:
    """Names of all, and the schemas of those that are used."""
    index = TOOLS / "node_modules/@azure-devops/mcp/dist/index.js"
    program = TOOLS / "atlassian/bin/mcp-atlassian"
    if not index.exists() or not program.exists() or shutil.which("node") is None:
        pytest.skip("`make forge-tools` installs the servers")
    preload = tmp_path / "preload.cjs"
    preload.write_text(PRELOAD)
    node = ["node", "-r", str(preload), str(index), "contoso", "--authentication", "envvar"]
    real = {
        "azure_devops_tools.json": listed(node, {"ADO_MCP_AUTH_TOKEN": "x"}),
        "atlassian_tools.json": listed(
            [str(program)], {"JIRA_URL": "http://127.0.0.1:9", "JIRA_PERSONAL_TOKEN": "0123456789"}
        ),
    }
    for file, tools in real.items():
        kept = recorded(file)
        assert kept["names"] == sorted(tools)
        assert isinstance(kept["tools"], list)
        for tool in kept["tools"]:
            assert shape(tool["inputSchema"]) == shape(tools[tool["name"]]), (file, tool["name"])


@pytest.mark.forge
def test_epics_and_tasks_become_work_items_of_azure_devops(repo: Path, tmp_path: Path) -> None:
    """Through a server that checks every argument by the real schemas; ids are numbers there."""
    scripted = Scripted(tmp_path / "ado", "ado", program=PACKAGE)
    configure(boards=scripted.entry)
    planned_story(repo)
    ran = run(repo, "--json", limit=300)
    ended_at_decompose(ran)
    made = [(one["id"], one["type"], one["fields"]["System.Title"]) for one in scripted.items]
    assert made == [
        (4711, "Epic", "Storage"),
        (4712, "Epic", "Shop window"),
        (4713, "Task", "Initial structure"),
        (4714, "Task", "Tables"),
        (4715, "Task", "Pages"),
    ]
    links = [
        [(link["rel"].rpartition(".")[2], int(link["url"].rpartition("/")[2])) for link in one["relations"]]
        for one in scripted.items
    ]
    parent, before = "Hierarchy-Reverse", "Dependency-Reverse"
    assert links == [
        [],
        [],
        [(parent, 4711)],
        [(parent, 4711), (before, 4713)],
        [(parent, 4712), (before, 4713), (before, 4714)],
    ]
    assert "Tracker: 4714\n" in tasks(repo)["4714_tables.md"]
    assert "tracker: ado" in git(repo, "show", f"autopilot/a:{STATE}")


@pytest.mark.forge
def test_two_trackers_are_asked_about_and_the_answer_counts(repo: Path, tmp_path: Path) -> None:
    """Both are recognized by their tools; the chosen one is recorded, the other gets nothing."""
    jira_one, ado_one = Scripted(tmp_path / "jira"), Scripted(tmp_path / "ado", "ado")
    configure(one=jira_one.entry, two=ado_one.entry)
    planned_story(repo)
    ran = run(repo, "--json", limit=300)
    assert "Two work item trackers are configured" in ran.story("a")["reason"]
    assert run(repo, "decide", "a", "B").code == 0
    ended_at_decompose(run(repo, "resume", "--json", limit=300))
    assert "tracker: ado" in git(repo, "show", f"autopilot/a:{STATE}")
    assert (len(jira_one.items), len(ado_one.items)) == (0, 5)
