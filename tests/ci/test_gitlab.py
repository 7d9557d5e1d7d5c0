"""The pipeline for GitLab as it is shipped, run by gitlab-ci-local with its child pipeline."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.acceptance.program import processes_with, wait_until
from tests.ci.backlog import EXAMPLE, make_origin, marker_of, stories
from tests.ci.gitlab import GitLab, make_gitlab
from tests.ci.tools import require_tool
from tests.conftest import git
from tests.forge.merge_requests import GitLabApi
from tests.forge.projects import PushedBranches
from tests.forge.scripted_server import serving

SETTINGS = {"AUTOPILOT_PACKAGE": "autopilot-multi"}
DROPS = os.geteuid() == 0 and shutil.which("setpriv") is not None
"""Whether jobs here can give up capabilities, without which other processes of root cannot be looked into."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for a project; no session may be left behind."""
    require_tool("gitlab-ci-local")
    yield tmp_path
    wait_until(lambda: not processes_with(marker_of(tmp_path)), what="no session is left")


def statuses(gitlab: GitLab) -> dict[str, str]:
    """Return each story's status in the joined run."""
    state = json.loads((gitlab.artifacts("join") / "reports" / "state.json").read_text())
    return {story["id"]: story["status"] for story in state["data"]["stories"]}


def failures(gitlab: GitLab) -> set[str]:
    """Return the suites with failures or errors in the JUnit report."""
    root = ET.parse(gitlab.artifacts("join") / "reports" / "junit.xml").getroot()  # noqa: S314  our own
    return {
        str(suite.get("name"))
        for suite in root.iter("testsuite")
        if int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    }


def test_a_sample_from_plan_to_join(world: Path) -> None:
    """A story and one that depends on it: the child pipeline gets its variables, joins, and pushes."""
    entries: list[dict[str, Any]] = [
        {"id": "base", "command": "echo base > base.txt"},
        {"id": "top", "command": "cat base.txt > top.txt", "depends_on": ["base"]},
    ]
    gitlab = make_gitlab(
        world, make_origin(world, entries), SETTINGS, only_join={"AUTOPILOT_PUSH_TOKEN": "x"}
    )
    ran = gitlab.run()
    assert ran.returncode == 0, ran.stdout
    assert statuses(gitlab) == {"base": "done", "top": "done"}
    assert gitlab.pushed() == [["base", "top"]]
    assert failures(gitlab) == set()
    (pushed,) = {
        name.partition("/")[0] for name in git(gitlab.remote, "branch", "--format=%(refname:short)").split()
    }
    assert f"{pushed}/top" in (gitlab.artifacts("join") / "reports" / "summary.md").read_text()
    assert (gitlab.artifacts("join") / "reports" / "autopilot.html").stat().st_size > 1000
    assert git(gitlab.checkout, "status", "--short", "--untracked-files=no") == ""


@pytest.mark.ci
def test_a_failed_and_a_canceled_job_and_retries_that_make_it_green(world: Path) -> None:
    """Six stories; then the failed jobs and one that was done run again, and those that need them.

    Sessions find the variable that is named for them, and neither those of the project nor the job's token.
    """
    keys = {"AGENT_KEY": "canary-agent-key", "DEPLOY_KEY": "canary-deploy-key"}
    project = {**SETTINGS, **keys, "AUTOPILOT_PASS": "AGENT_KEY", "AUTOPILOT_FLAGS": "--grace-seconds=2"}
    origin = make_origin(world, stories(world, marker_of(world)))
    gitlab = make_gitlab(world, origin, project, only_join={"AUTOPILOT_PUSH_TOKEN": "canary-push-token"})
    with gitlab.begun() as process:
        wait_until(lambda: processes_with(marker_of(world)), what="the session runs", limit=120)
        (program,) = _programs("--only=slow")
        os.kill(program, signal.SIGTERM)
        out, _ = process.communicate(timeout=300)
    # gitlab-ci-local does not pass on the result of a child pipeline, so that the jobs are looked at.
    codes = dict(re.findall(r"-> (.+?) +finished in .* FAIL (\d+)", out))
    assert codes == {"story bad": "3", "story slow": "143", "story after": "3", "join": "2"}, out
    expected = {
        "base": "done",
        "top": "done",
        "bad": "failed",
        "after": "skipped",
        "slow": "stopped",
        "hunt": "done",
    }
    assert statuses(gitlab) == expected
    assert gitlab.pushed() == [["base", "hunt", "top"]]
    assert {"bad", "slow"} <= failures(gitlab) <= {"bad", "slow", "after"}
    assert "bad" in (gitlab.artifacts("join") / "reports" / "summary.md").read_text()
    quality = json.loads((gitlab.artifacts("join") / "reports" / "quality.json").read_text())
    assert any("bad" in json.dumps(entry) for entry in quality)
    _check_what_was_found(gitlab)

    (world / "repaired").touch()
    more = {"AUTOPILOT_STORIES": "backlog.toml"}
    for jobs in (("story bad", "story slow", "story base"), ("story after", "story top"), ("join",)):
        ran = gitlab.retry(*jobs, **more)
        assert ran.returncode == 0, ran.stdout
    assert statuses(gitlab) == dict.fromkeys(expected, "done")
    assert failures(gitlab) == set()
    assert gitlab.pushed() == [["base", "hunt", "top"], sorted(expected)]


def _programs(flag: str) -> list[int]:
    """Return the process that the shell of a job became."""
    return [
        one
        for one in processes_with(flag)
        if Path(f"/proc/{one}/cmdline").read_bytes().startswith(b"timeout")
    ]


def _check_what_was_found(gitlab: GitLab) -> None:
    found = json.loads((gitlab.world / "found.json").read_text())
    assert found["environment AGENT_KEY"] == "canary-agent-key"
    strange = {
        place: text
        for place, text in found.items()
        if ("canary-deploy" in text or "canary-push" in text)
        and (DROPS or not place.startswith("environ of"))
    }
    assert strange == {}
    artifacts = [
        path for path in (gitlab.checkout / ".gitlab-ci-local" / "artifacts").rglob("*") if path.is_file()
    ]
    assert [path for path in artifacts if b"canary" in path.read_bytes()] == []
    logs = {job: gitlab.log(job) for job in ("story hunt", "join")}
    assert [job for job, log in logs.items() if "canary" in log] == []


@pytest.mark.ci
def test_drafts_after_the_join(world: Path) -> None:
    """Each done story gets a draft merge request, stacked; joined again, none is opened a second time."""
    api = GitLabApi("acme/shop")
    api.token = "glpat-" + "canary00" * 3
    origin = make_origin(world, stories(world, marker_of(world))[:4])
    with serving(api) as host:
        site = {"CI_SERVER_URL": f"http://{host}", "NO_PROXY": "localhost", "no_proxy": "localhost"}
        only_join = {"AUTOPILOT_DRAFT_TOKEN": api.token}
        gitlab = make_gitlab(world, origin, SETTINGS | site, only_join=only_join)
        with (world / "account" / ".gitconfig").open("a") as file:
            file.write(f"\tpushInsteadOf = http://{host}/acme/shop.git\n")
        git(origin, "push", "-q", gitlab.remote.as_uri(), "main")
        api.branches = PushedBranches(gitlab.remote)
        gitlab.run()
        targets = {each["source_branch"]: each["target_branch"] for each in api.requests.values()}
        assert targets == {"autopilot/base": "main", "autopilot/top": "autopilot/base"}, gitlab.log("join")
        assert all(each["draft"] for each in api.requests.values())
        (world / "repaired").touch()
        for jobs in (("story bad",), ("story after",), ("join",)):
            ran = gitlab.retry(*jobs, AUTOPILOT_STORIES="backlog.toml")
            assert ran.returncode == 0, ran.stdout
    assert len(api.requests) == 4
    assert (api.merges, "canary" in gitlab.log("join")) == (0, False)


@pytest.mark.ci
def test_a_plan_without_an_agent_is_red(world: Path) -> None:
    """Before any job of the child pipeline starts."""
    origin = make_origin(world, [{"id": "talk", "prompt": "Say something."}])
    gitlab = make_gitlab(world, origin, SETTINGS, only_join={})
    ran: subprocess.CompletedProcess[str] = gitlab.run()
    assert ran.returncode == 1
    assert "no agent is configured or installed" in gitlab.log("plan")
    assert not gitlab.artifacts("join").exists()


def test_no_variable_of_a_trigger_refers_to_itself() -> None:
    """Such a variable reaches the child pipeline empty."""
    pipeline = yaml.safe_load((EXAMPLE / ".gitlab-ci.yml").read_text())
    triggers = [job for job in pipeline.values() if isinstance(job, dict) and "trigger" in job]
    assert len(triggers) == 1
    for name, value in triggers[0].get("variables", {}).items():
        assert f"${name}" not in value
