"""What real programs printed is read as what really happened."""

import re

import pytest

from runner.agents.catalog import KNOWN
from runner.agents.listener import OutputListener
from runner.core.agent_settings import AgentSettings
from runner.core.limits.agent_output import Fault
from tests.agents.recordings.reading import FOLDER, Heard, hear

DONE = Heard(tools=2, input_tokens=3000, output_tokens=30, cost=None, ok=True)
REFUSED = Heard(tools=0, input_tokens=None, output_tokens=None, cost=None, ok=False, fault=Fault.PERMANENT)
NOTHING_USED = Heard(tools=0, input_tokens=0, output_tokens=0, cost=None, ok=False, fault=Fault.PERMANENT)
EXPECTED = {
    "claude-done": Heard(tools=2, input_tokens=3000, output_tokens=30, cost=0.0095, ok=True),
    "claude-overload": Heard(tools=2, input_tokens=3000, output_tokens=30, cost=0.0095, ok=True),
    "claude-denied": Heard(
        tools=1, input_tokens=2000, output_tokens=20, cost=0.0063, ok=True, denied=("Bash: wget example.com",)
    ),
    "claude-limit": Heard(
        tools=0, input_tokens=0, output_tokens=0, cost=0, ok=False, fault=Fault.LIMIT, dated=True
    ),
    "claude-bad-key": REFUSED,
    "codex-done": DONE,
    "codex-overload": DONE,
    "codex-bad-key": REFUSED,
    "opencode-done": Heard(tools=2, input_tokens=3000, output_tokens=30, cost=0.0031, ok=True),
    "opencode-bad-key": REFUSED,
    "gemini-done": DONE,
    "gemini-bad-key": NOTHING_USED,
    "qwen-done": DONE,
    "qwen-bad-key": NOTHING_USED,
    "aider-done": Heard(tools=0, input_tokens=1000, output_tokens=10, cost=0.0021, ok=True, talks=False),
    "aider-bad-key": Heard(
        tools=0,
        input_tokens=None,
        output_tokens=None,
        cost=None,
        ok=False,
        fault=Fault.PERMANENT,
        talks=False,
    ),
}
COMMAND = "seq 1 300; git add -A && git commit -q -m work"


def shown(name: str) -> list[str]:
    """Return what the user sees of a session, line after line."""
    hearing = OutputListener(KNOWN[name.partition("-")[0]](AgentSettings()))
    lines: list[str] = []
    for line in (FOLDER / f"{name}.log").read_bytes().splitlines(keepends=True):
        hearing.feed(line, 0.0)
        if hearing.line and hearing.line not in lines[-1:]:
            lines.append(hearing.line)
    return lines


def test_every_recording_is_read() -> None:
    """None lies about unused."""
    assert {path.stem for path in FOLDER.glob("*.log")} == set(EXPECTED)


def test_no_recording_tells_of_a_machine() -> None:
    """Nothing is left of homes, temporary folders or keys."""
    for recording in FOLDER.glob("*.log"):
        leaked = re.search(r"(?<!/example)/(?:root|tmp|home|srv|Users)/|sk-[a-z]", recording.read_text())
        assert leaked is None, recording.name


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recording_tells_what_happened(name: str) -> None:
    """Tools, tokens, cost, conversation and the final result, as the run had them."""
    assert hear(name.partition("-")[0], (FOLDER / f"{name}.log").read_bytes()) == EXPECTED[name]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("claude-done", ["Write: /example/story/a.txt", f"Bash: {COMMAND}", "All done."]),
        ("opencode-done", ["write: /example/story/a.txt", f"bash: {COMMAND}", "All done."]),
        ("gemini-done", ["write_file: /example/story/a.txt", f"run_shell_command: {COMMAND}", "All done."]),
        ("qwen-done", ["write_file: /example/story/a.txt", f"run_shell_command: {COMMAND}", "All done."]),
    ],
)
def test_progress_is_shown_in_words(name: str, lines: list[str]) -> None:
    """Each tool with what it works on, then the last message; no JSON."""
    assert shown(name) == lines


def test_an_overload_is_shown_while_it_lasts() -> None:
    """A wait for the service is shown in place of progress."""
    assert shown("claude-overload")[0] == "retrying in 1 s: overloaded (status 529)"
    assert shown("codex-overload")[0].startswith("Reconnecting... 1/5 (unexpected status 529")


def test_a_limit_names_its_end() -> None:
    """The instant of the event counts, since the words have only a time of day."""
    hearing = OutputListener(KNOWN["claude"](AgentSettings()))
    hearing.feed((FOLDER / "claude-limit.log").read_bytes(), 0.0)
    verdict = hearing.verdict(1, "", at=0.0)
    assert verdict is not None
    assert (verdict.fault, verdict.until) == (Fault.LIMIT, hearing.tally.resets_at)
    assert verdict.until > 1_790_000_000


@pytest.mark.parametrize("name", EXPECTED)
def test_a_stream_that_breaks_off_says_no_more_than_it_said(name: str) -> None:
    """Cut anywhere, a recording never reports success before its last line."""
    agent, lines = name.partition("-")[0], (FOLDER / f"{name}.log").read_bytes().splitlines(keepends=True)
    if KNOWN[agent](AgentSettings()).traits.says_end:
        assert all(hear(agent, b"".join(lines[:number])).ok is not True for number in range(len(lines)))
