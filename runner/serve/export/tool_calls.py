"""The tool calls of a session as spans below it, read from the session's log.

Logs do not say when something happened, so the times are estimated: the share of the log that was written
before a call is the share of the session that had passed. Each such span says so.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from runner.agents.acp.agent import AcpAgent
from runner.agents.catalog import KNOWN
from runner.core.agent_settings import AgentSettings
from runner.core.limits.agent_output import AgentUpdate, LineSplitter
from runner.serve.export.spans import Span, child_id, has_agent

MOST_CALLS = 2000
"""How many calls of one session are shown; a session in a loop may have any number."""
_CHUNK = 1 << 16
_LONGEST_NAME = 100

Parse = Callable[[bytes], AgentUpdate | None]


class _Call(Struct):
    """A tool call; `begun` and `ended` are places in the log, from 0 to 1."""

    id: str
    name: str
    begun: float
    ended: float | None = None
    failed: bool = False


def tool_spans(span: Span, log: Path) -> tuple[Span, ...]:
    """Return the tool calls of a session's span; none if its log is gone or has none. Blocks."""
    if span.session is None or not has_agent(span.session):
        return ()
    parse = _parser(span.session.agent)
    try:
        size = log.stat().st_size
        with log.open("rb") as file:
            chunks = iter(lambda: file.read(_CHUNK), b"")
            calls = _calls(_updates(chunks, parse), size)
    except OSError:
        return ()
    return tuple(_span(span, number, call) for number, call in enumerate(calls))


def _parser(agent: str) -> Parse:
    """Return how to read a log; an agent that the user has described may print any known format."""
    names = [agent] if agent in KNOWN else list(KNOWN)
    ways: list[Parse] = [KNOWN[name](AgentSettings()).parse for name in names]
    ways.append(AcpAgent(agent, AgentSettings()).parse)

    def parse(line: bytes) -> AgentUpdate | None:
        if not line.startswith(b"{"):
            return None
        updates = (way(line) for way in ways)
        return next((seen for seen in updates if seen is not None and (seen.begun or seen.ended)), None)

    return parse


def _updates(chunks: Iterable[bytes], parse: Parse) -> Iterator[tuple[int, AgentUpdate]]:
    """Return what lines say, each with its place in bytes."""
    splitter, at = LineSplitter(), 0
    for chunk in chunks:
        for line in splitter.feed(chunk):
            at += len(line) + 1
            seen = parse(line)
            if seen is not None:
                yield at, seen


def _calls(updates: Iterable[tuple[int, AgentUpdate]], size: int) -> list[_Call]:
    calls: dict[str, _Call] = {}
    before = 0.0
    for at, seen in updates:
        place = min(1.0, at / max(size, 1))
        failed = {result.id for result in seen.results if result.failed}
        # Some agents report a call only when it ends.
        late = [tool for tool in seen.ended if tool not in calls]
        for tool in (*seen.begun, *late):
            if len(calls) < MOST_CALLS:
                name = _name(seen) if len(seen.begun) + len(late) == 1 else ""
                begun = before if tool in late else place
                calls.setdefault(tool, _Call(id=tool, name=name or "tool", begun=begun))
        for tool in seen.ended:
            if tool in calls:
                calls[tool].ended, calls[tool].failed = place, tool in failed
        before = place
    return list(calls.values())


def _name(seen: AgentUpdate) -> str:
    """Return the name of the tool; what it works on may be private, and stays here."""
    return seen.message.partition(":")[0].strip()[:_LONGEST_NAME]


def _span(parent: Span, number: int, call: _Call) -> Span:
    seconds = parent.end - parent.start
    return Span(
        trace_id=parent.trace_id,
        span_id=child_id(parent, call.id, number),
        parent_id=parent.span_id,
        name=f"execute_tool {call.name}",
        start=parent.start + call.begun * seconds,
        end=parent.start + (1.0 if call.ended is None else call.ended) * seconds,
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id[:_LONGEST_NAME],
            "autopilot.story": parent.attributes["autopilot.story"],
            "autopilot.time_estimated": True,
        },
        problem="the tool failed" if call.failed else "",
    )
