"""The jobs of a pipeline for Azure, step by step: scripts in bash, variables, and tasks for artifacts."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ci.clones import Machines


@dataclass(slots=True, kw_only=True)
class Azure:
    """One run of a pipeline; `outputs` are the variables that its steps have set for later jobs."""

    machines: Machines
    outputs: dict[str, str] = field(default_factory=dict)

    def run(self, name: str, steps: Sequence[Mapping[str, Any]], **variables: str) -> int:
        """Run the steps of a job in a clone of its own; return the exit code of the first that failed."""
        place, space, code = self.machines.clone(name), self.machines.world / "spaces" / name, 0
        known = {**variables, "System.JobAttempt": "1", "Pipeline.Workspace": str(space)}
        for step in steps:
            condition = step.get("condition", "succeeded()")
            if (code and "always()" not in condition) or ("NEEDS" in condition and not variables["NEEDS"]):
                continue
            if "bash" in step:
                more = {**variables, "PIPELINE_WORKSPACE": str(space)}
                done = self.machines.shell(place, step["bash"], **more)
                code = code or done.returncode
                self.outputs.update(re.findall(r"variable=(stage\d);isOutput=true\](.*)", done.stdout))
            elif "publish" in step:
                self._publish(place / _filled(step["publish"], known), _filled(step["artifact"], known))
            elif step.get("task") == "DownloadPipelineArtifact@2":
                target = place / _filled(step["inputs"]["targetPath"], known)
                for pattern in _filled(step["inputs"]["itemPattern"], known).split():
                    self.machines.bring(target, f"{pattern}/*", "artifacts")
            else:
                assert "checkout" in step or step["task"] == "PublishTestResults@2", step
        return code

    def _publish(self, path: Path, artifact: str) -> None:
        target = self.machines.store / "artifacts" / artifact
        target.mkdir(parents=True)
        if path.is_file():
            shutil.copy(path, target)
        else:
            shutil.copytree(path, target, dirs_exist_ok=True)


def _filled(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$\(([\w.]+)\)", lambda found: known[found[1]], text)
