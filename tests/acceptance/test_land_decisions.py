"""What a landing leaves out: the question, the retry by its agent, a resolved conflict, and `run --land`."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.acceptance import landing_agent
from tests.acceptance.landing_project import FILES
from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git

AGENT = Path(landing_agent.__file__)


class Project:
    """A small Python project whose stories are done by the stand-in agent."""

    def __init__(self, repo: Path, memory: Path) -> None:
        self.repo = repo
        self.memory = memory

    def env(self, **more: str) -> Mapping[str, str]:
        return {"LANDING_MEMORY": str(self.memory), **more}

    def tip(self, name: str = "main") -> str:
        return git(self.repo, "rev-parse", name).strip()

    def prompts(self, story: str) -> list[str]:
        return [path.read_text() for path in sorted(self.memory.glob(f"{story}-*"))]


@pytest.fixture
def project(make_repository: Callable[..., Path], tmp_path: Path) -> Callable[..., Project]:
    def make(*stories: str, settings: str = "", **keys: object) -> Project:
        agent = (
            f'agent = "mine"\n{settings}\n[agents.mine]\nargv = ["{sys.executable}", "{AGENT}", "{{id}}"]\n'
        )
        files = {
            "autopilot-multi.toml": FILES["autopilot-multi.toml"] + agent,
            ".gitignore": "__pycache__/\n",
        }
        repo = make_repository("shop", files=FILES | files)
        for story in stories:
            write_story(repo, story, title=f"Story {story}", body=f"The work of {story}.", **keys)
        commit_stories(repo)
        memory = tmp_path / "memory"
        memory.mkdir()
        return Project(repo, memory)

    return make


def test_left_out_stories_ask_and_are_retried(project: Callable[..., Project]) -> None:
    """A conflict and a red pair open questions with their evidence; retried by their agents, both land."""
    made = project("a-search", "b-mail", "d-vat", "e-invoice")
    repo, env = made.repo, made.env()
    assert run(repo, "--json", env=env).code == 0
    landed = run(repo, "land", "--json", env=env)
    assert landed.code == 4, landed.err
    assert set(landed.data["landed"]) == {"a-search", "d-vat"}

    status = run(repo, "status", env=env)
    assert "decision: b-mail: Story b-mail did not land on main" in status.out
    asked = {each["story_id"]: each for each in run(repo, "decide", "--json").data["decisions"]}
    assert set(asked) == {"b-mail", "e-invoice"}
    assert [option["word"] for option in asked["b-mail"]["options"]] == ["retry", "resolve", "skip"]
    assert [option["word"] for option in asked["e-invoice"]["options"]] == ["retry", "skip"]
    assert any("CHANGELOG.md" in line for line in asked["b-mail"]["details"])
    evidence = "\n".join(asked["e-invoice"]["details"])
    assert all(word in evidence for word in ("d-vat", "python3 -m unittest -q", "ImportError", "Log: "))

    old = made.tip("autopilot/b-mail")
    answered = run(repo, "decide", "b-mail", "retry")
    assert answered.code == 0, answered.err
    assert "continue with `autopilot-multi resume`" in answered.out
    assert "is to be tried again" in run(repo, "land", "--dry-run").out
    shown = run(repo, "prompt", "b-mail")
    assert "could not land on `main`: conflicts with a-search in CHANGELOG.md" in shown.out
    assert made.tip("autopilot/b-mail") == old
    assert run(repo, "decide", "e-invoice", "A").code == 0
    resumed = run(repo, "resume", "--json", env=env)
    assert resumed.code == 0, resumed.err

    first, second = made.prompts("b-mail")
    assert "could not land" not in first
    assert "- CHANGELOG.md" in second
    assert "The other side is story a-search: Story a-search" in second
    _, red = made.prompts("e-invoice")
    assert "This command failed on the joined work: `python3 -m unittest -q`" in red
    assert "ImportError" in red
    assert git(repo, "rev-parse", "autopilot/b-mail^1", "autopilot/b-mail^2").split() == [made.tip(), old]
    assert made.tip(f"refs/autopilot/old/b-mail/{old[:12]}") == old
    again = run(repo, "land", "--json", env=env)
    assert again.code == 0, again.data["not_landed"]
    assert set(again.data["landed"]) == {"b-mail", "e-invoice"}
    assert (repo / "CHANGELOG.md").read_text().splitlines()[-2:] == ["- search", "- mail"]
    assert "<<<<<<<" not in git(repo, "log", "-p", "--first-parent", "-m", "autopilot/b-mail")
    assert run(repo, "decide").out == "no open decisions\n"
    assert "decision:" not in run(repo, "status").out
