"""The page about known agents says what their adapters do, and which versions were tried."""

import re
from pathlib import Path

import pytest

from runner.agents.catalog import KNOWN
from runner.agents.known_agent import Permissions
from runner.agents.protocol import AgentJob
from runner.core.agent_settings import AgentSettings
from runner.core.model import Story, StoryId
from tests.real_agents.programs import VERSIONS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "agents.md").read_text()


def job(conversation: str = "") -> AgentJob:
    """Return a session to start."""
    return AgentJob(
        story=Story(id=StoryId("a"), title="A", prompt="Do it."),
        workspace=Path("/w"),
        session_id="s",
        model="",
        prompt=Path("/w/p.md"),
        conversation=conversation,
    )


def rows(heading: str) -> dict[str, list[str]]:
    """Return the table under a heading, by agent."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (found,) = [part for part in section if part.startswith(heading)]
    cells = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in found.splitlines())
    return {name.strip("| "): rest for name, *rest in cells if name.strip("| ") in KNOWN}


@pytest.mark.parametrize("heading", ["Tested versions", "Starting", "Permissions", "What they report"])
def test_every_agent_has_its_row(heading: str) -> None:
    """None is left out of a table."""
    assert list(rows(heading)) == list(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_the_version_is_the_one_that_the_tests_install(name: str) -> None:
    """The page names no version that was not tried."""
    assert VERSIONS[name].endswith(rows("Tested versions")[name][0])


@pytest.mark.parametrize("name", KNOWN)
def test_starts_and_resumes_as_the_page_says(name: str) -> None:
    """The command, whether it can be resumed, and which side chooses the id."""
    start, resume, chooser = rows("Starting")[name]
    agent = KNOWN[name](AgentSettings())
    begun, resumed = agent.launch(job()), agent.launch(job("c-1"))
    words = start.strip("`").replace("FILE", "/w/p.md").replace("…", "").split()
    assert set(words) <= set(begun.argv)
    if resume == "never":
        assert "c-1" not in resumed.argv
    else:
        flag = resume.strip("`").split()[0]
        assert resumed.argv[resumed.argv.index(flag) + 1] == "c-1"
    assert bool(begun.conversation) is (chooser == "chosen by the runner")


@pytest.mark.parametrize("name", KNOWN)
def test_permissions_are_as_the_page_says(name: str) -> None:
    """What is quoted is among the arguments, each for its own permission."""
    for cell, permission in zip(rows("Permissions")[name][:2], Permissions, strict=True):
        argv = KNOWN[name](AgentSettings(permissions=permission)).launch(job()).argv
        assert set(re.findall(r"`([\w-]+)`", cell)) <= set(argv)


@pytest.mark.parametrize("name", KNOWN)
def test_what_an_agent_tells_is_as_the_page_says(name: str) -> None:
    """How its figures add up, and how long it may be silent."""
    traits = KNOWN[name](AgentSettings()).traits
    *_, counted, silent = rows("What they report")[name]
    assert traits.whole_thread is ("subtracted" in counted)
    assert traits.sums is ("added" in counted)
    assert (f"{traits.quiet_seconds:.0f} s" if traits.quiet_seconds else "") == silent.strip("| ")
    assert traits.own_sandbox is ("with `edit`" in rows("Permissions")[name][2])
