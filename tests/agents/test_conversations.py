"""What people see of a session: recorded streams as conversations, however their bytes arrive."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.agents.conversation.log_reader import MAX_LINE, LogReader
from runner.core.conversation.entry import LONGEST_LINE, MOST_DETAIL, Entry, Kind, result
from runner.core.conversation.tool_call import tool
from runner.report.conversation import lines_of
from runner.report.terminal.table import PLAIN, Look
from tests.agents.recordings.reading import FOLDER

NUMBERS = [*(f"    {number}" for number in range(1, 7)), "    … 294 more lines"]
RECORDED = {
    "claude-done": [
        "→ Write: /example/story/a.txt",
        "    File created successfully at: /example/story/a.txt (file state is ",
        "→ Bash: seq 1 300; git add -A && git commit -q -m work",
        *NUMBERS,
        "",
        "● All done.",
    ],
    "claude-denied": [
        "→ Bash: wget example.com",
        "✗ This command requires approval",
        "",
        "● All done.",
        "✗ denied: Bash: wget example.com",
    ],
    "claude-bad-key": ["· retrying in 1 s: authentication_failed (status 401)"] * 2,
    "codex-done": [
        "· Model metadata for `gpt-5` not found. Defaulting to fallback metadat",
        "→ shell: printf '%s' 'made' > a.txt",
        "→ shell: seq 1 300; git add -A && git commit -q -m work",
        *NUMBERS,
        "",
        "● All done.",
    ],
    "opencode-done": [
        "→ write: /example/story/a.txt",
        "    Wrote file successfully.",
        "→ bash: seq 1 300; git add -A && git commit -q -m work",
        *NUMBERS,
        "",
        "● All done.",
    ],
    "opencode-bad-key": ["✗ scripted 401"],
    "gemini-done": [
        "Warning: 256-color support not detected. Using a terminal with at leas",
        *["YOLO mode is enabled. All tool calls will be automatically approved."] * 2,
        "Ripgrep is not available. Falling back to GrepTool.",
        "→ write_file: /example/story/a.txt",
        "→ run_shell_command: seq 1 300; git add -A && git commit -q -m work",
        *NUMBERS,
        "",
        "● All done.",
    ],
    "qwen-done": [
        "→ write_file: /example/story/a.txt",
        "    Successfully created and wrote to new file: /example/story/a.txt.",
        "→ run_shell_command: seq 1 300; git add -A && git commit -q -m work",
        *NUMBERS[:-1],
        "    … 296 more lines",
        "",
        "● All done.",
    ],
    "qwen-bad-key": ["✗ [API Error: 401 scripted 401]"],
}
ACP: list[dict[str, object]] = [
    {"type": "session", "id": "s", "resumable": True},
    {"type": "progress", "text": "thinks"},
    {"type": "tool", "id": "1", "title": "Run it", "kind": "execute", "input": {"command": "make"}},
    {"type": "ended", "id": "1", "failed": True, "output": "no rule"},
    {"type": "denied", "what": "rm -rf /"},
    {"type": "message", "text": "Done.\nReally."},
    {"type": "usage", "input": 3},
    {"type": "result", "ok": False, "stop": "refusal"},
]


def shown(stream: bytes, agent: str, folder: Path, look: Look = PLAIN) -> list[str]:
    """Return the lines that a whole log is shown as."""
    log = folder / "log"
    log.write_bytes(stream)
    return list(lines_of(LogReader(log, agent).entries(last=True), look))


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_streams_are_conversations(name: str, tmp_path: Path) -> None:
    """Messages, one line for each tool call, folded results; errors and denials are marked."""
    stream = (FOLDER / f"{name}.log").read_bytes()
    lines = shown(stream, name.partition("-")[0], tmp_path)
    assert [line[:70] for line in lines] == RECORDED[name]


def test_the_text_of_aider_stays_with_its_acts_marked(tmp_path: Path) -> None:
    """It prints text: all of it is shown, and what it did stands out."""
    lines = shown((FOLDER / "aider-done.log").read_bytes(), "aider", tmp_path)
    assert lines[-3:] == ["a.txt", "→ Applied edit to a.txt", "→ Commit f97651d ok"]
    assert "· Tokens: 1.0k sent, 10 received. Cost: $0.0021 message, $0.0021 session." in lines
    failed = shown((FOLDER / "aider-bad-key.log").read_bytes(), "aider", tmp_path)
    assert "✗ litellm.AuthenticationError: AuthenticationError: OpenAIException - scripted 401" in failed


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.log")))
def test_no_recorded_event_is_shown_as_json(name: str, tmp_path: Path) -> None:
    """Every event of every recording is understood, also under a name that the user chose."""
    stream = (FOLDER / f"{name}.log").read_bytes()
    for agent in (name.partition("-")[0], "mine"):
        assert not [line for line in shown(stream, agent, tmp_path) if line.startswith("{")]


def test_events_of_the_protocol_driver_are_known_by_their_mark(tmp_path: Path) -> None:
    """An agent that speaks ACP has any name, also one that is known for another format."""
    stream = b"".join(json.dumps({"via": "acp", **event}).encode() + b"\n" for event in ACP)
    expected = [
        "→ execute: make",
        "✗ no rule",
        "✗ denied: rm -rf /",
        "",
        "● Done.",
        "  Really.",
        "✗ it refused to continue",
    ]
    for agent in ("mine", "claude"):
        assert shown(stream, agent, tmp_path) == expected


def test_the_output_of_a_command_is_text_whatever_it_looks_like(tmp_path: Path) -> None:
    """Verify commands and stories with a `command` print what they like."""
    event = b'{"type": "error", "message": "no"}\n'
    for agent in ("", "command"):
        assert shown(event + b"\n\tplain", agent, tmp_path) == [event.decode().strip(), "", "    plain"]


def test_a_message_in_parts_is_one(tmp_path: Path) -> None:
    """Parts are joined until something else follows; `offset` does not run ahead of what was returned."""
    parts = [
        {"type": "message", "timestamp": "t", "content": words, "delta": True} for words in ("Hel", "lo\nyou")
    ]
    log = tmp_path / "log"
    log.write_bytes(b"".join(json.dumps(part).encode() + b"\n" for part in parts))
    reader = LogReader(log, "gemini")
    assert list(reader.entries()) == []
    assert reader.offset == 0
    assert [entry.text for entry in reader.entries(last=True)] == ["Hello\nyou"]
    assert reader.offset == log.stat().st_size


@given(data=st.data(), name=st.sampled_from(["claude-denied", "codex-done", "gemini-done", "aider-done"]))
def test_a_growing_log_reads_like_a_whole_one(
    data: st.DataObject, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Wherever a log is cut, by bytes that arrive or by a new reader, the same entries come once each."""
    stream = (FOLDER / f"{name}.log").read_bytes()
    agent = name.partition("-")[0]
    log = tmp_path_factory.getbasetemp() / "growing"
    log.write_bytes(stream)
    whole = list(LogReader(log, agent).entries(last=True))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=4).map(sorted))
    renew = data.draw(st.booleans())
    found: list[Entry] = []
    reader = LogReader(log, agent)
    for cut in cuts:
        log.write_bytes(stream[:cut])
        found += reader.entries()
        reader = LogReader(log, agent, reader.offset) if renew else reader
    log.write_bytes(stream)
    assert found + list(reader.entries(last=True)) == whole


def test_hostile_text_is_harmless_in_every_kind(tmp_path: Path) -> None:
    """No escape sequence, no reordering and no endless line gets through."""
    evil = "\x1b]0;owned\x07\x1b[2J\u202eevil\x9b31m" + "x" * 50_000
    blocks = [
        {"type": "text", "text": evil},
        {"type": "thinking", "thinking": evil},
        {"type": "tool_use", "name": evil, "input": {"command": evil}},
        {"type": "tool_use", "name": 3, "input": [evil]},
        {"type": "tool_result", "content": evil, "is_error": True},
    ]
    events = [
        {"type": "assistant", "message": {"content": blocks}},
        {"type": "result", "subtype": evil},
        {"type": "system", "subtype": "api_retry", "error": evil},
    ]
    stream = b"".join(json.dumps(event).encode() + b"\n" for event in events) + evil.encode()
    lines = shown(stream, "claude", tmp_path)
    assert not [line for line in lines if not line.isprintable()]
    assert max(map(len, lines)) < LONGEST_LINE + 100
    assert sum(map(len, lines)) < 6 * MOST_DETAIL


def test_a_line_beyond_all_bounds_is_a_remark(tmp_path: Path) -> None:
    """What no agent prints in one line is not kept in memory; what follows it is read."""
    lines = shown(b"x" * (MAX_LINE + 100_000) + b"\nnext\n", "claude", tmp_path)
    assert lines == [f"… a line of {MAX_LINE + 100_000:,} bytes", "next"]


def test_a_failed_result_shows_its_end() -> None:
    """An error is at the end of an output; of a success the first lines say enough."""
    output = "\n".join(str(number) for number in range(40))
    assert list(lines_of([result(output, failed=True)], PLAIN))[:3] == ["✗ … 28 more lines", "  28", "  29"]
    assert result(output, failed=True).detail == output
    folded = tool("Bash", {"command": "cat <<'END'\n1\n2\nEND"})
    assert (folded.kind, folded.more) == (Kind.TOOL, 3)
    assert list(lines_of([folded], PLAIN)) == ["→ Bash: cat <<'END' … 3 more lines"]
