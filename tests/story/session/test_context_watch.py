"""When a session is told about its context, and when it must end: real files, what it reports as values."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.core.limits.agent_output import AgentUpdate, Tally
from runner.core.limits.context_zone import ToolResult, Zone
from runner.core.work_settings import ContextSettings
from runner.story.session.context_watch import ContextOrder, ContextWatch
from tests.conftest import git

LIMITS = ContextSettings(caution_tools=2, danger_tools=4, danger_failures=2, patience=3)


class Session:
    """A session that reports tool calls one by one."""

    def __init__(self, repo: Path, *, shared: bool = False, tools_before: int = 0) -> None:
        self.repo = repo
        self.exchange = repo / "exchange"
        self.exchange.mkdir()
        self.notice, self.result = self.exchange / "context.md", self.exchange / "result.json"
        self.state = repo / "_docs" / "_autodev_state.md"
        self.state.parent.mkdir(exist_ok=True)
        self.state.write_text("sub_step: 1\n")
        self._tally, self._tools = Tally(), 0
        self.watch = ContextWatch(
            ContextOrder(
                settings=LIMITS,
                notice=self.notice,
                result_file=Path("/seen/result.json"),
                written=self.result,
                state_file=self.state,
                workspace=None if shared else repo,
                docs=("_docs",),
                tools_before=tools_before,
            )
        )

    async def begin(self) -> str:
        """Begin a tool call, and return its name."""
        self._tools += 1
        self._tally.add(AgentUpdate(begun=(str(self._tools),)), 0.0)
        assert await self.watch.see(self._tally, 0.0) == ""
        return str(self._tools)

    async def end(self, name: str, *, failed: bool = False) -> str:
        """End a tool call; return why the session must end."""
        result = ToolResult(id=name, failed=failed)
        self._tally.add(AgentUpdate(ended=(name,), results=(result,)), 0.0)
        return await self.watch.see(self._tally, 0.0)

    async def call(self, number: int = 1, *, failed: bool = False) -> str:
        """Make so many tool calls; return why the session must end after the last."""
        why = ""
        for _ in range(number):
            assert why == ""
            why = await self.end(await self.begin(), failed=failed)
        return why


async def test_a_session_is_told_once_it_enters_a_zone(repo: Path) -> None:
    """Nothing while it is safe; then what to do, with its own path of the result; never back."""
    session = Session(repo)
    await session.call()
    assert (session.watch.zone, session.notice.exists()) == (Zone.SAFE, False)
    await session.call()
    text = session.notice.read_text()
    assert "Context zone: caution (2 tool calls)." in text
    assert 'write {"status": "partial"} to /seen/result.json' in text
    await session.call(2, failed=True)
    assert "or after 3 further tool calls" in session.notice.read_text()
    assert await session.call() == "", "a success does not lead back"
    assert session.watch.zone is Zone.DANGER


@pytest.mark.parametrize(
    "save",
    [
        lambda session: session.state.write_text("sub_step: 2\n"),
        lambda session: git(session.repo, "commit", "-q", "--allow-empty", "-m", "batch"),
    ],
    ids=["sub-step", "commit"],
)
async def test_in_danger_it_ends_when_it_has_saved(repo: Path, save: Callable[[Session], object]) -> None:
    """Not while another of its tool calls runs."""
    session = Session(repo)
    await session.call(4)
    one, other = await session.begin(), await session.begin()
    save(session)
    assert await session.end(one) == ""
    assert await session.end(other) == "context limit: 4 tool calls; ended at its next save"


async def test_one_that_saves_nothing_ends_after_its_patience(repo: Path) -> None:
    """And not while a tool call runs."""
    session = Session(repo)
    assert await session.call(6) == ""
    assert await session.call() == "context limit: 4 tool calls; ended after 3 further tool calls"


async def test_one_that_has_written_its_result_ends_by_itself(repo: Path) -> None:
    """It has saved and is about to exit; only its patience still counts."""
    session = Session(repo)
    await session.call(4)
    session.state.write_text("sub_step: 2\n")
    session.result.write_text("{}")
    assert await session.call(2) == ""
    assert "3 further tool calls" in await session.call()


async def test_commits_in_a_shared_tree_are_not_its_own(repo: Path) -> None:
    """There a session makes none, and the user may."""
    session = Session(repo, shared=True)
    await session.call(4)
    git(repo, "commit", "-q", "--allow-empty", "-m", "by the user")
    assert await session.call() == ""


async def test_a_conversation_that_is_resumed_is_as_full_as_it_was(repo: Path) -> None:
    """Its earlier tool calls count, also towards the danger."""
    session = Session(repo, tools_before=3)
    await session.call()
    assert session.watch.zone is Zone.DANGER


async def test_a_folder_that_is_gone_ends_nothing(repo: Path) -> None:
    """The session may remove what it likes; it is still ended in time."""
    session = Session(repo)
    shutil.rmtree(session.exchange)
    session.state.unlink()
    assert "3 further tool calls" in await session.call(7)
