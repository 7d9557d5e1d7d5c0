"""Work item trackers: which one is configured, the gate, and files that stand in for one."""

import json
import stat
from pathlib import Path

import pytest

from runner.core.choose import render, tracker_failed
from runner.core.errors import SettingsError, SystemFaultError
from runner.core.flow import Edition, FlowStep, step
from runner.flows.catalog import load_flow
from runner.flows.state.model import Tracker
from runner.flows.tracker import detect, gate, mark_pending


def _servers(root: Path, file: str, *names: str, key: str = "mcpServers") -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: {name: {"command": "x"} for name in names}}))


@pytest.mark.parametrize(
    ("file", "key", "server", "found"),
    [
        (".mcp.json", "mcpServers", "user-Jira-MCP-Server", Tracker.JIRA),
        (".cursor/mcp.json", "mcpServers", "Jira-MCP-Server", Tracker.JIRA),
        (".vscode/mcp.json", "servers", "user-AzureDevops", Tracker.ADO),
        ("mcp.json", "mcpServers", "azuredevops", Tracker.ADO),
        (".mcp.json", "mcpServers", "jira-like", Tracker.LOCAL),
    ],
)
def test_the_configured_server_tells_the_tracker(
    tmp_path: Path, file: str, key: str, server: str, found: Tracker
) -> None:
    """By the names that its servers have, with or without the user's prefix; nothing else is a tracker."""
    _servers(tmp_path, file, "github", server, key=key)
    detection = detect(tmp_path)
    assert detection.name is found
    assert detection.question is None


def test_without_a_tracker_work_items_stay_local(tmp_path: Path) -> None:
    """Nothing is asked: there is only one way to go on."""
    detection = detect(tmp_path)
    assert (detection.name, detection.question, detection.notes) == (Tracker.LOCAL, None, ())


def test_two_trackers_are_a_question(tmp_path: Path) -> None:
    """Acceptance 61: in the Choose form, and each letter stands for one of them."""
    _servers(tmp_path, ".mcp.json", "user-AzureDevops")
    _servers(tmp_path, "mcp.json", "user-Jira-MCP-Server")
    detection = detect(tmp_path)
    assert detection.name is None
    assert detection.question is not None
    assert detection.choices == {"A": Tracker.JIRA, "B": Tracker.ADO}
    assert "A) Jira (mcp.json names user-Jira-MCP-Server)" in render(detection.question)
    assert detection.question.recommendation == "B"


def test_what_is_set_or_recorded_is_not_asked_again(tmp_path: Path) -> None:
    """The setting decides over the state file, the state file over what is configured."""
    _servers(tmp_path, ".mcp.json", "user-AzureDevops", "user-Jira-MCP-Server")
    assert detect(tmp_path, recorded="ado").name is Tracker.ADO
    assert detect(tmp_path, setting="Local", recorded="ado").name is Tracker.LOCAL
    with pytest.raises(SettingsError, match="the settings name the tracker 'jra'") as caught:
        detect(tmp_path, setting="jra")
    assert "did you mean 'jira'?" in caught.value.hint


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": []}', "\x00"])
def test_a_file_that_cannot_be_read_hides_no_other(tmp_path: Path, text: str) -> None:
    """It is told of, if it is broken, and the rest is looked at."""
    (tmp_path / ".mcp.json").write_text(text)
    _servers(tmp_path, "mcp.json", "user-AzureDevops")
    detection = detect(tmp_path)
    assert detection.name is Tracker.ADO
    assert bool(detection.notes) == (text in {"{", "\x00"})


def test_the_gate_stands_before_steps_that_create_work_items() -> None:
    """Only there, only with a tracker, and only when it does not let us in."""
    flow = load_flow("greenfield", Edition.AUTODEV)
    asked = {one.number for one in flow.steps if gate(one, Tracker.JIRA, authenticated=False) is not None}
    assert asked == {"3", "5"}
    plan = step(flow, "3")
    assert plan is not None
    assert gate(plan, Tracker.ADO, authenticated=False) == tracker_failed()
    assert gate(plan, Tracker.ADO, authenticated=True) is None
    assert gate(plan, Tracker.LOCAL, authenticated=False) is None
    assert gate(FlowStep(number="1", name="x"), Tracker.JIRA, authenticated=False) is None


def test_a_file_that_cannot_be_marked_is_a_clear_error(tmp_path: Path) -> None:
    """One that is gone again."""
    with pytest.raises(SystemFaultError, match="cannot be written"):
        mark_pending([tmp_path / "nowhere.md"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"# Title\n\nText\n", b"# Title\n\nTracker: pending\n\nText\n"),
        (b"# Title\nText\n", b"# Title\n\nTracker: pending\n\nText\n"),
        (b"# Title\r\nText\r\n", b"# Title\r\n\r\nTracker: pending\r\n\r\nText\r\n"),
        (b"# Title", b"# Title\n\nTracker: pending\n"),
        (b"Text\n", b"Tracker: pending\n\nText\n"),
        (b"", b"Tracker: pending\n"),
        (b"---\nid: 1\n---\n# T\n\xff\n", b"---\nid: 1\n---\n# T\n\nTracker: pending\n\n\xff\n"),
        (b"---\nid: 1\n---\nText\n", b"---\nid: 1\n---\n\nTracker: pending\n\nText\n"),
    ],
)
def test_the_pending_marker_is_put_below_the_heading_once(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    """Every other byte stays, and so do the file's rights; a second time changes nothing."""
    path = tmp_path / "01_a.md"
    path.write_bytes(before)
    path.chmod(0o640)
    assert mark_pending([path]) == (path,)
    assert path.read_bytes() == after
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert mark_pending([path]) == ()
    assert path.read_bytes() == after


@pytest.mark.parametrize("line", ["Tracker: PROJ-12", "- **Tracker**: pending", "tracker: x"])
def test_a_file_that_names_its_tracker_is_left_alone(tmp_path: Path, line: str) -> None:
    """What has an id is not pending."""
    path = tmp_path / "a.md"
    path.write_text(f"# T\n\n{line}\n")
    assert mark_pending([path]) == ()
