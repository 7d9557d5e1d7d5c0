"""What each agent's lines are read as, and how each is started and resumed."""

import json
import os
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from isolation.network.rules import read_entry
from runner.agents import known
from runner.agents.catalog import KNOWN, PROGRAMS
from runner.agents.faults import failed, fault_of
from runner.agents.listener import OutputListener
from runner.agents.protocol import Agent, AgentJob
from runner.core.agent_settings import AgentSettings
from runner.core.limits.agent_output import Fault, Final
from runner.core.model import Story, StoryId, Usage

JOB = AgentJob(
    story=Story(id=StoryId("a"), title="A", prompt="Do it."),
    workspace=Path("/w/a"),
    session_id="run/a/01-implement-1",
    model="m-1",
    prompt=Path("/w/a/prompt.md"),
    git_dirs=(Path("/r/.git"), Path("/r/.git/worktrees/a")),
    verify=("make test", "odd (one)"),
    cost=1.5,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "subtype",
                    "message",
                    "content",
                    "item",
                    "usage",
                    "part",
                    "error",
                    "result",
                    "tokens",
                    "stats",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(
    [
        *("assistant", "user", "system", "result", "rate_limit_event", "thread.started", "item.started"),
        *("item.completed", "turn.completed", "turn.failed", "error", "tool_use", "text", "step_finish"),
        *("message", "tool_result"),
    ]
)


def agent(name: str, **settings: Any) -> Agent:
    """Make a known agent."""
    return KNOWN[name](AgentSettings(**settings))


def heard(name: str, *events: object) -> OutputListener:
    """Let an agent's events be heard."""
    hearing = OutputListener(agent(name))
    for event in events:
        hearing.feed(json.dumps(event).encode() + b"\n", 0.0)
    return hearing


def test_every_file_of_a_known_agent_is_listed() -> None:
    """One file and one line in the catalog make an agent known; a file without its line is noticed."""
    files = Path(known.__file__).parent.glob("*.py")
    assert {file.stem for file in files} - {"__init__"} == set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_every_agent_declares_how_it_is_found_and_signed_in(name: str) -> None:
    """The doctor, the search for other sessions and a sealed network need this."""
    declared = KNOWN[name]
    assert declared.package
    assert declared.sign_in.variables
    assert all(read_entry(entry) for entry in declared.endpoint.entries({}))
    assert declared.endpoint.entries({})
    assert {program.name: program.package for program in PROGRAMS}[name] == declared.package


@pytest.mark.parametrize("name", KNOWN)
@given(kind=KINDS, rest=JSON, noise=st.binary(max_size=40))
def test_no_line_breaks_a_parser(name: str, kind: str, rest: object, noise: bytes) -> None:
    """Whatever an agent prints, it is read or left out."""
    reader = agent(name)
    event = {**(rest if isinstance(rest, dict) else {"message": rest}), "type": kind}
    for line in (noise, json.dumps(rest).encode(), json.dumps(event).encode(), b"[" * 100_000):
        reader.parse(line)


@pytest.mark.parametrize("half", [r"\ud800", r"\uDBFF", r"\udc00", r"\uDFFF"])
def test_half_a_character_is_no_text(half: str) -> None:
    """JSON can name it, but no file or hash can have it: found by fuzzing, as the error of a codex."""
    message = json.dumps('{"type": "error HALF", "error": {"message": "HALF, 😀"}}').replace("HALF", half)
    line = f'{{"type": "error", "message": {message}}}'.encode()
    update = agent("codex").parse(line)
    assert update is not None
    assert "?, 😀" in str(update)


@pytest.mark.parametrize("name", KNOWN)
def test_every_agent_gets_its_model_and_its_own_arguments(name: str) -> None:
    """The model is given at the start and at every resume; the user's arguments and variables too."""
    own = agent(name, args=("--own",), env={"X": "1"})
    for job in (JOB, replace(JOB, conversation="c-1")):
        launch = own.launch(job)
        assert launch.argv[0] == name
        assert {"m-1", "--own"} <= set(launch.argv)
        assert launch.env["X"] == "1"
    assert "" not in own.launch(replace(JOB, model="")).argv


@pytest.mark.parametrize("name", ["claude", "codex", "opencode", "gemini", "qwen"])
def test_a_conversation_is_resumed_by_its_id(name: str) -> None:
    """The id is among the arguments, and identifies the next session."""
    launch = agent(name).launch(replace(JOB, conversation="c-1"))
    assert "c-1" in launch.argv
    assert launch.conversation == "c-1"


def test_a_new_conversation_of_opencode_has_a_title() -> None:
    """It would pay a model for one otherwise, and tell nobody; a title of the user's own stays."""
    assert "--title=a" in agent("opencode").launch(JOB).argv
    assert "--title=a" not in agent("opencode").launch(replace(JOB, conversation="c-1")).argv
    own = agent("opencode", args=("--title", "Mine")).launch(JOB).argv
    assert [word for word in own if word.startswith("--title")] == ["--title"]


@pytest.mark.parametrize("name", KNOWN)
def test_bypass_is_only_the_users_word(name: str) -> None:
    """The default gives no agent all permissions; `bypass` changes the command where it can."""
    free = {"bypassPermissions", "danger-full-access", "--auto", "yolo"}
    least, bypass = (agent(name, permissions=word).launch(JOB).argv for word in ("edit", "bypass"))
    assert not free & set(least)
    assert (least == bypass) is (name == "aider")  # it runs no command either way


def test_claude_may_edit_and_run_what_judges_it() -> None:
    """A verify command that its rules can express is allowed; others are not cut into something else."""
    argv = agent("claude").launch(JOB).argv
    allowed = argv[argv.index("--allowedTools") + 1].split(",")
    assert "Bash(make test)" in allowed
    assert not any("odd" in rule for rule in allowed)
    assert "Bash(git push:*)" not in allowed
    assert argv[argv.index("--max-budget-usd") + 1] == "1.5000"


def test_codex_tells_tools_messages_and_errors() -> None:
    """Its items are tools with a beginning and an end; a warning and a reconnect are no end."""
    command = {"id": "i1", "type": "command_execution", "command": "make\ntest"}
    hearing = heard(
        "codex", {"type": "thread.started", "thread_id": "t"}, {"type": "item.started", "item": command}
    )
    assert (hearing.tally.conversation, hearing.line) == ("t", "command execution: make test")
    assert hearing.tally.busy(1.0)
    hearing = heard("codex", {"type": "error", "message": "Reconnecting... 1/5 (unexpected status 529)"})
    assert hearing.tally.busy(1.0)
    assert hearing.tally.final is None
    refused = {"type": "error", "message": "Reconnecting... 2/5 (unexpected status 401 Unauthorized)"}
    assert heard("codex", refused).hopeless


def test_a_complaint_is_found_above_a_trace() -> None:
    """A program that ends before its first event says why in plain text, perhaps with a stack trace."""
    hearing = OutputListener(agent("codex"))
    error = b"Error: thread/resume failed: no rollout found for thread id x (code -32600)\n"
    hearing.feed(error + b"\nStack backtrace:\n   0: <unknown>\n", 0.0)
    verdict = hearing.verdict(1, "0: <unknown>", at=0.0)
    assert verdict is not None
    assert (verdict.fault, verdict.message) == (Fault.LOST, error.decode().strip())
    assert OutputListener(agent("codex")).verdict(1, "0: <unknown>", at=0.0) is None


def test_opencode_sums_its_steps() -> None:
    """Each step reports its own tokens and cost; the last one that stops is the end."""
    step = {"tokens": {"input": 10, "output": 2, "cache": {"read": 4}}, "cost": 0.5}
    hearing = heard(
        "opencode",
        {"type": "step_finish", "sessionID": "s", "part": {**step, "reason": "tool-calls"}},
        {"type": "tool_use", "part": {"id": "p", "tool": "bash", "state": {"input": {"command": "ls"}}}},
        {"type": "step_finish", "part": {**step, "reason": "stop"}},
    )
    tally = hearing.tally
    assert (tally.conversation, tally.uses, tally.usage.input_tokens, tally.usage.cost_usd) == (
        "s",
        1,
        28,
        1.0,
    )
    assert tally.final is not None
    assert tally.final.ok
    error = {"type": "error", "error": {"name": "APIError", "data": {"message": "no", "statusCode": 429}}}
    final = heard("opencode", error).tally.final
    assert final is not None
    assert final.fault is Fault.LIMIT


def test_opencode_says_in_its_log_alone_that_it_retries() -> None:
    """It is waited for, since its log is not silent; when no money is left, nobody waits."""
    head = b"timestamp=2026-11-18T07:39:47.392Z level=ERROR run=f0626ff3 message="
    refused = head + b'"stream error" providerID=x modelID=m-1 small=false error.error="AI_APICallError: %s"'
    opencode = agent("opencode")
    seen = opencode.parse(refused % rb"say \"busy\" again")
    assert seen is not None
    assert (seen.message, seen.final) == ('say "busy" again', None)
    assert (seen.retry_seconds or 0) > 60
    unpaid = opencode.parse(refused % b"You exceeded your current quota, please check your plan.")
    assert unpaid is not None
    assert unpaid.final is not None
    assert unpaid.final.fault is Fault.PERMANENT
    assert opencode.parse(head + b'"another error" error.error="AI_APICallError: no"') is None
    assert "--print-logs" in opencode.launch(JOB).argv
    assert opencode.launch(JOB).argv.count("--log-level") == 1
    own = agent("opencode", args=("--log-level=DEBUG",)).launch(JOB).argv
    assert "ERROR" not in own


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("[API Error: 401 bad key]", Fault.PERMANENT),
        ("[API Error: 429 slow down]\nPossible quota limitations in place. Try again later.", Fault.LIMIT),
    ],
)
def test_qwen_hides_an_error_in_a_success(words: str, fault: Fault) -> None:
    """`[API Error: 401 …]` as the result of a success is a failure, whatever advice follows it."""
    result = {"type": "result", "subtype": "success", "is_error": False, "result": words}
    final = heard("qwen", result).tally.final
    assert final is not None
    assert (final.ok, final.fault) == (False, fault)


def test_gemini_and_aider_tell_what_they_used() -> None:
    """Gemini in its last event, aider in a line of text for each message."""
    stats = {"input_tokens": 7, "output_tokens": 3}
    assert heard("gemini", {"type": "result", "status": "success", "stats": stats}).tally.usage.tokens == 10
    hearing = OutputListener(agent("aider"))
    line = b"Tokens: 2.5k sent, 120 received. Cost: $0.01 message, $0.02 session.\n"
    hearing.feed(line * 2, 0.0)
    usage = hearing.tally.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (5000, 240, 0.02)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        ("litellm.AuthenticationError: AuthenticationError: OpenAIException - bad key", Fault.PERMANENT),
        ("litellm.NotFoundError: OpenAIException - no such model", Fault.PERMANENT),
        ("litellm.RateLimitError: RateLimitError: OpenAIException - slow down", Fault.LIMIT),
        ("litellm.InternalServerError: AnthropicException - Overloaded", Fault.TRANSIENT),
        ("litellm.APIConnectionError: OpenAIException - Connection error.", Fault.TRANSIENT),
        ("litellm.Timeout: APITimeoutError - Request timed out.", Fault.TRANSIENT),
    ],
)
def test_an_error_of_aider_is_its_last_word_until_a_reply_comes(error: str, fault: Fault) -> None:
    """It exits with 0 anyway; a reply after a retry, or one that quotes an error, is a success."""
    hearing = OutputListener(agent("aider"))
    hearing.feed(f"{error}\nRetrying in 4.0 seconds...\n".encode(), 0.0)
    verdict = hearing.verdict(0, "", at=0.0)
    assert verdict is not None
    assert (verdict.ok, verdict.fault) == (False, fault)
    assert (hearing.tally.busy(3.0), hearing.tally.busy(5.0)) == (True, False)
    assert not hearing.hopeless
    hearing.feed(b"Tokens: 1.0k sent, 10 received.\n", 6.0)
    assert hearing.verdict(0, "", at=0.0) == Final(ok=True)


def test_aider_leaves_nothing_in_the_worktree() -> None:
    """Its histories go where the prompt is; its cache, which stays, is ignored by git."""
    argv = agent("aider").launch(JOB).argv
    for flag in ("--chat-history-file", "--input-history-file"):
        assert Path(argv[argv.index(flag) + 1]).parent == JOB.prompt.parent
    assert agent("aider").traits.litter == ("/.aider.tags.cache.v*/",)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests", Fault.LIMIT),
        ("unexpected status 401 Unauthorized: no", Fault.PERMANENT),
        ("unexpected status 503 Service Unavailable", Fault.TRANSIENT),
        ("Selected model is at capacity. Please try a different model.", Fault.TRANSIENT),
        ("stream disconnected before completion: idle timeout waiting for SSE", Fault.TRANSIENT),
        ("Missing environment variable: `FM_KEY`.", Fault.PERMANENT),
        ("API Error: Unable to connect to API (ConnectionRefused)", Fault.TRANSIENT),
        ("API Error: Repeated 529 Overloaded errors", Fault.TRANSIENT),
        ("Not logged in · Please run /login", Fault.PERMANENT),
        ("No conversation found with session ID: x", Fault.LOST),
        ("No saved session found with ID x. Run `qwen --resume` without an ID to choose.", Fault.LOST),
        ("Error resuming session: No previous sessions found for this project.", Fault.LOST),
        ('Error resuming session: Invalid session identifier "x".', Fault.LOST),
        ("thread/resume failed: no rollout found for thread id x (code -32600)", Fault.LOST),
        ("Quota exceeded. Check your plan and billing details.", Fault.PERMANENT),
        ("You exceeded your current quota, please check your plan and billing details.", Fault.PERMANENT),
        ("You exceeded your current quota: https://example.com/rate-limits, retry in 43s", Fault.LIMIT),
        ("To use Codex with your ChatGPT plan, upgrade to Plus: https://example.com", Fault.PERMANENT),
        ("the tests do not pass", None),
    ],
)
def test_words_tell_the_class_of_a_fault(words: str, fault: Fault | None) -> None:
    """Seen in the real programs; what is not known is the work's own failure."""
    assert fault_of(words) is fault


def test_the_time_that_a_limit_names_is_kept() -> None:
    """As seconds from now, or as an instant."""
    assert failed("rate limit: try again in 20s", at=100.0).until == 120.0
    assert failed("Claude AI usage limit reached|1790000000", at=100.0).until == 1790000000.0


@pytest.mark.parametrize(
    ("words", "until"),
    [
        ("at 5:03 PM.", (2026, 11, 18, 17, 4)),
        ("at 3:00 PM.", (2026, 11, 18, 15, 1)),
        ("at 2:59 PM.", (2026, 11, 19, 15, 0)),
        ("at 12:10 AM.", (2026, 11, 19, 0, 11)),
        ("at Jan 15th, 2027 8:00 AM.", (2027, 1, 15, 8, 1)),
        ("at Feb 31st, 2027 8:00 AM.", None),
        ("at 5:03 PM (Asia/Tokyo).", None),
    ],
)
def test_the_minute_that_a_limit_names_in_words_is_over(words: str, until: tuple[int, ...] | None) -> None:
    """On this machine's clock, as codex words it, today or tomorrow; its seconds are not told."""
    at = datetime(2026, 11, 18, 15, 0, 30).timestamp()  # noqa: DTZ001  local, as the words are
    expected = datetime(*until).timestamp() if until else 0.0  # type: ignore[arg-type]  # noqa: DTZ001
    assert failed(f"You have hit your usage limit. Upgrade or try again {words}", at=at).until == expected


def test_codex_trusts_a_repository_for_the_session_unless_its_user_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration of the user's that names the repository, or a folder around it, is respected."""
    (tmp_path / "config.toml").write_text("projects = 3")
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    codex = KNOWN["codex"](AgentSettings())
    assert 'projects={"/w/a" = {trust_level = "trusted"}}' in codex.launch(JOB).argv
    (tmp_path / "config.toml").write_text('[projects."/r"]\ntrust_level = "untrusted"\n')
    assert 'projects={"/w/a" = {trust_level = "untrusted"}}' in codex.launch(JOB).argv


def test_what_a_failed_turn_of_codex_used_is_read_from_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed turn reports no tokens; a file that is damaged or of another thread says nothing."""
    thread = "01a1ea56-31cc-7851-a639-dbde48a5790f"
    folder = tmp_path / "sessions" / "2026" / "11" / "17"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    listener = OutputListener(KNOWN["codex"](AgentSettings()))
    listener.feed(json.dumps({"type": "thread.started", "thread_id": thread}).encode() + b"\n", 0)
    listener.feed(b'{"type":"turn.failed","error":{"message":"status 401"}}\n', 0)
    assert listener.usage(JOB.prompt, Usage()) == Usage()
    lines = ['{"type":"token_count"']
    for total in (1000, 3000):
        info = {"total_token_usage": {"input_tokens": total, "output_tokens": 20, "cached_input_tokens": 5}}
        lines.append(json.dumps({"payload": {"type": "token_count", "info": info}}))
    lines.append('{"payload":{"type":"token_count","info":null}}')
    (folder / f"rollout-2026-11-17T16-27-59-{thread}.jsonl").write_text("\n".join(lines))
    used = Usage(input_tokens=3000, output_tokens=20, cached_tokens=5)
    assert listener.usage(JOB.prompt, Usage()) == used
    assert listener.usage(JOB.prompt, Usage(input_tokens=1000)).input_tokens == 2000, "earlier sessions aside"
    assert KNOWN["codex"](AgentSettings()).recorded("../*", JOB.prompt, Usage()) is None


def test_threads_of_helpers_of_codex_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last event is about its own thread alone; others on this machine are none of its helpers."""
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    own, helper, inner, other = (f"01a1ed04-9fca-75f2-b386-{number:012}" for number in range(4))
    folders = [tmp_path / "sessions" / "2026" / "11" / day for day in ("17", "18")]
    for folder in folders:
        folder.mkdir(parents=True)
    total = {"input_tokens": 500, "output_tokens": 5, "cached_input_tokens": 400}
    count = json.dumps({"payload": {"type": "token_count", "info": {"total_token_usage": total}}})
    roots = {own: (0, own), helper: (0, own), inner: (1, own), other: (1, other)}
    for thread, (day, root) in roots.items():
        head = json.dumps({"payload": {"session_id": root, "id": thread, "parent_thread_id": own}})
        (folders[day] / f"rollout-2026-11-17T16-27-59-{thread}.jsonl").write_text(f"{head}\n{count}\n")
    listener = OutputListener(KNOWN["codex"](AgentSettings()))
    listener.feed(json.dumps({"type": "thread.started", "thread_id": own}).encode() + b"\n", 0)
    ended = {"type": "turn.completed", "usage": {**total, "input_tokens": 3000}}
    listener.feed(json.dumps(ended).encode() + b"\n", 0)
    used = listener.usage(JOB.prompt, Usage(input_tokens=1000, output_tokens=5, cached_tokens=400))
    assert used == Usage(input_tokens=3000, output_tokens=10, cached_tokens=800)


def test_what_helpers_of_opencode_used_is_read_from_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events leave them out; totals are of the conversation, and what earlier sessions used is aside."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    listener = OutputListener(agent("opencode"))
    tokens = {"total": 1010, "input": 1000, "output": 10, "cache": {"read": 0, "write": 0}}
    step = {"type": "step_finish", "sessionID": "s1", "part": {"reason": "stop", "tokens": tokens}}
    listener.feed(json.dumps(step).encode() + b"\n", 0)
    told = Usage(input_tokens=1000, output_tokens=10, cached_tokens=0)
    assert listener.usage(JOB.prompt, Usage()) == told, "without a database, its events count"
    file = tmp_path / "opencode" / "opencode.db"
    file.parent.mkdir()
    file.write_bytes(b"no database")
    assert listener.usage(JOB.prompt, Usage()) == told
    file.unlink()
    counts = ("tokens_input", "tokens_output", "tokens_reasoning", "tokens_cache_read", "tokens_cache_write")
    rows = [("s1", None, 3000, 20, 1, 200, 30, 0.25), ("h1", "s1", 500, 5, 0, 0, 0, 0.5)]
    rows += [("h2", "h1", 50, 5, 0, 0, 0, 0.25), ("other", None, 9999, 9, 9, 9, 9, 9.0)]
    with closing(sqlite3.connect(file)) as books, books:
        books.execute(f"CREATE TABLE session (id, parent_id, {', '.join(counts)}, cost)")
        books.executemany("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    before = Usage(input_tokens=1000, output_tokens=11, cached_tokens=100, cost_usd=0.5)
    assert listener.usage(JOB.prompt, before) == Usage(
        input_tokens=2780, output_tokens=20, cached_tokens=100, cost_usd=0.5
    )


def test_the_exact_numbers_of_aider_are_in_its_log(tmp_path: Path) -> None:
    """It prints rounded ones; a log that is no file, or says nothing, leaves it at those."""
    prompt = tmp_path / "01.prompt.md"
    argv = agent("aider").launch(replace(JOB, prompt=prompt)).argv
    log = Path(argv[argv.index("--analytics-log") + 1])
    assert log.parent == tmp_path
    listener = OutputListener(agent("aider"))
    listener.feed(b"Tokens: 1.2k sent, 10 received. Cost: $0.01 message, $0.01 session.\n", 0)
    rough = Usage(input_tokens=1200, output_tokens=10, cost_usd=0.01)
    assert listener.usage(prompt, Usage()) == rough
    os.mkfifo(log)
    assert listener.usage(prompt, Usage()) == rough
    log.unlink()
    reply = {"prompt_tokens": 1234, "completion_tokens": 10, "cost": 0.0125}
    events = [{"event": "launched", "properties": {}}, {"event": "message_send", "properties": reply}]
    events += [{"event": "message_send", "properties": {**reply, "prompt_tokens": -5}}]
    log.write_text("".join(f"{json.dumps(each)}\n" for each in events) + "{")
    assert listener.usage(prompt, Usage()) == Usage(input_tokens=1234, output_tokens=20, cost_usd=0.025)


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        ("Which database?", True),
        ("**May I delete it?**", True),
        ("May I delete old.txt? Please confirm before I continue.", True),
        ("Should I use SQLite or Postgres? Let me know.", True),
        ("Why is nothing changed? It was all there.", False),
        ("Does it work? Yes.\n\nPlease look at it.", False),
        ("All done.", False),
    ],
)
def test_a_question_at_the_end_is_one_even_if_it_asks_for_an_answer_afterwards(said: str, asks: bool) -> None:  # noqa: FBT001  a row of a table
    """A question that the agent answers itself is none."""
    listener = OutputListener(KNOWN["codex"](AgentSettings()))
    item = {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": said}}
    listener.feed(json.dumps(item).encode() + b'\n{"type":"turn.completed"}\n', 0)
    assert bool(listener.question) is asks


def test_a_question_of_geminis_comes_in_pieces() -> None:
    """What it said before a tool is no part of it."""
    listener = OutputListener(KNOWN["gemini"](AgentSettings()))
    events = [
        {"type": "message", "role": "assistant", "content": "Shall I look?", "delta": True},
        {"type": "tool_use", "tool_name": "ls", "tool_id": "1"},
        *(
            {"type": "message", "role": "assistant", "content": part, "delta": True}
            for part in ("Which", " one?")
        ),
        {"type": "result", "status": "success", "stats": {}},
    ]
    listener.feed("".join(f"{json.dumps(event)}\n" for event in events).encode(), 0)
    assert listener.question == "Which one?"
