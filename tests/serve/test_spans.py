"""Spans of a run from its events: the same ids each time, a further round for what continues, tool calls."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.core.events import events as ev
from runner.core.events.events import Event
from runner.core.model import StoryId
from runner.serve.export.spans import Span, SpanFold
from runner.serve.export.tool_calls import tool_spans
from tests.records.sample_runs import RUN, done, event, failed, mixed_events, started, working

RECORDINGS = Path(__file__).parents[1] / "agents" / "recordings"


def _spans(events: Sequence[Event]) -> list[Span]:
    fold = SpanFold(RUN)
    return [span for each in events for span in fold.add(each)]


def test_a_session_has_the_attributes_of_the_conventions() -> None:
    """Any tool for traces of models finds the agent, its service and its tokens."""
    session = next(span for span in _spans(mixed_events()) if span.session)
    assert session.name == "invoke_agent claude"
    told = session.attributes
    assert told["gen_ai.operation.name"] == "invoke_agent"
    assert told["gen_ai.provider.name"] == told["gen_ai.system"] == "anthropic"
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (1000, 50)
    assert (told["autopilot.story"], told["autopilot.attempt"]) == ("api-3", 1)
    assert (told["autopilot.outcome"], told["autopilot.cost_usd"]) == ("ok", 0.25)


def test_ids_are_those_of_the_run_and_nothing_else() -> None:
    """The same events give the same spans, in whichever parts they are read."""
    once = _spans(mixed_events())
    assert once == _spans(mixed_events())
    assert len({span.span_id for span in once}) == len(once)
    assert {span.trace_id for span in once} == {once[0].trace_id}


def test_a_story_that_is_tried_again_gets_a_further_span() -> None:
    """A span never changes once it was sent: what continues later has its own, in the same trace."""
    again = replace(working("a", 60)[3].body, session_id="second", attempt=2)
    ended = replace(failed("a", 70, "")[0].body, session_id="second", outcome="ok")
    events = [
        *(started("a"), *working("a", 1), *failed("a", 30, "verify failed")),
        *(event(31, ev.RunEnded(exit_code=3)), event(50, ev.RunResumed(requeued=("a",)))),
        *(event(60, ev.StoryStarted(story_id=StoryId("a"))), event(61, again), event(70, ended)),
        *(done("a", 71)[3], event(80, ev.RunEnded(exit_code=0))),
    ]
    spans = _spans(events)
    first, second = [span for span in spans if span.name == "story a"]
    assert (first.problem, second.problem) == ("verify failed", "")
    assert first.span_id != second.span_id
    assert [moment.name for moment in first.moments] == ["attempt failed"]
    root, resume = [span for span in spans if span.name in {"run", "resume"}]
    assert root.parent_id is None
    assert resume.parent_id == root.span_id
    assert (first.parent_id, second.parent_id) == (root.span_id, resume.span_id)
    sessions = [span.parent_id for span in spans if span.session]
    assert sessions == [first.span_id, second.span_id]


def test_a_session_that_a_kill_left_open_ends_where_the_journal_ends() -> None:
    """Nobody knows when it ended; the last instant that is known is not after that."""
    events = [started("a"), *working("a", 1), event(9, ev.Noted(message="x")), event(60, ev.RunResumed())]
    (span,) = _spans(events)
    assert span.problem == span.attributes["autopilot.outcome"] == "interrupted"
    assert span.end == events[-2].at


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "opencode", "qwen"])
def test_the_tool_calls_of_a_log_are_spans_within_their_session(agent: str) -> None:
    """Real output of each agent: names of tools, no arguments, times inside the session and marked."""
    parent = next(span for span in _spans(mixed_events()) if span.session)
    assert parent.session is not None
    parent = replace(parent, session=replace(parent.session, agent=agent))
    spans = tool_spans(parent, RECORDINGS / f"{agent}-done.log")
    assert spans == tool_spans(parent, RECORDINGS / f"{agent}-done.log")
    assert len({span.span_id for span in spans}) == len(spans) == 2
    for span in spans:
        assert span.parent_id == parent.span_id
        assert parent.start <= span.start <= span.end <= parent.end
        assert span.attributes["gen_ai.operation.name"] == "execute_tool"
        assert span.attributes["autopilot.time_estimated"] is True
        assert span.name != "execute_tool tool"
        assert set(str(span.attributes["gen_ai.tool.name"])) & set("/.$") == set()


def test_a_command_and_a_missing_log_have_no_tool_calls(tmp_path: Path) -> None:
    """What a command prints is its own, whatever it looks like."""
    parent = next(span for span in _spans(mixed_events()) if span.session)
    assert parent.session is not None
    assert tool_spans(parent, tmp_path / "none") == ()
    command = replace(parent, session=replace(parent.session, agent="command"))
    assert tool_spans(command, RECORDINGS / "claude-done.log") == ()
