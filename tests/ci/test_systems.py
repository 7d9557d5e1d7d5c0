"""The examples for Buildkite, CircleCI, Azure Pipelines and Jenkins: fit for their systems, and run."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.program import run
from tests.ci.azure import Azure
from tests.ci.backlog import EXAMPLE, make_origin
from tests.ci.clones import Machines, make_machines
from tests.ci.tools import TOOLS, require_package
from tests.conftest import git
from tests.schemas import check_files

ENTRIES: list[dict[str, Any]] = [
    {"id": "base", "command": "echo base > base.txt"},
    {"id": "top", "command": "cat base.txt > top.txt", "depends_on": ["base"]},
    {"id": "bad", "command": "test -z $DEPLOY_KEY && false", "max_attempts": 1},
]
AGENT = """#!/bin/sh
case "$1 $2" in
  "artifact upload") cp "$3" {store}/ ;;
  "artifact download") cd {store} && {python} -c '
import glob, os, shutil, sys
found = [name for name in glob.glob(sys.argv[1], recursive=True) if os.path.isfile(name)]
for name in found:
    os.makedirs(os.path.join(sys.argv[2], os.path.dirname(name)), exist_ok=True)
    shutil.copy(name, os.path.join(sys.argv[2], name))
sys.exit(not found)' "$3" "$OLDPWD" ;;
  "pipeline upload") cat > {store}/../uploaded.json ;;
  *) exit 9 ;;
esac
"""
"""Buildkite's agent with a folder for artifacts; a download that finds nothing fails, as in truth."""

GROOVY = """
import sys
import tree_sitter, tree_sitter_groovy
parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_groovy.language()))
sys.exit(parser.parse(sys.stdin.buffer.read()).root_node.has_error)
"""


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("github-workflows", (".github/workflows/autopilot.yml", ".github/workflows/autopilot-stories.yml")),
        (
            "github-actions",
            (".github/actions/autopilot-job/action.yml", ".github/actions/autopilot-setup/action.yml"),
        ),
        ("gitlab-ci", (".gitlab-ci.yml", ".gitlab/autopilot.yml")),
        ("buildkite", ("buildkite/pipeline.yml",)),
        ("circle-ci", ("circleci/config.yml",)),
        ("azure-pipelines", ("azure/azure-pipelines.yml", "azure/autopilot-steps.yml")),
    ],
)
def test_files_fit_the_schema_of_their_system(schema: str, names: tuple[str, ...]) -> None:
    """A key that the system does not know, or a value of another kind, is found."""
    check_files(schema, *(EXAMPLE / name for name in names))


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Return the matrix of three stories, one of which depends on another."""
    asked = run(make_origin(tmp_path, ENTRIES), "matrix", "backlog.toml", "--format", "json")
    assert asked.code == 0, asked.err
    path = tmp_path / "matrix.json"
    path.write_text(asked.out)
    return path


def test_generated_pipelines_fit_the_schemas_and_know_what_each_job_needs(matrix: Path) -> None:
    """Buildkite and CircleCI get a pipeline that was made from the matrix, Azure a matrix per stage."""
    steps = _printed(EXAMPLE / "buildkite" / "steps.py", matrix)
    check_files("buildkite", _written(matrix.with_name("steps.json"), steps))
    by_label = {step["label"]: step for step in steps["steps"]}
    assert by_label["top"]["depends_on"] == [{"step": by_label["base"]["key"], "allow_failure": True}]
    assert len(by_label["join"]["depends_on"]) == len(ENTRIES)

    config = _printed(EXAMPLE / "circleci" / "pipeline.py", matrix)
    check_files("circle-ci", _written(matrix.with_name("config.json"), config))
    requires = {
        name: [need for entry in job["requires"] for need in entry]
        for entry in config["workflows"]["stories"]["jobs"]
        for name, job in entry.items()
    }
    assert [len(needs) for needs in requires.values()] == [0, 0, 1, 3]
    assert set(requires) == set(config["jobs"])

    plan = yaml.safe_load((EXAMPLE / "azure" / "azure-pipelines.yml").read_text())["jobs"][0]
    script = next(step["bash"] for step in plan["steps"] if step.get("name") == "matrix")
    said = subprocess.run(
        ["bash", "-ec", script], cwd=matrix.parent, capture_output=True, text=True, check=True
    )
    stages = dict(re.findall(r"variable=(stage\d);isOutput=true\](.*)", said.stdout))
    assert json.loads(stages["stage2"]) == {"job_1": {"JOB": "top", "NEEDS": "shard-base-*/**"}}
    assert stages["stage3"] == ""


def _printed(script: Path, matrix: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, script, matrix], capture_output=True, text=True, check=True)
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def _written(path: Path, value: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_the_jenkinsfile_is_groovy() -> None:
    """Its syntax is right; whether Jenkins knows each step is for its own linter to say."""
    require_package("../tree_sitter_groovy")
    text = (EXAMPLE / "jenkins" / "Jenkinsfile").read_bytes()
    for source, code in ((text, 0), (text.replace(b"{ storyJob(job) }", b"{ storyJob(job }"), 1)):
        done = subprocess.run(
            [sys.executable, "-c", GROOVY], input=source, env={"PYTHONPATH": str(TOOLS)}, check=False
        )
        assert done.returncode == code


CODES = {"base": 0, "bad": 3, "top": 0, "join": 4}
"""How the jobs of the three stories end."""


def from_plan_to_join(tmp_path: Path, folder: str, where: str) -> Machines:
    """Make a project with three stories and the files of one system where they belong."""
    origin = make_origin(tmp_path, ENTRIES)
    shutil.copytree(EXAMPLE / folder, origin / where, dirs_exist_ok=True)
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "-m", folder)
    return make_machines(tmp_path, origin)


def require_joined(reports: Path) -> None:
    """Require the joined run and its reports."""
    state = json.loads((reports / "state.json").read_text())
    statuses = {story["id"]: story["status"] for story in state["data"]["stories"]}
    assert statuses == {"base": "done", "bad": "failed", "top": "done"}
    assert 'failures="1"' in (reports / "junit.xml").read_text()
    assert "bad" in (reports / "summary.md").read_text()


@pytest.mark.ci
def test_buildkite_from_plan_to_join(tmp_path: Path) -> None:
    """The steps of the example and those that it uploads: exit codes, artifacts and the joined run."""
    machines = from_plan_to_join(tmp_path, "buildkite", ".buildkite")
    agent = tmp_path / "bin" / "buildkite-agent"
    agent.write_text(AGENT.format(store=machines.store, python=sys.executable))
    agent.chmod(0o755)

    def run_step(step: Mapping[str, Any]) -> int:
        place = machines.clone(re.sub(r"\W", "", step["label"]))
        done = machines.shell(place, "\n".join(step["command"]))
        for pattern in step.get("artifact_paths", []):
            machines.keep(place, pattern)
        return done.returncode

    (plan,) = yaml.safe_load((EXAMPLE / "buildkite" / "pipeline.yml").read_text())["steps"]
    assert run_step(plan) == 0
    steps = json.loads((tmp_path / "uploaded.json").read_text())["steps"]
    assert {step["label"]: run_step(step) for step in steps} == CODES
    require_joined(machines.store / "reports")


@pytest.mark.ci
def test_circleci_from_plan_to_join(tmp_path: Path) -> None:
    """The setup workflow and the configuration that it continues with, each job with its workspace."""
    machines = from_plan_to_join(tmp_path, "circleci", ".circleci")

    def run_job(name: str, job: Mapping[str, Any]) -> int:
        place, code = machines.clone(name), 0
        for step in job["steps"]:
            ((kind, given),) = step.items() if isinstance(step, dict) else ((step, {}),)
            match kind:
                case "checkout":
                    pass
                case "attach_workspace":
                    machines.bring(place, "**/*", "workspace")
                case "run" if not code:
                    script = given if isinstance(given, str) else given["command"]
                    code = machines.shell(place, script, **job.get("environment", {})).returncode
                case "persist_to_workspace" if not code:
                    for path in given["paths"]:
                        machines.keep(place, f"{path}/**/*", "workspace")
                case "continuation/continue" | "store_artifacts" | "store_test_results":
                    path = given.get("configuration_path") or given["path"]
                    assert (place / path).exists(), path
                    machines.keep(place, f"{path}/*" if (place / path).is_dir() else path)
                case _:
                    assert code, f"{kind} is not played"
        return code

    config = yaml.safe_load((EXAMPLE / "circleci" / "config.yml").read_text())
    assert run_job("plan", config["jobs"]["plan"]) == 0
    continued = json.loads((machines.store / "continue.json").read_text())
    order = [name for entry in continued["workflows"]["stories"]["jobs"] for name in entry]
    codes = {name: run_job(name, continued["jobs"][name]) for name in order}
    assert {name.rpartition("-")[2]: code for name, code in codes.items()} == CODES
    require_joined(machines.store / "reports")


@pytest.mark.ci
def test_azure_from_plan_to_join(tmp_path: Path) -> None:
    """The jobs of the pipeline with the matrix of each stage, and the artifacts that tasks pass on."""
    azure = Azure(machines=from_plan_to_join(tmp_path, "azure", "."))
    pipeline = yaml.safe_load((EXAMPLE / "azure" / "azure-pipelines.yml").read_text())
    template = yaml.safe_load((EXAMPLE / "azure" / "autopilot-steps.yml").read_text())["steps"]
    codes = {}
    for job in pipeline["jobs"]:
        if "strategy" not in job:
            codes[job["job"]] = azure.run(job["job"], job["steps"])
            continue
        assert job["steps"] == [{"template": "autopilot-steps.yml"}]
        for entry in json.loads(azure.outputs[job["job"]] or "{}").values():
            codes[entry["JOB"]] = azure.run(entry["JOB"], template, **entry)
    assert codes == {"plan": 0, **CODES}
    require_joined(azure.machines.store / "artifacts" / "reports-1")


@pytest.mark.ci
def test_the_shell_steps_of_jenkins_from_plan_to_join(tmp_path: Path) -> None:
    """What the Jenkinsfile gives to `sh`, in its order, with what it stashes; Groovy itself is not run."""
    machines = from_plan_to_join(tmp_path, "jenkins", ".")
    text = (EXAMPLE / "jenkins" / "Jenkinsfile").read_text()
    job, plan, join = (quoted[1:-1] for quoted in re.findall(r"^ +sh (\'.*\'|\".*\")$", text, re.MULTILINE))
    stashes = dict(re.findall(r"stash name: ['\"](\S+)['\"], includes: ['\"](\S+)['\"]", text))
    assert set(stashes) == {"matrix", "shard-${job.name}"}
    place = machines.clone("plan")
    assert machines.shell(place, plan).returncode == 0
    machines.keep(place, stashes["matrix"])
    stages = json.loads((machines.store / "matrix.json").read_text())["stages"]
    codes = {}
    for entry in (entry for stage in stages for entry in stage):
        place = machines.clone(entry["name"])
        for name in ("", *entry["needs"]):
            machines.bring(place, f"shards/{name}/**/*" if name else stashes["matrix"])
        done = machines.shell(place, job.replace("${job.name}", entry["name"]))
        codes[entry["name"]] = done.returncode
        shard = stashes["shard-${job.name}"].replace("${job.name}", entry["name"])
        machines.keep(place, f"{shard}/*")
    place = machines.clone("join")
    machines.bring(place, "**/*")
    codes["join"] = machines.shell(place, join).returncode
    assert codes == CODES
    require_joined(place / "reports")
