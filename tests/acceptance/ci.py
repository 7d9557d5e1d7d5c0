"""A CI system played with real processes: each job in a fresh shallow clone, with a home of its own."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.acceptance.program import Ran, Running, run_in, started, write_story
from tests.conftest import git

Stories: TypeAlias = Mapping[str, Mapping[str, Any]]

STORIES: Stories = {
    "base": {"command": "echo base > base.txt", "verify": ["grep -q base base.txt"]},
    "left": {"command": "cat base.txt > left.txt; echo left >> left.txt", "depends_on": ["base"]},
    "right": {"command": "cat base.txt > right.txt; echo right >> right.txt", "depends_on": ["base"]},
    "top": {"command": "cat left.txt right.txt > top.txt", "depends_on": ["left", "right"]},
    "alone": {"command": "echo alone > alone.txt"},
}
"""A diamond and a story on its own: three stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ci:
    """One pipeline: the repository that jobs are cloned from, and the folder of their artifacts."""

    origin: Path
    root: Path

    @property
    def shards(self) -> Path:
        """Where the artifacts of all jobs are."""
        return self.root / "shards"

    def clone(self, job: str) -> Path:
        """Make the checkout of a job: one commit deep, on no branch."""
        place = self.root / "jobs" / job
        place.parent.mkdir(parents=True, exist_ok=True)
        git(self.root, "clone", "-q", "--depth", "1", self.origin.as_uri(), str(place))
        git(place, "checkout", "-q", "--detach")
        return place

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a job: no identity, and a home that nobody can write to."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GIT_AUTHOR", "GIT_COMMITTER", "XDG_"))
        }
        return {**kept, "HOME": "/proc", "CI": "true", **more}

    def begin(self, job: str, *args: str) -> AbstractContextManager[Running]:
        """Run a job's one command in its own clone, beside the test."""
        return started(self.clone(job), *args, environ=self.environment())

    def run(self, job: str, *args: str, env: Mapping[str, str] | None = None) -> Ran:
        """Run a job's one command to its end."""
        return run_in(self.clone(job), *args, environ=self.environment(**(env or {})))

    def story_job(self, only: str, *more: str, job: str = "") -> list[str]:
        """Return the command of a job of the matrix."""
        out = self.shards / (job or only)
        self.shards.mkdir(exist_ok=True)
        return ["run", f"--only={only}", "--shard-in", str(self.shards), "--shard-out", str(out), "-q", *more]

    def stages(self) -> list[list[dict[str, Any]]]:
        """Ask for the matrix, as the first job does."""
        asked = self.run("plan", "matrix", "--json")
        assert asked.code == 0, asked.err
        (self.root / "matrix.json").write_text(asked.out)
        stages: list[list[dict[str, Any]]] = asked.data["stages"]
        return stages

    def run_all(self) -> dict[str, int]:
        """Run every job of the matrix, those of a stage beside each other; give their exit codes."""
        codes: dict[str, int] = {}
        for stage in self.stages():
            with ExitStack() as stack:
                jobs = {
                    job["name"]: stack.enter_context(self.begin(job["name"], *self.story_job(job["name"])))
                    for job in stage
                }
                codes |= {name: running.finish().code for name, running in jobs.items()}
        return codes


def make_ci(root: Path, repo: Path, stories: Stories = STORIES) -> Ci:
    """Make a pipeline over a repository whose history is longer than what its jobs see."""
    for name, keys in stories.items():
        write_story(repo, name, **keys)
    for message in ("stories", "more"):
        (repo / "more.txt").write_text(f"{message}\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", message)
    return Ci(origin=repo, root=root)


def state_of(shard: Path) -> dict[str, Any]:
    """Read the state document of a shard."""
    loaded: dict[str, Any] = json.loads((shard / "state.json").read_text())
    return loaded


def forge(shard: Path, change: Callable[[dict[str, Any]], object], **contents: bytes) -> None:
    """Change a manifest, and files with the digests that belong to them."""
    manifest = json.loads((shard / "shard.json").read_text())
    for name, data in contents.items():
        file = {"events": "events.ndjson", "bundle": "commits.bundle", "backlog": "backlog.json"}[name]
        (shard / file).write_bytes(data)
        manifest["files"][file] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change(manifest)
    (shard / "shard.json").write_text(json.dumps(manifest, indent=1))


def nothing(_: object) -> None:
    """Leave the manifest as it is."""


def event(shard: Path, **changes: object) -> bytes:
    """Return the events, with changes to the first of them."""
    first, *rest = (shard / "events.ndjson").read_text().splitlines()
    return "\n".join([json.dumps({**json.loads(first), **changes}), *rest]).encode() + b"\n"
