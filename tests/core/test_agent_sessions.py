"""Which command lines are agents, and which processes make up one session."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.agents.catalog import PROGRAMS
from runner.core.limits.agent_sessions import AgentProgram, below, is_agent, sessions

AGENTS = [
    ["claude"],
    ["/home/me/.local/bin/claude", "-p", "--verbose"],
    ["/usr/lib/node_modules/@anthropic-ai/claude-code-linux-x64/claude"],
    ["node", "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js", "-p"],
    ["node", "--max-old-space-size=4096", "--require", "/x/hook.js", "/usr/local/bin/gemini"],
    ["/usr/bin/node", "/opt/x/node_modules/@openai/codex/bin/codex.js", "exec"],
    ["/opt/node_modules/@openai/codex-linux-x64/vendor/x86_64/bin/codex", "exec", "--json"],
    ["node20", "node_modules/@google/gemini-cli/dist/index.js"],
    ["bun", "run", "/opt/bin/opencode"],
    ["/usr/bin/python3.11", "/home/me/.local/bin/aider", "--yes-always"],
    ["python3", "-W", "ignore", "-m", "aider"],
    ["python", "/v/lib/python3.11/site-packages/aider/__main__.py"],
    ["/bin/sh", "/usr/local/bin/qwen"],
]
NO_AGENTS = [
    [],
    [""],
    ["vim", "claude"],
    ["grep", "-r", "codex", "."],
    ["node"],
    ["node", "--require"],
    ["node", "server.js", "claude"],
    ["node", "/srv/claude/server.js"],
    ["node", "/srv/@openai/codex/build.js"],
    ["python3", "/home/me/aider/setup.py"],
    ["python3", "-m", "http.server"],
    ["claude-helper"],
    ["/usr/bin/Claude"],
    ["-bash"],
    ["bash", "-c", "sleep 5; claude"],
    ["/opt/node_modules/@anthropic-ai/claude-code/vendor/ripgrep/rg", "x"],
]


@pytest.mark.parametrize("argv", AGENTS)
def test_agents_are_known_by_program_script_or_package(argv: list[str]) -> None:
    """The shapes in which the real programs run."""
    assert is_agent(argv, PROGRAMS)


@pytest.mark.parametrize("argv", NO_AGENTS)
def test_a_name_elsewhere_on_the_line_makes_no_agent(argv: list[str]) -> None:
    """Only the program counts, not what it works on."""
    assert not is_agent(argv, PROGRAMS)


def test_the_table_can_be_another() -> None:
    """A program of one's own is known when it is named."""
    mine = [AgentProgram(name="mine", package="@me/mine")]
    assert is_agent(["node", "/x/node_modules/@me/mine/main.js"], mine)
    assert is_agent(["/opt/mine"], mine)
    assert not is_agent(["claude"], mine)


@given(st.lists(st.text(max_size=8), max_size=5))
def test_any_command_line_can_be_judged(argv: list[str]) -> None:
    """Nothing on a command line raises."""
    assert is_agent(argv, PROGRAMS) in {True, False}


def test_a_session_counts_once() -> None:
    """Launcher, agent and helper agents, also with a shell between them, are one."""
    parents = {10: 1, 11: 10, 12: 11, 13: 12, 20: 1}
    assert sessions({10, 11, 13, 20}, set(), parents) == {10, 20}


def test_each_story_of_another_run_counts_once() -> None:
    """What is below one keeper is one session, whatever started the run, and however many it starts."""
    parents = {10: 1, 11: 10, 12: 11, 20: 12, 21: 20, 22: 20, 30: 12, 31: 30, 32: 31}
    assert sessions({21, 22, 31, 32}, {20, 30}, parents) == {20, 30}
    assert sessions({10, 21, 22, 31, 32}, {20, 30}, parents) == {10, 20, 30}


def test_a_circle_of_parents_ends() -> None:
    """A table read while pids are reused may be wrong, but never causes an endless loop."""
    assert sessions({2}, set(), {2: 3, 3: 2}) == {2}
    assert below(2, {2: 3, 3: 2}) == {2, 3}


@given(st.dictionaries(st.integers(1, 9), st.integers(0, 9)), st.sets(st.integers(1, 9)))
def test_there_are_never_more_sessions_than_agents(parents: dict[int, int], agents: set[int]) -> None:
    """Every agent has exactly one session, and every session begins with an agent."""
    found = sessions(agents, set(), parents)
    assert found <= agents
    assert bool(found) == bool(agents)


def test_below_is_the_whole_tree() -> None:
    """A process, its children and theirs; no sibling."""
    assert below(5, {5: 1, 6: 5, 7: 6, 8: 1, 9: 8}) == {5, 6, 7}
