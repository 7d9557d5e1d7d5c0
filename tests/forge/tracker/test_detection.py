"""Which MCP servers are configured, which trackers they suggest, and what only the user may start."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from isolation.git.repository import Repository
from runner.core.choose import render
from runner.core.errors import SettingsError
from runner.core.model import Story, StoryId
from runner.core.settings import Settings
from runner.core.work_items.tracker import Tracker
from runner.forge.tracker.errors import TrackerError
from runner.forge.tracker.servers import McpServer, load_servers, server_demands
from runner.story.flow.tracker_gate import by_words, detected, settled, work_item_note
from tests.conftest import git


def _commit(repo: Path, file: str, text: str) -> None:
    path = repo / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", file)


def _servers(key: str = "mcpServers", **servers: Mapping[str, object]) -> str:
    return json.dumps({key: servers})


def _load(repo: Path, setting: str = "") -> list[McpServer]:
    return list(load_servers(Repository.open(repo), "HEAD", setting=setting, environ=os.environ).servers)


@pytest.mark.parametrize(
    ("file", "key", "server", "found"),
    [
        (".mcp.json", "mcpServers", "user-Jira-MCP-Server", Tracker.JIRA),
        (".cursor/mcp.json", "mcpServers", "Jira-MCP-Server", Tracker.JIRA),
        (".vscode/mcp.json", "servers", "user-AzureDevops", Tracker.ADO),
        ("mcp.json", "mcpServers", "azuredevops", Tracker.ADO),
        (".mcp.json", "mcpServers", "atlassian", Tracker.JIRA),
        (".mcp.json", "mcpServers", "other", Tracker.LOCAL),
    ],
)
def test_names_suggest_a_tracker_before_any_server_is_started(
    repo: Path, file: str, key: str, server: str, found: Tracker
) -> None:
    """That is what a plan foresees; nothing else is a tracker."""
    _commit(repo, file, _servers(key, github={"command": "x"}, **{server: {"command": "x"}}))
    servers = load_servers(Repository.open(repo), "HEAD", setting="", environ=os.environ)
    detection = by_words(servers)
    assert (detection.name, detection.question) == (found, None)


def test_the_files_of_the_repository_are_those_of_the_commit(repo: Path) -> None:
    """What a session writes into its tree starts nothing."""
    (repo / ".mcp.json").write_text(_servers(jira={"command": "evil"}))
    assert _load(repo) == []


def test_the_users_own_files_are_read_and_their_variables_expanded(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of agents and editors, and a project's own entry; what an editor would ask for is a problem."""
    monkeypatch.setenv("JIRA_TOKEN", "planted-token-value")
    home = Path(os.environ["HOME"])
    (home / ".claude.json").write_text(
        json.dumps(
            {
                "mcpServers": {"a": {"command": "x", "args": ["-t", "${NOT_SET:-7}"]}},
                "projects": {str(repo): {"mcpServers": {"b": {"url": "https://x/mcp"}}}},
            }
        )
    )
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text(
        _servers(
            c={"command": "x", "env": {"T": "${env:JIRA_TOKEN}"}},
            d={"command": "${NOT_SET}"},
            e={"command": "x", "args": ["${input:token}"]},
        )
    )
    b, a, c, d, e = _load(repo)
    assert (a.command, b.url, b.of_repository) == (("x", "-t", "7"), "https://x/mcp", False)
    assert c.environment == {"T": "planted-token-value"}
    assert "planted-token-value" in c.secrets
    assert "NOT_SET" in d.problem
    assert "input:token" in e.problem


def test_a_setting_names_a_server_a_command_or_an_address(repo: Path) -> None:
    """A name that is configured is that server, and no other is looked at."""
    _commit(repo, ".mcp.json", _servers(work={"command": "x"}, other={"command": "y"}))
    assert [one.command for one in _load(repo, "work")] == [("x",)]
    assert [one.command for one in _load(repo, "uvx mcp-atlassian --read")] == [
        ("uvx", "mcp-atlassian", "--read")
    ]
    assert [one.url for one in _load(repo, "https://x/mcp")] == ["https://x/mcp"]
    assert "cannot be read" in _load(repo, "uvx '")[0].problem


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": []}', '{"mcpServers": {"x": 1}}', "\x00"])
def test_a_file_that_cannot_be_read_hides_no_other(repo: Path, text: str) -> None:
    """The user is told if it is broken, and the rest is looked at."""
    _commit(repo, ".mcp.json", text)
    _commit(repo, "mcp.json", _servers(azuredevops={"command": "x"}))
    found = load_servers(Repository.open(repo), "HEAD", setting="", environ=os.environ)
    assert by_words(found).name is Tracker.ADO
    assert bool(found.notes) == (text in {"{", "\x00"})


def test_two_trackers_are_a_question() -> None:
    """In the Choose form, and each letter stands for one of them."""
    ado = McpServer(name="user-AzureDevops", where=".mcp.json")
    jira = McpServer(name="user-Jira-MCP-Server", where="mcp.json")
    detection = detected({Tracker.ADO: ado, Tracker.JIRA: jira}, ())
    assert detection.name is None
    assert detection.question is not None
    assert detection.choices == {"A": Tracker.JIRA, "B": Tracker.ADO}
    assert "A) Jira (mcp.json names user-Jira-MCP-Server)" in render(detection.question)
    assert detection.question.recommendation == "B"


def test_what_is_set_or_recorded_is_not_asked_again() -> None:
    """The setting decides over the state file, the state file over what is configured."""
    assert settled("", "") is None
    for setting, recorded, name in (("", "ado", Tracker.ADO), ("Local", "ado", Tracker.LOCAL)):
        found = settled(setting, recorded)
        assert found is not None
        assert found.name is name
    with pytest.raises(SettingsError, match="the settings name the tracker 'jra'") as caught:
        settled("jra", "")
    assert "did you mean 'jira'?" in caught.value.hint


def test_what_the_repository_would_start_is_a_demand_without_its_secrets(repo: Path) -> None:
    """A changed variable is another demand, though its value is not shown."""
    _commit(repo, ".mcp.json", _servers(j={"command": "npx", "args": ["x y"], "env": {"T": "one"}}))
    first = list(server_demands(Repository.open(repo), "HEAD"))
    assert [(one.what, one.where) for one in first] == [("tracker: MCP server j", ".mcp.json")]
    assert first[0].value.startswith("npx 'x y' (variables ")
    _commit(repo, ".mcp.json", _servers(j={"command": "npx", "args": ["x y"], "env": {"T": "two"}}))
    second = list(server_demands(Repository.open(repo), "HEAD"))
    assert first[0].value != second[0].value
    assert list(server_demands(Repository.open(repo), "HEAD", only="k")) == []


@pytest.mark.parametrize(
    ("flow", "settings", "note"),
    [
        ("greenfield", {"tracker": "github"}, "as issues of acme/shop on GitHub"),
        (
            "greenfield",
            {"tracker": "github", "tracker_project": "acme/plan"},
            "as issues of acme/plan on GitHub",
        ),
        ("greenfield", {"tracker": "jira", "tracker_project": "SHOP"}, "in Jira, project SHOP"),
        ("greenfield", {}, "in Azure DevOps"),
        ("greenfield", {"tracker": "local"}, ""),
        ("quick", {"tracker": "github"}, ""),
    ],
)
def test_a_plan_says_where_work_items_will_go(
    repo: Path, flow: str, settings: dict[str, str], note: str
) -> None:
    """By the settings and the names of servers alone; a story without such steps creates none."""
    git(repo, "remote", "add", "origin", "git@github.com:acme/shop.git")
    _commit(repo, ".mcp.json", _servers(azuredevops={"command": "x"}))
    story = Story(id=StoryId("a"), title="A", prompt="x", flow=flow)
    given = Settings(**settings)  # type: ignore[arg-type]  # texts
    whole = f"work items: steps that plan create epics, tasks and their links {note}"
    assert work_item_note(Repository.open(repo), "HEAD", [story], given) == (whole if note else "")


def test_a_forge_that_nothing_leads_to_is_refused_before_a_run(repo: Path) -> None:
    """Not after the first steps are paid for."""
    story = Story(id=StoryId("a"), title="A", prompt="x", flow="greenfield")
    with pytest.raises(TrackerError, match="the remote origin leads to no repository on GitLab"):
        work_item_note(Repository.open(repo), "HEAD", [story], Settings(tracker="gitlab"))
