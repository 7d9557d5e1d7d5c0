"""A hostile clone is opened with every command: before the yes, nothing that its files name runs."""

import json
import signal
import socket
from pathlib import Path

import pytest

from runner.cli.overview import COMMANDS
from tests.acceptance.program import Ran, run, started, wait_until, write_story
from tests.conftest import git

OWN = {"demo"}
"""Works in a throwaway repository of its own, whatever is in this one."""

STAYS = {"web", "worker"}
"""Each stays until it is ended."""

OPENED: dict[str, tuple[tuple[str, ...], ...]] = {
    "run": ((), ("--again",), ("--retry-failed",), ("--dry-run",), ("a", "--agent", "mine")),
    "resume": ((), ("--retry-failed",)),
    "land": ((), ("--yes",), ("--dry-run",), ("--resolve", "--yes")),
    "undo": ((), ("--yes",)),
    "pr": ((), ("--dry-run",)),
    "watch-prs": (("--once",),),
    "rollback": (("c", "Build"), ("c", "Build", "--yes")),
    "skip": (("c",), ("c", "--yes")),
    "quarantine": (("list",),),
    "gc": ((), ("--apply",), ("--runs", "--apply")),
    "attach": ((),),
    "decide": ((), ("c", "A")),
    "stop": ((), ("--now",)),
    "pause": ((),),
    "unpause": ((),),
    "add": (("stories/a.md",),),
    "retry": (("a",), ("a", "--note", "again")),
    "takeover": (("a",), ("a", "--start")),
    "mcp": ((),),
    "plan": ((), ("--json",)),
    "forecast": ((), ("--matrix",)),
    "prompt": (("a",), ("b",), ("c",)),
    "status": ((), ("--json",)),
    "show": (("a",),),
    "diff": (("a",),),
    "open": (("a",),),
    "history": ((),),
    "logs": (("a",),),
    "flows": ((), ("show", "own"), ("check", "flows/own.toml")),
    "state": (("check", "stories"), ("show",)),
    "import": (("todo.md", "--dry-run"), ("todo.md",)),
    "tracker": (("sync", "--dry-run"), ("sync",)),
    "matrix": ((), ("--format", "github")),
    "aggregate": (("shards",),),
    "report": ((), ("--format", "html")),
    "export": (("--prometheus", "-"), ("--otlp", "http://127.0.0.1:9")),
    "cluster": (("init",),),
    "init": ((),),
    "config": ((), ("--changed",)),
    "trust": ((),),
    "doctor": ((), ("--repair",)),
    "completion": (("bash",),),
}
"""Every command, in the ways in which it might run something."""

SETTINGS = """
verify = [{evil}]
land-verify = [{evil}]
agent = "mine"
escalate = ["mine"]
notify = {evil}
selector = {evil}
tracker = "github"
tracker-auth = {evil}
[hooks]
after_create = {evil}
before_run = {evil}
before_remove = {evil}
[agents.mine]
argv = ["sh", "-c", {evil}]
[agents.claude]
env = {{ PATH = "{bin}" }}
"""
FLOW = """
summary = "one step"
[[steps]]
number = 1
name = "Build"
prompt = "Build it."
command = ["sh", "-c", {evil}]
"""


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which everything that a hostile repository runs leaves a trace."""
    monkeypatch.setenv("AUTOPILOT_MULTI_TRUST", "ask")
    return tmp_path / "trace"


def make_hostile(top: Path, trace: Path) -> None:
    """Let every kind of command that a repository's files can name leave a trace."""
    evil = json.dumps(f"echo x >> {trace}")
    planted = top / "bin"
    for name in ("claude", "codex", "gh", "glab", "git", "npx", "sh"):
        planted.mkdir(exist_ok=True)
        (planted / name).write_text(f"#!/bin/sh\necho {name} >> {trace}\n")
        (planted / name).chmod(0o755)
    (top / "autopilot-multi.toml").write_text(SETTINGS.format(evil=evil, bin=planted))
    (top / "AGENTS.md").write_text(f"```yaml\nautopilot:\n  selector: {evil}\n```\n")
    (top / "todo.md").write_text("- [ ] one\n")
    (top / "flows").mkdir(exist_ok=True)
    (top / "flows/own.toml").write_text(FLOW.format(evil=evil))
    (top / ".claude").mkdir(exist_ok=True)
    (top / ".claude/settings.json").write_text(json.dumps({"hooks": {"SessionStart": [{"command": evil}]}}))
    (top / ".mcp.json").write_text(json.dumps({"mcpServers": {"x": {"command": "sh", "args": ["-c", evil]}}}))
    write_story(top, "a", command=f"echo x >> {trace}", verify=[f"echo x >> {trace}"])
    write_story(top, "b", agent="mine")
    write_story(top, "c", flow="own")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "hostile")


def opened(top: Path, trace: Path, command: str) -> list[Ran]:
    """Open a repository with one command, in each of its ways; whatever it says, nothing may have run."""
    ran = []
    for words in OPENED[command]:
        ran.append(run(top, command, *words))
        assert "unknown argument" not in ran[-1].err, f"{command} {words}: {ran[-1].err}"
        assert "Traceback" not in ran[-1].err, f"{command} {words}: {ran[-1].err}"
        assert not trace.exists(), f"{command} {words} ran {trace.read_text()}"
    return ran


def test_every_command_is_opened() -> None:
    """A new command must be named here, with what it might run."""
    assert COMMANDS.keys() == OPENED.keys() | STAYS | OWN


def test_a_hostile_clone_opened_with_every_command_runs_nothing(repo: Path, trace: Path) -> None:
    """Fresh from somewhere: no command of it has run, and no story has begun; the same after the yes has."""
    make_hostile(repo, trace)
    said = {command: opened(repo, trace, command) for command in OPENED}
    assert all(ran.code == 1 for ran in said["run"][:2]), [ran.err for ran in said["run"]]
    assert git(repo, "branch", "--list", "autopilot/*") == "", "nothing has begun"
    git(repo, "checkout", "-q", "--", ".")
    run(repo, "--trust", "--max-attempts", "1")
    assert trace.exists(), "the same clone does run all this, once the user has agreed"


def test_a_known_repository_that_turned_hostile_runs_nothing_new(repo: Path, trace: Path) -> None:
    """With a run behind it, there is more to continue, to land, to undo and to take over."""
    write_story(repo, "a", command="echo made > a.txt", verify=["test -e a.txt"])
    write_story(repo, "d", command="echo d > d.txt; exit 1")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "harmless")
    assert run(repo, "trust", "--yes").code == 0
    before = run(repo, "--max-attempts", "1", "--json")
    assert (before.story("a")["status"], before.story("d")["status"]) == ("done", "failed")
    make_hostile(repo, trace)
    for command in OPENED:
        opened(repo, trace, command)


def test_the_page_runs_nothing_of_a_hostile_clone(repo: Path, trace: Path) -> None:
    """It is served, and ended again."""
    make_hostile(repo, trace)
    with started(repo, "web", "--port", "0") as running:
        wait_until(lambda: bool(running.err or running.out), what="it says where the page is")
        running.send(signal.SIGINT)
        ran = running.finish()
    assert "Traceback" not in ran.err
    assert not trace.exists(), ran.err


def test_a_worker_runs_nothing_of_a_hostile_clone(repo: Path, trace: Path) -> None:
    """It has come to its scheduler, and where it was started does not matter."""
    make_hostile(repo, trace)
    with socket.create_server(("127.0.0.1", 0)) as scheduler:
        scheduler.settimeout(30)
        address = f"tcp://127.0.0.1:{scheduler.getsockname()[1]}"
        with started(repo, "worker", address):
            scheduler.accept()[0].close()
    assert not trace.exists()
