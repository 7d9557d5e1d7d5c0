"""GitHub's side of a workflow run: jobs by their needs, matrices, attempts, and the steps of each job.

Workflow and actions are read as they are, and their `run` steps are executed by bash, each job in a fresh
folder with the variables, the files and the signals that GitHub gives it. What is not played is an error.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tests.ci.expressions import as_text, has_status_check, render, standard_functions, truth
from tests.ci.github_actions import ActionError, Services

Cancels: TypeAlias = Mapping[str, Callable[[], object]]

SECONDS_AFTER_INT, SECONDS_AFTER_TERM = 7.5, 2.5
PATH = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
FILES = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")


@dataclass(slots=True, kw_only=True)
class JobEnd:
    """How a job ended, and what it left besides artifacts."""

    result: str
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    summary: str = ""
    seconds_to_end: float | None = None


@dataclass(slots=True, kw_only=True)
class WorkflowRun:
    """One run of a workflow, with its attempts."""

    root: Path
    services: Services
    folder: Path
    """Where the repository with the workflow is."""
    workflow: str
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    event: Mapping[str, Any] = field(default_factory=dict)
    server: str = "https://github.example"
    attempt: int = 0
    ends: dict[str, dict[str, JobEnd]] = field(default_factory=dict)
    """The end of each job, by the key in the workflow and the name in the matrix."""
    ran: list[str] = field(default_factory=list)
    """The jobs of the newest attempt."""

    def run(self, *, cancel: Cancels | None = None) -> str:
        """Run everything, or in later attempts what failed and all that needs it; return the result."""
        self.attempt += 1
        self.ran = []
        for caller in self._read(self.workflow)["jobs"].values():
            self._call(caller, cancel or {})
        results = self._results()
        return "failure" if "failure" in results else "cancelled" if "cancelled" in results else "success"

    def _results(self) -> set[str]:
        return {end.result for ends in self.ends.values() for end in ends.values()}

    def _call(self, caller: Mapping[str, Any], cancel: Cancels) -> None:
        """Run the workflow that a job of the caller's calls."""
        contexts = {"github": self._github(), "vars": self.variables, "secrets": self.secrets}
        worst = "failure" if "failure" in self._results() else "success"
        functions = standard_functions(worst, cancelled=False)
        if "needs" in caller and not self._wanted(caller, contexts, functions, worst):
            return
        workflow = self._read(caller["uses"])
        declared = workflow[True]["workflow_call"]  # YAML takes the key `on` for a truth value
        given = {name: one.get("default") for name, one in declared["inputs"].items()}
        given |= render(caller["with"], contexts, functions)
        passed = render(caller.get("secrets", {}), contexts, functions)
        assert set(passed) <= set(declared.get("secrets", {})), "a secret that the workflow does not declare"
        contexts = {"github": self._github(), "inputs": given, "secrets": passed}
        for key, job in workflow["jobs"].items():
            _require_granted(job.get("permissions", workflow["permissions"]), caller["permissions"])
            # What comes after jobs that have run again runs again, too.
            self._run_key(key, job, contexts, cancel, again="needs" in caller and bool(self.ran))

    def end(self, name: str) -> JobEnd:
        """Return how a job ended in the newest attempt that ran it."""
        return next(ends[name] for ends in self.ends.values() if name in ends)

    def _read(self, path: str) -> Any:
        return yaml.safe_load((self.folder / path).read_text())

    def _github(self) -> dict[str, Any]:
        return {
            "run_id": 4711,
            "run_number": 7,
            "run_attempt": self.attempt,
            "event": self.event,
            "repository": "acme/shop",
        }

    def _run_key(
        self, key: str, job: Mapping[str, Any], contexts: Mapping[str, Any], cancel: Cancels, *, again: bool
    ) -> None:
        needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        needs = {name: {"result": self._result(name), "outputs": self._outputs(name)} for name in needed}
        contexts = {**contexts, "needs": needs}
        worst = "success" if all(one["result"] == "success" for one in needs.values()) else "failure"
        functions = standard_functions(worst, cancelled=False)
        before = self.ends.get(key, {})
        renewed = again or self.attempt == 1 or any(name in self.ran for name in needed)
        if not self._wanted(job, contexts, functions, worst):
            self.ends[key] = {key: JobEnd(result="skipped")}
            return
        ends: dict[str, JobEnd] = {}
        for entry in _entries(job, contexts, functions):
            own = {**contexts, "matrix": entry}
            name = as_text(render(job.get("name", key), own, functions))
            if not renewed and name in before and before[name].result == "success":
                ends[name] = before[name]
                continue
            ends[name] = Job(run=self, name=name, job=job, contexts=own, cancel=cancel.get(name)).run()
            self.ran += [name, key]
        self.ends[key] = ends

    def _wanted(
        self, job: Mapping[str, Any], contexts: Mapping[str, Any], functions: Mapping[str, Any], worst: str
    ) -> bool:
        condition = str(job.get("if", "${{ success() }}"))
        return truth(render(condition, contexts, functions)) and (
            has_status_check(condition) or worst == "success"
        )

    def _result(self, key: str) -> str:
        results = {end.result for end in self.ends[key].values()}
        return next(one for one in ("failure", "cancelled", "success", "skipped") if one in results)

    def _outputs(self, key: str) -> dict[str, str]:
        return {name: value for end in self.ends[key].values() for name, value in end.outputs.items()}


class Job:
    """One job on a machine of its own, which is a folder here."""

    def __init__(
        self,
        *,
        run: WorkflowRun,
        name: str,
        job: Mapping[str, Any],
        contexts: Mapping[str, Any],
        cancel: Callable[[], object] | None,
    ) -> None:
        self._run = run
        self._name = name
        self._job = job
        self._cancel = cancel
        self._status = "success"
        self._cancelled = False
        self._outputs: dict[str, dict[str, str]] = {}
        self._added: dict[str, str] = {}
        self._paths: list[str] = []
        self._log: list[str] = []
        self._groups: list[int] = []
        self._end = JobEnd(result="success")
        level = job.get("permissions", {}).get("contents", "none")
        self._token = f"token-of-{name}-which-may-{level}"
        self._masks = {self._token, *filter(None, contexts["secrets"].values())}
        self._contexts = {**contexts, "github": {**contexts["github"], "token": self._token}}
        self._machine = run.root / "machines" / f"{run.attempt}-{name}"
        self.workspace = self._machine / "work" / "shop"

    def run(self) -> JobEnd:
        """Run all steps; whatever they leave running is killed at the end."""
        for folder in ("work", "temp", "home"):
            (self._machine / folder).mkdir(parents=True)
        try:
            self._steps(self._job["steps"], self._contexts, composite=False)
        finally:
            for group in self._groups:
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
        outputs = {"steps": {name: {"outputs": values} for name, values in self._outputs.items()}}
        found = render(self._job.get("outputs", {}), {**self._contexts, **outputs}, {})
        self._end.outputs = {name: as_text(value) for name, value in found.items()}
        self._end.result = "cancelled" if self._cancelled else self._status
        self._end.log = "".join(self._log)
        return self._end

    def _steps(
        self, steps: Sequence[Mapping[str, Any]], contexts: Mapping[str, Any], *, composite: bool
    ) -> None:
        for step in steps:
            functions = standard_functions(self._status, cancelled=self._cancelled)
            condition = str(step.get("if", "${{ success() }}"))
            wanted = truth(render(condition, contexts, functions))
            fine = self._status == "success" and not self._cancelled
            if not wanted or not (fine or has_status_check(condition)):
                continue
            if "uses" in step:
                self._use(step, contexts, functions)
            else:
                assert not composite or "shell" in step, "a step of a composite action must name its shell"
                self._execute(step, contexts, functions)

    def _use(
        self, step: Mapping[str, Any], contexts: Mapping[str, Any], functions: Mapping[str, Any]
    ) -> None:
        rendered = render(step.get("with", {}), contexts, functions)
        given = {name: as_text(value) for name, value in rendered.items()}
        uses = step["uses"]
        if uses.startswith("./"):
            action = yaml.safe_load((self.workspace / uses / "action.yml").read_text())
            assert set(given) <= set(action["inputs"]), f"{uses} has no such input"
            inputs = {name: one.get("default", "") for name, one in action["inputs"].items()} | given
            self._steps(action["runs"]["steps"], {**contexts, "inputs": inputs}, composite=True)
            return
        try:
            self._run.services.perform(
                uses.partition("@")[0], given, self.workspace, token=self._token, job=self._name
            )
        except ActionError as error:
            self._write(f"::error::{error}\n")
            self._status = "failure"

    def _execute(
        self, step: Mapping[str, Any], contexts: Mapping[str, Any], functions: Mapping[str, Any]
    ) -> None:
        temp = self._machine / "temp"
        number = len(list(temp.iterdir()))
        script = temp / f"{number}.sh"
        script.write_text(as_text(render(step["run"], contexts, functions)))
        files = {name: temp / f"{number}.{name.lower()}" for name in FILES}
        for file in files.values():
            file.touch()
        strict = ["--noprofile", "--norc", "-eo", "pipefail"] if "shell" in step else ["-e"]
        env = render(step.get("env", {}), contexts, functions)
        output = temp / f"{number}.log"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                ["bash", *strict, str(script)],
                cwd=self.workspace,
                env={**self._environment(files), **{name: as_text(value) for name, value in env.items()}},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._groups.append(process.pid)
            code = self._wait(process, step)
        self._write(output.read_text(errors="replace"))
        output.unlink()
        if code != 0 and not self._cancelled:
            self._write(f"##[error]Process completed with exit code {code}.\n")
            self._status = "failure"
        self._read_files(step, files)

    def _wait(self, process: subprocess.Popen[bytes], step: Mapping[str, Any]) -> int:
        """Wait for the shell of a step, or cancel it as GitHub does: with signals to the shell alone."""
        try:
            if self._cancel is None or step.get("name") != "Run":
                return process.wait(120)
            self._cancel()
            self._cancelled = True
            began = time.monotonic()
            for number, seconds in ((signal.SIGINT, SECONDS_AFTER_INT), (signal.SIGTERM, SECONDS_AFTER_TERM)):
                process.send_signal(number)
                try:
                    return process.wait(seconds)
                except subprocess.TimeoutExpired:
                    continue
                finally:
                    self._end.seconds_to_end = time.monotonic() - began
            return -signal.SIGKILL
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _environment(self, files: Mapping[str, Path]) -> dict[str, str]:
        github = self._contexts["github"]
        return {
            "PATH": os.pathsep.join([*reversed(self._paths), str(self._run.root / "bin"), PATH]),
            "HOME": str(self._machine / "home"),
            "LANG": "C.UTF-8",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_REPOSITORY": github["repository"],
            "GITHUB_REF_NAME": "main",
            "GITHUB_SERVER_URL": self._run.server,
            "GITHUB_RUN_ID": str(github["run_id"]),
            "GITHUB_RUN_NUMBER": str(github["run_number"]),
            "GITHUB_RUN_ATTEMPT": str(github["run_attempt"]),
            "RUNNER_TEMP": str(self._machine / "temp"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **self._added,
            **{name: str(file) for name, file in files.items()},
        }

    def _read_files(self, step: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        if "id" in step:
            self._outputs[step["id"]] = _pairs(files["GITHUB_OUTPUT"])
        self._added |= _pairs(files["GITHUB_ENV"])
        self._paths += files["GITHUB_PATH"].read_text().splitlines()
        self._end.summary += files["GITHUB_STEP_SUMMARY"].read_text()

    def _write(self, text: str) -> None:
        for line in text.splitlines(keepends=True):
            if line.startswith("::add-mask::"):
                self._masks.add(line.removeprefix("::add-mask::").strip())
                continue
            shown = line
            for mask in self._masks:
                shown = shown.replace(mask, "***")
            self._log.append(shown)


def _pairs(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def _entries(
    job: Mapping[str, Any], contexts: Mapping[str, Any], functions: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Return the matrix of a job; `matrix: ${{ … }}` gives a table with nothing but `include`."""
    if "strategy" not in job:
        return [{}]
    strategy = render(job["strategy"], contexts, functions)
    assert isinstance(strategy["fail-fast"], bool)
    assert strategy["max-parallel"] >= 1
    included: list[Mapping[str, Any]] = strategy["matrix"]["include"]
    return included


def _require_granted(wanted: Mapping[str, str], granted: Mapping[str, str]) -> None:
    """Refuse what GitHub refuses: a called job that asks for more than its caller may do."""
    levels = ("none", "read", "write")
    for scope, level in wanted.items():
        allowed = granted.get(scope, "none")
        assert levels.index(level) <= levels.index(allowed), f"{scope}: {level} is not granted"


def make_run(root: Path, origin: Path, workflow: str, **more: Any) -> WorkflowRun:
    """Make a run of a workflow of `origin`, with no artifacts and no caches yet."""
    for name in ("artifacts", "caches", "bin"):
        (root / name).mkdir()
    services = Services(origin=origin, artifacts=root / "artifacts", caches=root / "caches")
    return WorkflowRun(root=root, services=services, folder=origin, workflow=workflow, **more)


def install(root: Path, name: str, text: str) -> None:
    """Put a program on the path of all jobs."""
    program = root / "bin" / name
    program.write_text(text)
    program.chmod(0o755)


def copied(example: Path, target: Path, *, without: Collection[str] = ()) -> None:
    """Copy the files of an example as they are."""
    shutil.copytree(example, target, ignore=shutil.ignore_patterns(*without))
