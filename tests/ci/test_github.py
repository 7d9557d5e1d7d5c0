"""The workflows for GitHub as they are shipped, run job by job with GitHub's files, tokens and signals."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.acceptance.program import processes_with, wait_until
from tests.ci.backlog import EXAMPLE, make_origin, marker_of, stories
from tests.ci.expressions import evaluate, standard_functions
from tests.ci.github_actions import PLAYED, braces
from tests.ci.github_runner import WorkflowRun, install, make_run
from tests.conftest import git
from tests.forge import gh_stand_in
from tests.forge.github_api import GitHubApi
from tests.forge.projects import PushedBranches
from tests.forge.scripted_server import serving

WORKFLOW = ".github/workflows/autopilot.yml"
FILES = sorted((EXAMPLE / ".github").rglob("*.yml"))
DRAFT_LINES = re.compile(r"^  # (drafts:|  )", re.MULTILINE)
"""Those for users who want drafts."""
AGENT_LINES = re.compile(r"^( *)# (setup:|secrets:|  env:|    [A-Z_]+=)", re.MULTILINE)
"""The lines of the shipped call that its comments tell users with an agent to make active."""


def statuses(run: WorkflowRun) -> dict[str, str]:
    """Return each story's status in the joined run."""
    state = json.loads((run.services.artifacts / "autopilot-report" / "state.json").read_text())
    return {story["id"]: story["status"] for story in state["data"]["stories"]}


def results(run: WorkflowRun) -> dict[str, str]:
    """Return how each job ended."""
    return {name: end.result for ends in run.ends.values() for name, end in ends.items()}


def pushed(run: WorkflowRun) -> list[str]:
    """Return the branches that the run has pushed."""
    names = git(run.services.origin, "branch", "--list", "autopilot-*", "--format=%(refname:short)")
    return names.splitlines()


def failures(run: WorkflowRun) -> set[str]:
    """Return the suites with failures or errors in the JUnit report."""
    root = ET.parse(run.services.artifacts / "autopilot-report" / "reports" / "junit.xml").getroot()  # noqa: S314  our own
    return {
        str(suite.get("name"))
        for suite in root.iter("testsuite")
        if int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for a repository and the machines of its jobs; no session may be left behind."""
    marker = marker_of(tmp_path)
    yield tmp_path
    wait_until(lambda: not processes_with(marker), what="no session is left")


def test_a_sample_from_plan_to_join(world: Path) -> None:
    """The workflow of the example, with its own backlog: all is done, reported, pushed and remembered."""
    origin = world / "origin"
    make_origin(world, [])
    git(origin, "checkout", "-q", "HEAD", "--", ".")
    (origin / "backlog.toml").write_text((EXAMPLE / "backlog.toml").read_text())
    git(origin, "commit", "-q", "-a", "-m", "its own backlog")
    run = make_run(world, origin, WORKFLOW, variables={"AUTOPILOT_PACKAGE": "autopilot-multi"})
    assert run.run() == "success", {name: end.log for ends in run.ends.values() for name, end in ends.items()}
    assert set(statuses(run).values()) == {"done"}
    assert run.services.downloads["sorted-words"] == []
    assert run.services.downloads["word-count"] == ["autopilot-shard-sorted-words"]
    assert pushed(run) == [
        f"autopilot-7.1/{name}" for name in ("sorted-words", "trailing-space", "word-count")
    ]
    assert "3 done" in run.end("join").summary
    assert "autopilot-7.1/word-count" in run.end("join").summary
    assert failures(run) == set()
    (records,) = run.services.caches.iterdir()
    assert "sorted-words" in next(records.rglob("autopilot.jsonl")).read_text()


@pytest.mark.ci
def test_a_failed_and_a_canceled_job_and_an_attempt_that_goes_green(world: Path) -> None:
    """Six stories, two attempts: each job, branch, summary and report says what happened.

    The session of the canceled job is deaf to SIGTERM, and its shard is there in time all the same. Wherever
    a session looks, it finds the key that it was given and nothing else that is secret.
    """
    origin = make_origin(world, stories(world, marker_of(world)))
    text, lines = AGENT_LINES.subn(r"\1\2", (origin / WORKFLOW).read_text())
    assert lines == 4
    (origin / WORKFLOW).write_text(text)
    git(origin, "commit", "-q", "-a", "-m", "the call with its setup and its secret")
    run = make_run(
        world,
        origin,
        WORKFLOW,
        variables={"AUTOPILOT_PACKAGE": "autopilot-multi"},
        secrets={"ANTHROPIC_API_KEY": "canary-agent-key", "DEPLOY_KEY": "canary-deploy-key"},
        event={"pull_request": {"number": 12}},
    )
    # What would go to the network; `setup` has the key of the agent.
    install(world, "npm", f'#!/bin/sh\necho "$@ $ANTHROPIC_API_KEY" >> {world}/npm-arguments\n')
    install(world, "gh", f'#!/bin/sh\necho "$@" > {world}/gh-arguments; cp comment.md {world}/gh-comment\n')
    running = {"slow": lambda: wait_until(lambda: processes_with(marker_of(world)), what="the session runs")}
    assert run.run(cancel=running) == "failure"
    assert results(run) == {
        "plan": "success",
        "base": "success",
        "bad": "failure",
        "slow": "cancelled",
        "hunt": "success",
        "top": "success",
        "after": "failure",
        "stage-3": "skipped",
        "join": "failure",
    }
    for name, code in {"bad": 3, "after": 3, "join": 2}.items():
        assert f"Process completed with exit code {code}." in run.end(name).log
    assert (run.end("slow").seconds_to_end or 99) < 9.5
    expected = {
        "base": "done",
        "top": "done",
        "bad": "failed",
        "after": "skipped",
        "slow": "stopped",
        "hunt": "done",
    }
    assert statuses(run) == expected
    assert pushed(run) == [f"autopilot-7.1/{name}" for name in ("base", "hunt", "top")]
    assert {"bad", "slow"} <= failures(run) <= {"bad", "slow", "after"}
    assert "::error" in run.end("join").log
    assert "bad" in run.end("join").summary
    assert (world / "gh-comment").read_text() == run.end("join").summary
    assert "pr comment 12" in (world / "gh-arguments").read_text()

    _check_what_was_found(run, world)

    (world / "repaired").touch()
    assert run.run() == "success", run.end("join").log
    assert "base" not in run.ran
    assert {"bad", "slow", "top", "after", "join"} <= set(run.ran)
    assert statuses(run) == dict.fromkeys(expected, "done")
    assert failures(run) == set()
    assert [name for name in pushed(run) if "7.2" in name] == [
        f"autopilot-7.2/{name}" for name in sorted(expected)
    ]
    assert git(origin, "show", "autopilot-7.2/after:bad.txt") == "good\n"
    assert "6 done" in run.end("join").summary


def _check_what_was_found(run: WorkflowRun, world: Path) -> None:
    found = json.loads((world / "found.json").read_text())
    strange = {
        place: text
        for place, text in found.items()
        if any(sign in text for sign in ("canary-deploy-key", "token-of", "AUTHORIZATION"))
    }
    assert strange == {}
    assert found["environment ANTHROPIC_API_KEY"] == "canary-agent-key"
    installs = set((world / "npm-arguments").read_text().splitlines())
    assert installs == {"install --global @anthropic-ai/claude-code canary-agent-key"}
    files = [path for path in run.services.artifacts.rglob("*") if path.is_file()]
    assert len(files) > len(run.ends)
    assert [path for path in files if b"canary" in path.read_bytes()] == []
    assert [name for ends in run.ends.values() for name, end in ends.items() if "canary" in end.log] == []


@pytest.mark.ci
def test_drafts_after_the_join(world: Path) -> None:
    """Each done story gets one, stacked where it depends on another; a second attempt opens no other."""
    entries = stories(world, marker_of(world))[:4]
    origin = make_origin(world, entries)
    text, lines = DRAFT_LINES.subn(r"  \1", (origin / WORKFLOW).read_text())
    assert lines == 10
    (origin / WORKFLOW).write_text(text)
    git(origin, "commit", "-q", "-a", "-m", "the call with its drafts")
    api = GitHubApi()
    api.token = ""
    api.repo.branches = PushedBranches(origin)
    with serving(api) as host:
        run = make_run(
            world,
            origin,
            WORKFLOW,
            variables={"AUTOPILOT_PACKAGE": "autopilot-multi"},
            server=f"https://{host}",
        )
        install(world, "gh", f'#!/bin/sh\nexec {sys.executable} -I -S {gh_stand_in.__file__} "$@"\n')
        assert run.run() == "failure", "one story fails"
        assert run.end("drafts").result == "success", run.end("drafts").log
        heads = {pull["head"]["ref"]: pull["base"]["ref"] for pull in api.repo.pulls.values()}
        assert heads == {"autopilot/base": "main", "autopilot/top": "autopilot/base"}
        assert all(pull["draft"] for pull in api.repo.pulls.values())
        assert f"https://{host}/acme/shop/actions/runs/4711" in api.repo.pulls[1]["body"]
        assert {one[-1]["state"] for one in api.repo.statuses.values()} == {"success"}
        (world / "repaired").touch()
        assert run.run() == "success", run.end("drafts").log
    assert len(api.repo.pulls) == len(entries)
    assert api.merges == 0
    assert "token-of" not in run.end("drafts").log


@pytest.mark.ci
def test_a_plan_without_an_agent_is_red(world: Path) -> None:
    """Before any job starts, and not in every job."""
    origin = make_origin(world, [{"id": "talk", "prompt": "Say something."}])
    run = make_run(world, origin, WORKFLOW, variables={"AUTOPILOT_PACKAGE": "autopilot-multi"})
    assert run.run() == "failure"
    assert results(run) == {
        "plan": "failure",
        **dict.fromkeys(("stage-1", "stage-2", "stage-3", "join"), "skipped"),
    }
    assert "no agent is configured or installed" in run.end("plan").log


def test_only_the_joining_job_may_write() -> None:
    """All others have a token that reads, no checkout keeps it, and the docs say what the caller grants."""
    files = [EXAMPLE / f".github/workflows/autopilot-{name}.yml" for name in ("stories", "drafts")]
    workflows = [yaml.safe_load(path.read_text()) for path in files]
    assert [workflow["permissions"] for workflow in workflows] == [{}, {}]
    join = {"contents": "write", "pull-requests": "write"}
    writes = {"join": join, "drafts": join | {"statuses": "write"}}
    for name, job in (pair for workflow in workflows for pair in workflow["jobs"].items()):
        assert job["permissions"] == writes.get(name, {"contents": "read"})
        checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert [step["with"]["persist-credentials"] for step in checkouts] == [False]
    page = (EXAMPLE.parents[1] / "docs" / "how-to" / "run-in-ci.md").read_text()
    call = yaml.safe_load((EXAMPLE / WORKFLOW).read_text())["jobs"]["stories"]
    for scope, level in call["permissions"].items():
        assert f"{scope}: {level}" in page


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLE)))
def test_no_script_contains_an_expression_and_every_action_is_pinned(path: Path) -> None:
    """What is put into a script by GitHub could be code; a tag can be moved."""
    text = path.read_text()
    loaded = yaml.safe_load(text)
    jobs = loaded["jobs"].values() if "jobs" in loaded else [loaded["runs"]]
    steps = [step for job in jobs for step in job.get("steps", [])]
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
    for used in (step["uses"] for step in steps if "uses" in step):
        action, _, commit = used.partition("@")
        assert used.startswith("./") or (action in PLAYED and len(commit) == 40), used


def test_expressions_are_those_of_github() -> None:
    """Operators, members, functions and comparisons of unlike values."""
    contexts = {"a": {"b-c": [{"d": 1}], "n": "2", "none": None}}
    functions = standard_functions("failure", cancelled=False)
    values = {
        "a.b-c[0].d == 1": True,
        "a.n >= 2 && !cancelled()": True,
        "a.missing.more": None,
        "a.none >= 1": False,
        "'' || 'x'": "x",
        "failure() && success()": False,
        'fromJSON(\'[{"x": "y"}]\')[0].x': "y",
        "join(fromJSON('[\"p\", \"q\"]'), ',')": "p,q",
        "'It''s' == 'it''s'": True,
        "format('{0}/', a.n) || 'x'": "2/",
    }
    assert {text: evaluate(text, contexts, functions) for text in values} == values
    assert braces("shard-{a,b,}") == ["shard-a", "shard-b", "shard-"]
    assert braces("shard-{a}") == ["shard-{a}"]
