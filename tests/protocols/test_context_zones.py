"""The zones of a session's context, with the real program and a stand-in for the model behind `claude`."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import Ran, run, write_story
from tests.conftest import git
from tests.protocols import context_agent

FLOW = """
summary = "one step"

[[steps]]
number = 1
name = "Build"
prompt = "Build it."
artifacts = ["report.md"]
"""
SETTINGS = """
[context]
danger-tools = 24
patience = 2
"""
FOR_EVER = {"think": 50}
"""A model that thinks longer than the test waits; only the end of its session ends it."""
LOOK = {"sh": "true"}
REPORT = {"sh": "echo all of it > report.md"}
TRUNCATED = {"read": "README.md", "cut": "a\n... [900 lines truncated] ...\nz"}


def save(phase: int, name: str) -> dict[str, Any]:
    """Return the tool call by which a session saves a sub-step."""
    return {"sh": f"autopilot-multi state sub-step {phase} {name}"}


def told(zone: str) -> dict[str, Any]:
    """Return a tool call that ends once the session can read which zone it is in."""
    return {"sh": f'until grep -qs "zone: {zone}" "$AUTOPILOT_CONTEXT_FILE"; do sleep 0.02; done'}


class Stage:
    """A repository with a flow of one step, and programs on PATH that stand in for a model."""

    def __init__(self, repo: Path, folder: Path) -> None:
        self.repo = repo
        self._folder = folder
        programs = folder / "bin"
        programs.mkdir(parents=True)
        lines = {
            "claude": f'exec {sys.executable} -I -S {context_agent.__file__} "$@"',
            "autopilot-multi": f'exec {sys.executable} -m runner "$@"',
        }
        for name, line in lines.items():
            (programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (programs / name).chmod(0o755)
        (repo / "flows").mkdir()
        (repo / "flows" / "build.toml").write_text(FLOW)
        (repo / "autopilot-multi.toml").write_text(SETTINGS)
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "flow")

    def story(self, name: str, *sessions: list[dict[str, Any]], flow: str = "build") -> None:
        """Write a story, and what the model does in its sessions; the last one is repeated."""
        (self._folder / f"{name}.json").write_text(json.dumps(sessions))
        write_story(self.repo, name, flow=flow, agent="claude")

    def run(self, *arguments: str) -> Ran:
        """Run all stories at once."""
        path = f"{self._folder}/bin:{os.environ['PATH']}"
        wanted = ("--json", "--grace-seconds=2", "--window=fixed", "--max-stories=5", *arguments)
        return run(self.repo, *wanted, env={"PATH": path, "PLAYS": str(self._folder)})

    def conversations(self, name: str) -> list[tuple[str, str]]:
        """Return how each session was started: with a new conversation, or with an old one."""
        found = []
        for call in self._calls(name):
            flag = next(flag for flag in ("--session-id", "--resume") if flag in call["argv"])
            found.append((flag, call["argv"][call["argv"].index(flag) + 1]))
        return found

    def state_at(self, name: str, session: int) -> str:
        """Return what the state file said when a session started."""
        return str(self._calls(name)[session - 1]["state"])

    def prompt(self, name: str, session: int) -> str:
        """Return the prompt of a session."""
        return str(self._calls(name)[session - 1]["prompt"])

    def output(self, name: str) -> str:
        """Return what the commands of all sessions printed."""
        return (self._folder / f"{name}.output").read_text()

    def _calls(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self._folder / f"{name}.calls").read_text().splitlines()]

    def fresh(self, name: str) -> bool:
        """Whether every session had a conversation of its own."""
        flags, ids = zip(*self.conversations(name), strict=True)
        return set(flags) == {"--session-id"} and len(set(ids)) == len(ids)

    def files(self, name: str) -> set[str]:
        """Return what is on the branch of a story."""
        return set(git(self.repo, "ls-tree", "--name-only", f"autopilot/{name}").split())


@pytest.fixture
def stage(repo: Path, tmp_path: Path) -> Stage:
    """Return a stage."""
    return Stage(repo, tmp_path / "stage")


@pytest.mark.protocol("003.58", "001.9")
def test_in_danger_a_session_is_ended_where_it_has_saved_and_a_fresh_one_continues(stage: Stage) -> None:
    """Repeated truncation, or far too many tool calls: ended by the next save or commit, or soon after.

    It costs no attempt, the work is committed, and the session that follows starts from the saved sub-step.
    Such sessions count towards max-sessions. Stories of `quick` have no zones.
    """
    full = [TRUNCATED] * 3
    draft = {"sh": "echo draft > draft.md"}
    saves = [draft, save(1, "draft"), *full, told("danger"), save(2, "write"), FOR_EVER]
    stage.story("saves", saves, [REPORT])
    commits = {"sh": "echo x > x.md; git add -A; git commit -q -m batch; sleep 0.3; echo late > late.md"}
    stage.story("commits", [*full, commits, FOR_EVER], [REPORT])
    slow: list[dict[str, Any]] = [{"sh": "echo begun; sleep 0.3; echo ended"}, {"think": 1}]
    stage.story("works", [*[LOOK] * 24, *slow * 9, FOR_EVER], [REPORT])
    stage.story("never", [*full, *[LOOK] * 99, FOR_EVER])
    stage.story("quick", [*full, *[LOOK] * 30, REPORT], flow="quick")
    ran = stage.run("--max-sessions=2")
    for name in ("saves", "commits", "works"):
        assert ran.story(name)["status"] == "done", ran.err
        assert (ran.story(name)["sessions"], ran.story(name)["attempt"]) == (2, 1)
        assert stage.fresh(name)
    assert "name: write" in stage.state_at("saves", 2)
    assert "ended since its context was full; this one is fresh.\nSaved last: sub-step 2 — write. " in (
        stage.prompt("saves", 2)
    )
    assert "Context zone: danger (3 truncated results)" in stage.output("saves")
    assert {"draft.md", "report.md"} <= stage.files("saves")
    assert {"x.md", "late.md"} <= stage.files("commits"), "the tool call that ran was not cut off"
    assert stage.output("works").count("begun") == stage.output("works").count("ended") < 9
    assert "context limit: 3 truncated results; ended at its next save; a fresh session continues" in ran.err
    assert re.search(r"session: \S+, Step 1 Build — SubStep 2 — write, context limit", ran.err)
    assert re.search(r"context limit: 2\d tool calls; ended after [2-9] further tool calls", ran.err)
    assert (ran.story("never")["status"], ran.story("never")["sessions"]) == ("stopped", 2)
    assert (ran.story("quick")["status"], ran.story("quick")["sessions"]) == ("done", 1)


@pytest.mark.protocol("003.56", "003.58")
def test_in_caution_a_session_is_asked_to_end_and_a_fresh_one_continues(stage: Stage) -> None:
    """Twenty tool calls, or five artifacts: the notice is in its file and in the answer to a save.

    The session itself decides where to end. One that ends its step is not asked for anything else.
    """
    docs = [{"sh": f"mkdir -p _docs; echo {number} > _docs/{number}.md"} for number in range(5)]
    reads = [{"read": f"_docs/{number}.md"} for number in range(5)]
    partial = {"result": {"status": "partial"}}
    notice = {"sh": 'cat "$AUTOPILOT_CONTEXT_FILE"'}
    stage.story(
        "calls", [*[LOOK] * 18, save(1, "early"), told("caution"), save(2, "late"), partial], [REPORT]
    )
    stage.story("reads", [*docs, *reads, told("caution"), save(1, "read-all"), partial], [REPORT])
    stage.story("ends", [*[LOOK] * 19, told("caution"), notice, REPORT])
    stage.story("safe", [save(1, "first"), partial], [notice, REPORT])
    ran = stage.run()
    statuses = {name: ran.story(name)["status"] for name in ("calls", "reads", "ends", "safe")}
    assert set(statuses.values()) == {"done"}, ran.err
    early, late = stage.output("calls").split("sub-step 2")
    assert "Context zone" not in early
    assert "Context zone: caution (20 tool calls)" in late
    assert "autopilot-multi state sub-step PHASE NAME" in late
    assert '{"status": "partial"}' in late
    assert "Context zone: caution (5 artifacts read)" in stage.output("reads")
    assert "Context zone: caution (20 tool calls)" in stage.output("ends")
    assert [ran.story(name)["sessions"] for name in statuses] == [2, 2, 1, 2]
    assert stage.fresh("calls")
    assert stage.fresh("reads")
    assert "name: late" in stage.state_at("calls", 2)
    assert "name: read-all" in stage.state_at("reads", 2)
    # A session that ended early with room left continues its conversation.
    assert [flag for flag, _ in stage.conversations("safe")] == ["--session-id", "--resume"]
    assert "No such file" in stage.output("safe")
