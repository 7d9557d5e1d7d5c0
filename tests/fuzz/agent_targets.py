"""Targets for what sessions say: agents' lines, results, questions, selectors, state files, documents."""

import json
from pathlib import Path

from msgspec import structs

from isolation.errors import KeeperError
from isolation.keeper import wire
from isolation.model import SessionSpec
from runner.agents import faults
from runner.agents.catalog import KNOWN
from runner.agents.conversation.log_reader import LogReader
from runner.agents.listener import OutputListener
from runner.agents.result import load_result
from runner.core import agent_question, choose
from runner.core.agent_settings import AgentSettings
from runner.core.choose import QuestionError
from runner.core.conversation.entry import LONGEST_LINE
from runner.core.limits.spiral import failure_digest
from runner.core.limits.stall import LONGEST_WAIT, announced_wait
from runner.core.model import Usage
from runner.core.text import screen
from runner.core.text.screen import neutral
from runner.core.text.telling import telling_lines
from runner.core.work_items.documents import marked, read_items
from runner.flows import boundary_summary, skill_state
from runner.flows.overview import _RETRY
from runner.flows.state.errors import StateError, UnreadableStateError
from runner.flows.state.merging import merge_states
from runner.flows.state.reading import decode, find_problems, parse_state
from runner.flows.state.writing import render
from runner.forge.tracker.files import mark_pending
from runner.forge.tracker.servers import user_servers
from runner.records.deviations import with_deviation
from runner.report.conversation import lines_of
from runner.report.terminal.table import PLAIN
from runner.story.session.selector import parsed
from tests.fuzz.numbers import require_amounts
from tests.fuzz.registry import folder, target, text_of, written

_SPEC = SessionSpec(argv=("agent",), cwd=Path("/"), env={}, prompt=Path("/dev/null"))


@target()
def conversation(data: bytes) -> None:
    """What people see of a log: the first line is the agent that wrote it."""
    agent, _, stream = data.partition(b"\n")
    log = written(stream, "conversation.log")
    entries = list(LogReader(log, text_of(agent)).entries(last=True))
    for line in lines_of(entries, PLAIN):
        assert "\n" not in line
        assert neutral(line) == line
        assert len(line) < 2 * LONGEST_LINE
    assert entries == list(LogReader(log, text_of(agent)).entries(last=True))


def _hear(name: str, data: bytes) -> None:
    """Feed a stream to an agent's reader; only possible amounts may come out."""
    agent = KNOWN[name](AgentSettings())
    for line in data.split(b"\n"):
        require_amounts(agent.parse(line))
    listener = OutputListener(agent)
    listener.feed(data, 0.0)
    listener.end(1.0)
    require_amounts(listener.tally)
    require_amounts(listener.verdict(1, text_of(data), 1.0))
    assert not set(listener.line) & set("\x1b\n\r\x07")


@target()
def agent_books(data: bytes) -> None:
    """What agents keep in files of their own about what they have used."""
    thread, home = "01a1ed04-9fca-75f2-b386-983dc193ba00", folder() / "books"
    for number, part in enumerate(data.split(b"\n=====\n")[:3]):
        written(part, f"books/sessions/2026/11/17/rollout-1-{thread[:-1]}{number}.jsonl")
    written(data, "books/opencode/opencode.db")
    prompt = written(data, "books/one.prompt.aider.jsonl").with_name("one.prompt.md")
    for name in ("aider", "codex", "opencode"):
        agent = KNOWN[name](AgentSettings(env={"CODEX_HOME": str(home), "XDG_DATA_HOME": str(home)}))
        require_amounts(agent.recorded(thread, prompt, Usage()))


@target()
def agent_claude(data: bytes) -> None:
    _hear("claude", data)


@target()
def agent_codex(data: bytes) -> None:
    _hear("codex", data)


@target()
def agent_gemini(data: bytes) -> None:
    _hear("gemini", data)


@target()
def agent_opencode(data: bytes) -> None:
    _hear("opencode", data)


@target()
def agent_qwen(data: bytes) -> None:
    _hear("qwen", data)


@target()
def agent_aider(data: bytes) -> None:
    _hear("aider", data)


@target()
def service_faults(data: bytes) -> None:
    text = text_of(data)
    require_amounts(faults.failed(text, at=0.0))
    faults.fault_of(text)
    assert 0 <= announced_wait(text) <= LONGEST_WAIT


@target()
def output_text(data: bytes) -> None:
    """What is shown, quoted and compared of a session's output."""
    text = text_of(data)
    assert "\x1b" not in screen.neutral(text)
    screen.wrap(text, 40)
    telling_lines(text)
    failure_digest("failed", text)


@target()
def result_file(data: bytes) -> None:
    result = load_result(written(data, "result.json"))
    json.dumps([result.decision, result.waves], allow_nan=False)  # copied as they are: not all are amounts
    require_amounts(structs.replace(result, decision={}, waves=None))
    agent_question.from_result(result.decision)


@target(QuestionError, ValueError)
def recorded_question(data: bytes) -> None:
    question = choose.from_json(json.loads(data))
    choose.render(question)
    assert choose.from_json(choose.to_json(question)) == question


@target()
def selector_answer(data: bytes) -> None:
    selection = parsed(text_of(data))
    assert 0 <= selection.confidence <= 1
    json.dumps([selection.mode, selection.rationale], allow_nan=False)


@target(UnreadableStateError, StateError)
def state_file(data: bytes) -> None:
    """A state file of any dialect; what was read is written back without a change."""
    find_problems(data)
    state = parse_state(decode(data))
    assert parse_state(render(state)).step == state.step
    require_amounts(state)


@target(StateError)
def state_merge(data: bytes) -> None:
    base, ours, theirs, *_ = *text_of(data).split("\n=====\n"), "", "", ""
    merge_states(base, ours, theirs)


@target()
def skill_states(data: bytes) -> None:
    skill_state.compare(skill_state.read_skill_state(written(data, "state.json")), text_of(data[:80]))


@target()
def task_documents(data: bytes) -> None:
    written(data, "tasks/1_one.md")
    written(data, "tasks/order.md")
    produced = boundary_summary.read_produced(folder(), ["tasks/*_*.md", "tasks/order.md"])
    require_amounts(produced)
    assert produced.lines
    _RETRY.fullmatch(text_of(data))


@target()
def tracker_files(data: bytes) -> None:
    home = written(data, "tracker/.claude.json").parent
    for server in user_servers(home, {"HOME": str(home)}, []):
        assert server.hinted is None or server.shown
    for name in ("item.md", "epics.md"):
        path = written(data, f"tracker/{name}")
        mark_pending([path])
        assert not mark_pending([path])
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        ids = {item.key: "SHOP-1" for item in read_items({name: text})}
        once = marked(text, name, ids)
        assert marked(once, name, ids) == once
        assert all(item.id for item in read_items({name: once}))


@target()
def deviations(data: bytes) -> None:
    after = with_deviation(data, b"- something new")
    assert b"- something new" in after


@target(KeeperError)
def keeper_lines(data: bytes) -> None:
    first, _, last = text_of(data).partition("\n")
    wire.read_report(last, 1)
    wire.read_answer(first, _SPEC)
