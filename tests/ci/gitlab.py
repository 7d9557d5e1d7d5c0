"""The pipeline for GitLab, run by gitlab-ci-local: each job is a shell script in a copy of the repository."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.ci import rsync
from tests.ci.tools import require_tool
from tests.conftest import git

STATE = ".gitlab-ci-local"
ADDRESS = "https://gitlab.example/acme/shop.git"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitLab:
    """One project: the checkout that gitlab-ci-local works in, and the repository that is pushed to."""

    world: Path
    checkout: Path
    remote: Path

    def artifacts(self, job: str) -> Path:
        """Return the artifacts of a job."""
        return self.checkout / STATE / "artifacts" / job.replace(" ", "IA")

    def log(self, job: str) -> str:
        """Return what a job printed."""
        return (self.checkout / STATE / "output" / f"{job.replace(' ', 'IA')}.log").read_text()

    def pushed(self) -> list[list[str]]:
        """Return the branches that each joining job has pushed, the fewest first."""
        found: dict[str, list[str]] = {}
        for name in git(self.remote, "branch", "--format=%(refname:short)").splitlines():
            prefix, _, story = name.partition("/")
            found.setdefault(prefix, []).append(story)
        return sorted(found.values(), key=len)

    def run(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the whole pipeline."""
        with self.begun(**variables) as process:
            out, _ = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, "")

    def retry(self, *jobs: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run jobs of the child pipeline again on another machine, as with the button beside them."""
        child = f"{STATE}/includes/triggers/stories.yml"
        command = [*self._command(variables), "--file", child, *jobs]
        return subprocess.run(
            command,
            cwd=self.checkout,
            env=self._environment(),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )

    @contextmanager
    def begun(self, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """Run the whole pipeline beside the test."""
        with subprocess.Popen(
            self._command({"CI_PIPELINE_SOURCE": "schedule", **variables}),
            cwd=self.checkout,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def _command(self, variables: Mapping[str, str]) -> list[str]:
        given = [part for name, value in variables.items() for part in ("--variable", f"{name}={value}")]
        tool = require_tool("gitlab-ci-local")
        flags = ("--force-shell-executor", "--shell-isolation", "--no-artifacts-to-source", "--no-color")
        ignored = ("--ignore-predefined-vars", "CI_PIPELINE_SOURCE")
        return [tool, *flags, *ignored, "--home", str(self.world / "settings"), *given]

    def _environment(self) -> dict[str, str]:
        path = [str(self.world / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        return {
            "PATH": os.pathsep.join(path),
            "HOME": str(self.world / "account"),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }


def make_gitlab(
    world: Path, origin: Path, variables: Mapping[str, str], *, only_join: Mapping[str, str]
) -> GitLab:
    """Make a project with variables in its settings, some of them for the environment of the joining job."""
    for folder in ("bin", "settings/.gitlab-ci-local", "account"):
        (world / folder).mkdir(parents=True)
    if shutil.which("rsync") is None:
        program = world / "bin" / "rsync"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {rsync.__file__} "$@"\n')
        program.chmod(0o755)
    scoped = {
        name: {"type": "variable", "values": {"autopilot/join": value}} for name, value in only_join.items()
    }
    settings = {"global": {**variables, **scoped}}
    (world / "settings/.gitlab-ci-local/variables.yml").write_text(yaml.safe_dump(settings))
    remote = world / "remote.git"
    git(world, "init", "-q", "--bare", str(remote))
    git(origin, "remote", "add", "origin", ADDRESS)
    git(origin, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    (world / "account" / ".gitconfig").write_text(f'[url "{remote.as_uri()}"]\n\tpushInsteadOf = {ADDRESS}\n')
    return GitLab(world=world, checkout=origin, remote=remote)
