"""A story that is added on the page: what `autopilot-multi add` would refuse is refused in the same words."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runner.core.model import Status, StoryId
from runner.run.control.reader import RunReader
from tests.acceptance.program import run, started, wait_until, write_story
from tests.conftest import git
from tests.serve.web.clients import Client, client


@pytest.fixture(autouse=True)
def _agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install an agent for the new story, which never starts."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@asynccontextmanager
async def steered(repo: Path, ready: Path) -> AsyncIterator[Client]:
    """Open the page of a run whose story `a` is at work; the run is gone afterwards."""
    write_story(repo, "a", command=f"touch {ready}; sleep 300")
    with started(repo, "run", "--json"):
        wait_until(ready.exists, what="the session runs")
        async with client(repo) as browser:
            await browser.enter()
            yield browser


async def test_the_page_refuses_what_the_command_refuses(repo: Path, tmp_path: Path) -> None:
    """An unknown dependency, a bad claim, an id that the run has: the same error, and nothing is added."""
    async with steered(repo, tmp_path / "ready") as browser:
        with RunReader(str(repo)) as reader:
            wrong: list[dict[str, Any]] = [{"depends_on": ["nope"]}, {"owns": ["/etc/**"]}]
            for keys in wrong:
                refused = run(repo, "add", str(write_story(repo, "b", **keys)), "--json").document["error"]
                form = {name: " ".join(values) for name, values in keys.items()}
                said = await browser.act("add", id="b", prompt="Do it.", **form)
                problem = refused["message"].rpartition("stories/b.md")[2].lstrip("):0123456789 ")
                assert problem in said
            assert "the run already has a" in await browser.act("add", id="a", prompt="Do it.")
            assert set(reader.read().run.stories) == {"a"}
            assert "Added b" in await browser.act("add", id="b", prompt="Do it.", depends_on="a")
            assert reader.read().run.stories[StoryId("b")].status is Status.WAITING
            # A file may replace a story that has not started; a form would take away its commands.
            assert "the run already has b" in await browser.act("add", id="b", prompt="Something else.")


async def test_the_page_agrees_to_nothing(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new story may bring an agent that obeys files of the repository: only the user agrees to that."""
    (repo / ".claude").mkdir()
    (repo / ".claude" / "settings.json").write_text("{}")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "settings of claude")
    async with steered(repo, tmp_path / "ready") as browser:
        with monkeypatch.context() as away:
            away.delenv("AUTOPILOT_MULTI_TRUST")
            said = await browser.act("add", id="b", prompt="Do it.")
            assert "you have not agreed to: claude obeys .claude/settings.json" in said
            assert "`autopilot-multi trust`" in said
        assert "Added b" in await browser.act("add", id="b", prompt="Do it.", depends_on="a")
