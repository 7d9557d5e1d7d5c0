"""The examples for Buildkite, CircleCI, Azure Pipelines and Jenkins: fit for their systems, and run."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.program import run
from tests.ci.backlog import EXAMPLE, make_origin
from tests.ci.tools import TOOLS, require_package
from tests.conftest import git

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


def check(schema: str, *files: Path) -> None:
    """Check files against the schema of their CI system."""
    more = ["--data-transform", "azure-pipelines", "--regex-variant", "nonunicode"]
    checker = Path(sys.executable).with_name("check-jsonschema")
    command: list[str | Path] = [
        checker,
        "--builtin-schema",
        f"vendor.{schema}",
        *(more if schema == "azure-pipelines" else []),
    ]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ("github-workflows", ".github/workflows/autopilot.yml"),
        ("github-workflows", ".github/workflows/autopilot-stories.yml"),
        ("github-actions", ".github/actions/autopilot-job/action.yml"),
        ("github-actions", ".github/actions/autopilot-setup/action.yml"),
        ("gitlab-ci", ".gitlab-ci.yml"),
        ("gitlab-ci", ".gitlab/autopilot.yml"),
        ("buildkite", "buildkite/pipeline.yml"),
        ("circle-ci", "circleci/config.yml"),
        ("azure-pipelines", "azure/azure-pipelines.yml"),
        ("azure-pipelines", "azure/autopilot-steps.yml"),
    ],
)
def test_files_fit_the_schema_of_their_system(schema: str, name: str) -> None:
    """A key that the system does not know, or a value of another kind, is found."""
    check(schema, EXAMPLE / name)


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
    check("buildkite", _written(matrix.with_name("steps.json"), steps))
    by_label = {step["label"]: step for step in steps["steps"]}
    assert by_label["top"]["depends_on"] == [{"step": by_label["base"]["key"], "allow_failure": True}]
    assert len(by_label["join"]["depends_on"]) == len(ENTRIES)

    config = _printed(EXAMPLE / "circleci" / "pipeline.py", matrix)
    check("circle-ci", _written(matrix.with_name("config.json"), config))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Buildkite:
    """A build: each step in a fresh clone."""

    world: Path
    origin: Path

    def run(self, step: Mapping[str, Any]) -> int:
        """Run the commands of a step, and keep its artifacts however it ends."""
        place = self.world / "clones" / re.sub(r"\W", "", step["label"])
        git(self.world, "clone", "-q", "--depth", "1", self.origin.as_uri(), str(place))
        script = "\n".join(step["command"])
        path = os.pathsep.join(
            [str(self.world / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        )
        env = {
            "PATH": path,
            "HOME": str(self.world),
            "VIRTUAL_ENV": sys.prefix,
            "AUTOPILOT_STORIES": "backlog.toml",
            "AUTOPILOT_PACKAGE": "autopilot-multi",
            "DEPLOY_KEY": "not for sessions",
        }
        done = subprocess.run(["bash", "-ec", script], cwd=place, env=env, check=False, capture_output=True)
        for pattern in step.get("artifact_paths", []):
            for found in place.glob(pattern):
                if found.is_file():
                    target = self.world / "store" / found.relative_to(place)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(found, target)
        return done.returncode


@pytest.mark.ci
def test_buildkite_from_plan_to_join(tmp_path: Path) -> None:
    """The steps of the example and those that it uploads: exit codes, artifacts and the joined run."""
    origin = make_origin(tmp_path, ENTRIES)
    shutil.copytree(EXAMPLE / "buildkite", origin / ".buildkite")
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "-m", "buildkite")
    for name in ("bin", "store", "clones"):
        (tmp_path / name).mkdir()
    agent = tmp_path / "bin" / "buildkite-agent"
    agent.write_text(AGENT.format(store=tmp_path / "store", python=sys.executable))
    agent.chmod(0o755)
    build = Buildkite(world=tmp_path, origin=origin)
    (plan,) = yaml.safe_load((EXAMPLE / "buildkite" / "pipeline.yml").read_text())["steps"]
    assert build.run(plan) == 0
    steps = json.loads((tmp_path / "uploaded.json").read_text())["steps"]
    codes = {step["label"]: build.run(step) for step in steps}
    assert codes == {"base": 0, "bad": 3, "top": 0, "join": 4}
    state = json.loads((tmp_path / "store" / "reports" / "state.json").read_text())
    statuses = {story["id"]: story["status"] for story in state["data"]["stories"]}
    assert statuses == {"base": "done", "bad": "failed", "top": "done"}
    assert (tmp_path / "store" / "reports" / "junit.xml").exists()
