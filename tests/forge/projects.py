"""A repository whose remote is on the scripted GitHub: real pushes to a bare repository, real stories."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.program import Ran, Running, run, started
from tests.acceptance.test_agents import Actors, claude
from tests.conftest import git
from tests.forge.conftest import ScriptedGitHub
from tests.forge.github_api import REPO, GitHubApi

VERIFY = "test -f made-$AUTOPILOT_STORY_ID.txt"


class PushedBranches(dict[str, str]):
    """The branches that a bare repository has now."""

    def __init__(self, bare: Path) -> None:
        super().__init__()
        self._bare = bare

    def _now(self) -> dict[str, str]:
        listed = git(self._bare, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads")
        return dict(line.split(" ") for line in listed.splitlines())

    def __contains__(self, name: object) -> bool:
        return name in self._now()

    def __getitem__(self, name: str) -> str:
        return self._now()[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the commit of a branch."""
        return self._now().get(name, default)


@dataclass(frozen=True, kw_only=True)
class Project:
    """A clone, the bare repository that its remote leads to, the service, and stories with fake agents."""

    actors: Actors
    bare: Path
    api: GitHubApi
    env: dict[str, str]

    @property
    def repo(self) -> Path:
        """The clone."""
        return self.actors.repo

    @property
    def pulls(self) -> dict[int, dict[str, Any]]:
        """The pull requests."""
        return self.api.repo.pulls

    def story(self, story_id: str, *acts: dict[str, Any], depends_on: Sequence[str] = ()) -> None:
        """Write a story whose first session makes a file of its own, unless its sessions are given."""
        own = {"files": {f"made-{story_id}.txt": "made\n"}, "lines": claude()}
        self.actors.story(story_id, *(acts or (own,)), verify=[VERIFY], depends_on=list(depends_on))

    def run(self, *arguments: str) -> Ran:
        """Run the program, with `gh` as the environment has it."""
        return run(self.repo, *arguments, env=self.env)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Running]:
        """Run the program beside the test."""
        with started(self.repo, *arguments, env=self.env) as running:
            yield running

    def pull_of(self, story_id: str) -> dict[str, Any]:
        """Return the one open pull request of a story."""
        label = f"acme:autopilot/{story_id}"
        (found,) = (pull for pull in self.pulls.values() if pull["head"]["label"] == label)
        return found

    def outward(self) -> list[str]:
        """Return every request so far that was not only a look."""
        return [each.line for each in self.api.book if each.method != "GET"]

    def everything_written(self) -> bytes:
        """Return all bytes that the program has left anywhere: journal, records, logs, the checkout."""
        places = (self.repo, self.repo.parent / f"{self.repo.name}.worktrees")
        files = (path for place in places for path in place.rglob("*") if path.is_file())
        return b"\n".join(path.read_bytes() for path in files)


def make_clone(folder: Path, repo: Path, url: str) -> tuple[Actors, Path]:
    """Add a remote with this address to a repository, which leads to a bare one, and an agent."""
    bare = folder / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    git(repo, "remote", "add", "origin", url)
    git(repo, "config", f"url.{bare}.insteadOf", url)
    git(repo, "push", "-q", "origin", "main")
    actors = Actors(folder / "actors", repo)
    actors.install("claude")
    (repo / "autopilot-multi.toml").write_text(f"max-stories = 3\nbase-check = {json.dumps('off')}\n")
    return actors, bare


def with_agents(folder: Path, env: dict[str, str]) -> dict[str, str]:
    """Return an environment in which the agents of a clone are found first."""
    return env | {"PATH": f"{folder / 'actors' / 'bin'}{os.pathsep}{env['PATH']}"}


def make_project(folder: Path, repo: Path, github: ScriptedGitHub) -> Project:
    """Add a remote on the scripted service to a repository, and an agent."""
    actors, bare = make_clone(folder, repo, f"https://{github.host}/{REPO}.git")
    github.api.repo.branches = PushedBranches(bare)
    return Project(actors=actors, bare=bare, api=github.api, env=with_agents(folder, github.env))
