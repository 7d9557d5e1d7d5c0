"""Lines of an agent's output, and what they add up to."""

from hypothesis import given
from hypothesis import strategies as st

from runner.core.limits.agent_output import LONGEST_TOOL, AgentUpdate, LineSplitter, Tally, since
from runner.core.model import Usage


@given(st.lists(st.binary(max_size=20)), st.integers(min_value=1, max_value=50))
def test_lines_are_the_same_however_the_stream_is_cut(pieces: list[bytes], size: int) -> None:
    """What is split in any way gives the same lines."""
    stream = b"\n".join(pieces)
    lines = LineSplitter()
    found: list[bytes] = []
    for start in range(0, len(stream), size):
        found += lines.feed(stream[start : start + size])
    assert [*found, lines.rest()] == stream.split(b"\n")


def test_a_line_without_end_costs_no_memory() -> None:
    """One that is longer than the limit is left out and counted; the next one is read."""
    lines = LineSplitter(limit=100)
    for _ in range(1000):
        assert lines.feed(b"x" * 64) == []
        assert len(lines.rest()) <= 100
    assert lines.feed(b"\nnext\n") == [b"next"]
    assert lines.dropped == 1


def test_an_open_tool_is_life_and_not_for_ever() -> None:
    """Acceptance 36: a tool that runs excuses silence, up to a bound; its end does so no more."""
    tally = Tally()
    tally.add(AgentUpdate(begun=("t",)), 10.0)
    assert tally.busy(10.0 + LONGEST_TOOL - 1)
    assert not tally.busy(10.0 + LONGEST_TOOL)
    tally.add(AgentUpdate(ended=("t",)), 20.0)
    assert not tally.busy(21.0)
    assert tally.uses == 1


def test_an_announced_retry_is_life_until_then() -> None:
    """Acceptance 36: waiting to ask again excuses silence until the time it named, or the next word."""
    tally = Tally()
    tally.add(AgentUpdate(retry_seconds=300), 0.0)
    assert tally.busy(299)
    assert not tally.busy(301)
    tally.add(AgentUpdate(message="on we go"), 100.0)
    assert not tally.busy(101)


def test_tools_whose_end_was_left_out_are_forgotten() -> None:
    """A tool must not seem open for ever because its result was too long to read."""
    tally = Tally()
    tally.add(AgentUpdate(begun=("t",)), 0.0)
    tally.forget_tools()
    assert not tally.busy(1.0)


def test_usage_is_replaced_or_summed() -> None:
    """Some agents tell totals, others parts."""
    parts = [Usage(input_tokens=10, cost_usd=0.5), Usage(input_tokens=5, cost_usd=0.25)]
    for sums, tokens in ((True, 15), (False, 5)):
        tally = Tally(sums=sums)
        for part in parts:
            tally.add(AgentUpdate(usage=part), 0.0)
        assert tally.usage.input_tokens == tokens


def test_a_session_has_used_what_its_conversation_gained() -> None:
    """Totals of a whole thread are reduced by what earlier sessions used; unknown stays unknown."""
    before = Usage(input_tokens=29_946, output_tokens=60)
    total = Usage(input_tokens=60_912, output_tokens=120, cached_tokens=7)
    gained = since(total, before)
    assert (gained.input_tokens, gained.output_tokens, gained.cached_tokens) == (30_966, 60, 7)
    assert since(Usage(input_tokens=5), before).input_tokens == 5
    assert since(Usage(), before) == Usage()
