"""One shared tree in which real agents work, as whoever runs the tests or as an ordinary user."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.people import GROUNDS, Ground, Person, somebody
from tests.acceptance.program import Ran
from tests.real_agents.conftest import Stage
from tests.real_agents.model import scripted_model
from tests.real_agents.programs import CannotInstallError, environment, installed
from tests.real_agents.stories import PATIENCE

NAMES = ("a", "b", "c")
FILES = {"root.txt": "root\n", **{f"packages/{name}/x": f"{name}\n" for name in NAMES}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A checkout of three packages, with something staged and something edited by its user."""

    person: Person
    stage: Stage
    ground: Ground
    users: tuple[object, ...] = ()

    @property
    def root(self) -> Path:
        """The checkout."""
        return self.stage.repo

    def configure(self, **more: Any) -> "Tree":
        """Commit the settings; gives the tree as it must be found afterwards."""
        text = self.stage.settings(
            bg_isolation='"none"',
            deconflict_paths='["packages/{id}/**"]',
            enforce=f'"{self.ground.level}"',
            max_stories="3",
            window='"fixed"',
            **more,
        )
        (self.root / "autopilot-multi.toml").write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "settings")
        (self.root / "root.txt").write_text("staged\n")
        self.git("add", "root.txt")
        (self.root / "root.txt").write_text("edited\n")
        self.person.hand_over(self.root)
        return replace(self, users=self.look())

    def look(self) -> tuple[object, ...]:
        """Look at all that is the user's: index, HEAD, files."""
        files = [path.read_text() for path in (self.root / "root.txt", self.root / "autopilot-multi.toml")]
        names = sorted(
            path.name for path in self.root.iterdir() if path.name not in {".orchestrator", "stories"}
        )
        head = self.git("rev-parse", "HEAD"), self.git("symbolic-ref", "HEAD")
        return (self.root / ".git" / "index").read_bytes(), head, files, names

    def git(self, *args: str) -> str:
        """Run git as the person whose checkout it is."""
        return self.person.git(self.root, *args)

    def story(self, name: str, body: str, *files: str) -> None:
        """Write a story that is done when its package has these files."""
        path = self.root / "stories" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        verify = [f"test -f packages/{name}/{each}" for each in files]
        front = {"agent": self.stage.agent, "verify": verify}
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in front.items())
        path.write_text(f"---\n{text}---\n{body}\n")
        self.person.hand_over(path.parent)

    def run(self, *args: str) -> Ran:
        """Carry the stories out."""
        return self.person.run(self.root, "run", "--json", self.stage.model, *args, limit=PATIENCE)

    def committed(self, name: str) -> list[str]:
        """Name what the one commit of a story changed."""
        commit, *files = self.git("log", "--format=%H", "--name-only", f"main..autopilot/{name}").split()
        assert f"Autopilot-Story: {name}" in self.git("log", "-1", commit)
        return files

    def log(self, name: str) -> str:
        """Read what a story's sessions printed."""
        runs = self.root / ".git" / "autopilot" / "runs"
        return "\n".join(log.read_text() for log in sorted(runs.glob(f"*/{name}/*.log")))


@contextmanager
def shared_tree(agent: str, who: str, level: str) -> Iterator[Tree]:
    """Return the tree of somebody at a level, and an agent that talks to a scripted model."""
    ground = GROUNDS[level]
    ground.require()
    try:
        folder = installed(agent)
    except CannotInstallError as error:
        pytest.skip(str(error))
    with somebody(who, landlocks=ground.landlocks) as owner, scripted_model() as (url, scene):
        told = environment(agent, url, owner.folder / "home")
        env = {**owner.environment, "PATH": f"{folder}:{os.environ['PATH']}", **told}
        person = replace(owner, environment=env)
        if person.uid and person.call("sh", "-c", f"{agent} --version", cwd=person.folder).returncode:
            pytest.skip(f"user {person.uid} cannot execute {agent} here")
        root = person.repository(FILES)
        for key, value in (("user.name", "Test"), ("user.email", "test@example.com")):
            person.git(root, "config", key, value)
        person.hand_over(person.folder / "home")
        stage = Stage(repo=root, agent=agent, env=env, scene=scene, url=url)
        yield Tree(person=person, stage=stage, ground=ground)
