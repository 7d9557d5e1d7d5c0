"""Machines of a CI system: each job in a fresh clone, with the variables of the project, and a store."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import git


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Where the jobs of one pipeline run; `store` is what its system keeps for them."""

    world: Path
    origin: Path

    @property
    def store(self) -> Path:
        """Return the folder of artifacts, stashes or workspaces."""
        return self.world / "store"

    def clone(self, name: str) -> Path:
        """Return a fresh checkout for a job."""
        place = self.world / "clones" / name
        git(self.world, "clone", "-q", "--depth", "1", self.origin.as_uri(), str(place))
        return place

    def shell(self, place: Path, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a script as the bash step of a job."""
        own = [str(self.world / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        env = {
            "PATH": os.pathsep.join(own),
            "HOME": str(self.world),
            "VIRTUAL_ENV": sys.prefix,
            "AUTOPILOT_STORIES": "backlog.toml",
            "AUTOPILOT_PACKAGE": "autopilot-multi",
            "DEPLOY_KEY": "not for sessions",
            **more,
        }
        command = ["bash", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, cwd=place, env=env, check=False, capture_output=True, text=True)

    def keep(self, place: Path, pattern: str, prefix: str = "") -> None:
        """Store the files of a job that match."""
        _copy(place, self.store / prefix, pattern)

    def bring(self, place: Path, pattern: str, prefix: str = "") -> bool:
        """Bring stored files that match into a job; whether there are any."""
        return _copy(self.store / prefix, place, pattern)


def make_machines(world: Path, origin: Path) -> Machines:
    """Make the folders of a pipeline."""
    for name in ("bin", "store", "clones"):
        (world / name).mkdir()
    return Machines(world=world, origin=origin)


def _copy(source: Path, target: Path, pattern: str) -> bool:
    found = [path for path in source.glob(pattern) if path.is_file()]
    for path in found:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return bool(found)
