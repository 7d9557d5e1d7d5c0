"""What the streams of agents say about their tool calls: files, truncated results, failures."""

import json
from typing import Any

import pytest

from runner.agents.catalog import KNOWN
from runner.agents.listener import OutputListener
from runner.agents.tool_calls import files_read, tool_result
from runner.core.agent_settings import AgentSettings
from runner.core.limits.context_zone import ContextUse
from tests.agents.recordings.reading import FOLDER

KB = 1000


def listened(agent: str, *events: dict[str, Any], stream: bytes = b"") -> ContextUse:
    """Return what a stream adds up to."""
    listener = OutputListener(KNOWN[agent](AgentSettings()))
    listener.feed(stream + b"".join(json.dumps(event).encode() + b"\n" for event in events), 0.0)
    return listener.tally.context.use(KB)


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "gemini", "qwen"])
def test_a_recorded_session_is_counted(agent: str) -> None:
    """Two tool calls of a real program; neither was truncated or failed."""
    stream = (FOLDER / f"{agent}-done.log").read_bytes()
    assert listened(agent, stream=stream) == ContextUse(tools=2)


def test_a_refused_permission_is_no_failure_of_a_tool() -> None:
    """A real program that was denied a command; what it lacks is not context."""
    stream = (FOLDER / "claude-denied.log").read_bytes()
    assert listened("claude", stream=stream) == ContextUse(tools=1)


def claude(
    number: int, tool: str, arguments: dict[str, Any], result: Any, **more: Any
) -> list[dict[str, Any]]:
    """Return a tool call and its result as claude prints them."""
    use = {"type": "tool_use", "id": f"t{number}", "name": tool, "input": arguments}
    block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": result, **more}
    return [
        {"type": "assistant", "message": {"content": [use]}},
        {"type": "user", "message": {"content": [block]}},
    ]


@pytest.mark.parametrize("agent", ["claude", "qwen"])
def test_what_claude_and_qwen_print(agent: str) -> None:
    """Files from their tools and from the shell; content as a text or as blocks."""
    read = "Read" if agent == "claude" else "read_file"
    large = [{"type": "text", "text": "x" * KB}]
    used = listened(
        agent,
        *claude(1, read, {"file_path": "/w/_docs/plan.md"}, large),
        *claude(2, "Bash", {"command": "cat _docs/one.md && head -n 3 _docs/two.md"}, "words"),
        *claude(3, "Bash", {"command": "make"}, "a\n\n... [512 lines truncated] ...\n\nz"),
        *claude(4, "Edit", {"file_path": "a.py"}, "String to replace not found in file.", is_error=True),
    )
    assert used == ContextUse(tools=4, artifacts=3, large_files=1, truncated=1, failures=1)


def test_a_helper_has_a_context_of_its_own() -> None:
    """What a helper agent of claude reads does not fill the session's conversation."""
    inner = [
        {**event, "parent_tool_use_id": "t1"}
        for event in claude(2, "Read", {"file_path": "_docs/a.md"}, "[truncated]", is_error=True)
    ]
    task = claude(1, "Task", {"description": "look"}, "found it")
    assert listened("claude", task[0], *inner, task[1]) == ContextUse(tools=1)


def codex(number: int, command: str, output: str, code: int) -> list[dict[str, Any]]:
    """Return a command as codex prints it."""
    item = {"id": f"i{number}", "type": "command_execution", "command": command}
    done = {**item, "aggregated_output": output, "exit_code": code, "status": "completed"}
    return [{"type": "item.started", "item": item}, {"type": "item.completed", "item": done}]


def test_what_codex_prints() -> None:
    """It reads by shell commands, whose exit code says whether they failed."""
    used = listened(
        "codex",
        *codex(1, "/bin/bash -lc \"sed -n '1,200p' _docs/plan.md\"", "x" * KB, 0),
        *codex(2, "/bin/bash -lc 'make test'", "a\n…1204 tokens truncated…\nz", 2),
        {"type": "item.completed", "item": {"id": "i3", "type": "file_change", "status": "failed"}},
    )
    assert used == ContextUse(tools=3, artifacts=1, large_files=1, truncated=1, failures=2)


def test_what_opencode_and_gemini_print() -> None:
    """The one says in a field that a result was truncated, the other in words."""
    state = {
        "status": "error",
        "input": {"filePath": "/w/_docs/plan.md"},
        "output": "x",
        "metadata": {"truncated": True},
    }
    part = {"id": "p1", "tool": "read", "state": state}
    assert listened("opencode", {"type": "tool_use", "part": part}) == ContextUse(
        tools=1, artifacts=1, truncated=1, failures=1
    )
    use = {"type": "tool_use", "tool_name": "read_file", "tool_id": "r", "parameters": {"path": "_docs/a.md"}}
    result = {"type": "tool_result", "tool_id": "r", "status": "error", "output": "Output too large. Saved."}
    assert listened("gemini", use, result) == ContextUse(tools=1, artifacts=1, truncated=1, failures=1)


@pytest.mark.parametrize(
    ("words", "truncated"),
    [
        ("<persisted-output>\nOutput too large (45.2KB). Full output saved to: /x", True),
        ("... [CONTENT TRUNCATED] ...", True),
        ("File content (31000 tokens) exceeds maximum allowed tokens (25000).", True),
        ("[... omitted 120 of 400 lines ...]", True),
        ("1,024 Characters Truncated", True),
        ("EXCEEDS MAXIMUM ALLOWED TOKENS; OMITTED 3 LINES", True),
        ("x" * 5_000 + " the output was truncated", True),
        ("the output was truncated " + "x" * 90_000, True),
        ("x" * 90_000 + " output truncated " + "x" * 30_000, False),
        ("a" * 90_000 + "\n... [12 lines truncated] ...\n" + "b" * 90_000, True),
        ("the table was truncated by the migration", False),
        ("def truncated(text): return text[:9]", False),
        ("", False),
    ],
)
def test_notices_of_truncation(words: str, truncated: bool) -> None:  # noqa: FBT001  a table of cases
    """A notice has the form of one; the word alone may be anybody's."""
    assert tool_result("t", words).truncated is truncated


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("cat a.md b.md | wc -l", ("a.md", "b.md")),
        ("cd x; nl -ba 'a b.md' > out; ls", ("a b.md",)),
        ("bash -lc 'tail -n 40 log.txt'", ("log.txt",)),
        ("/bin/cat a.md;'cat' b.md", ("a.md", "b.md")),
        ("concat a.md; cat.sh b.md", ()),
        ("grep x a.md", ()),
        ("echo 'open", ()),
        ("", ()),
    ],
)
def test_files_that_a_command_prints(command: str, files: tuple[str, ...]) -> None:
    """Only the usual programs are known, and no shell is needed to tell."""
    assert files_read("Bash", {"command": command}) == files


def test_arguments_of_any_form_are_survived() -> None:
    """They come from a model."""
    assert files_read("Read", None) == ()
    assert files_read("Read", {"file_path": 3}) == ()
    assert files_read("read_many_files", {"paths": ["a", 3, "b"]}) == ("a", "b")
    assert files_read("Bash", {"command": ["cat", "a"]}) == ()
    assert tool_result("t", {"odd": 1}).size == 0
