"""The same story in another dialect, with nothing lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from runner.core.work_items.tracker import Tracker
from runner.flows.state.conversion import convert_state
from runner.flows.state.errors import StateError
from runner.flows.state.model import AWAITING, IDLE, Dialect, Phase, Position, StateFile
from runner.flows.state.reading import parse_state
from runner.flows.state.vocabulary import Vocabulary
from runner.flows.state.writing import new_state, render
from tests.flows.state.samples import states, text_of


def test_rich_to_autodev_keeps_the_source_under_imported() -> None:
    """The step is found by its name; history goes into the new file word for word."""
    state = parse_state(text_of("rich-plan"))
    made = convert_state(state, Dialect.AUTODEV, flow="greenfield")
    assert (made.state.dialect, made.state.flow, made.state.step, made.state.name) == (
        Dialect.AUTODEV,
        "greenfield",
        "3",
        "Plan",
    )
    assert (made.state.status, made.state.sub_step, made.state.cycle) == (state.status, AWAITING, 1)
    assert made.unheld == ("completed steps", "key decisions", "last session", "text of its own", "sub_step")
    assert f"## Imported\n\n```\n{state.text}```\n" in made.state.text
    assert made.state.problems == ()


def test_a_failed_step_stays_failed() -> None:
    """Status, retries and tracker travel; one step has two names."""
    failed = replace(parse_state(text_of("rich-failed")), tracker=Tracker.LOCAL)
    made = convert_state(failed, Dialect.POINTER, flow="existing-code").state
    assert (made.step, made.name, made.status, made.retry_count) == ("2", "Test Spec", failed.status, 3)
    assert (made.tracker, made.sub_step) == (Tracker.LOCAL, failed.sub_step)
    back = convert_state(parse_state(text_of("pointer-failed")), Dialect.RICH).state
    assert (back.step, back.name, back.problems) == ("2b", "Blackbox Test Spec", ())
    assert "flow: existing-code" in back.text


def test_a_plain_file_needs_no_import() -> None:
    """Where the target holds everything, nothing is added."""
    plain = parse_state(render(replace(new_state(Dialect.POINTER, story="a"), step="3", name="Plan")))
    made = convert_state(plain, Dialect.AUTODEV)
    assert made.unheld == ()
    assert "Imported" not in made.state.text
    again = convert_state(made.state, Dialect.POINTER)
    assert (again.unheld, again.state) == ((), plain)


def test_skipped_steps_keep_their_names_and_get_the_numbers_of_the_target() -> None:
    """There and back: a section in one dialect, rows in the other; one without a counterpart is kept."""
    state = replace(new_state(Dialect.AUTODEV), step="5", name="Decompose")
    state = parse_state(render(replace(state, skipped=("3 — Plan (2026-11-17)",))))
    rich = convert_state(state, Dialect.RICH).state
    assert (rich.skipped_steps, rich.completed[0].completed) == (("2",), "2026-11-17")
    light = convert_state(rich, Dialect.POINTER, flow="greenfield").state
    assert light.skipped == ("3 — Plan (2026-11-17)",)
    own = parse_state(render(replace(state, skipped=("11 — Retrospective", "nothing of ours"))))
    made = convert_state(own, Dialect.RICH)
    assert "skipped steps" in made.unheld
    assert "11 — Retrospective" in made.state.text


def test_a_cycle_and_a_structured_sub_step_are_told_in_words() -> None:
    """An older dialect has no cycle: it is listed, and kept."""
    made = convert_state(parse_state(text_of("autodev-implement")), Dialect.POINTER)
    assert made.unheld == ("cycle",)
    assert made.state.sub_step == Position(text="7 — batch-loop (batch 2 of ~4)")
    assert "cycle: 3" in made.state.text
    awaiting = replace(parse_state(text_of("autodev-plan")), sub_step=AWAITING)
    assert convert_state(awaiting, Dialect.RICH).state.sub_step == IDLE
    unknown = replace(parse_state(text_of("pointer-plan")), sub_step=None)
    assert convert_state(unknown, Dialect.RICH).state.sub_step == IDLE
    assert convert_state(unknown, Dialect.AUTODEV).unheld == ("text of its own",)


def test_the_same_dialect_is_itself() -> None:
    """Nothing is rewritten."""
    state = parse_state(text_of("rich-plan"))
    assert convert_state(state, Dialect.RICH).state is state


def test_what_cannot_be_told_is_refused() -> None:
    """A rich file without a flow, a flow the target has not, a step whose name says nothing."""
    rich, meta = parse_state(text_of("rich-plan")), parse_state(text_of("autodev-config-review"))
    with pytest.raises(StateError, match="does not name its flow") as caught:
        convert_state(rich, Dialect.POINTER)
    assert "greenfield, existing-code" in caught.value.hint
    with pytest.raises(StateError, match="flow 'meta-repo' is not allowed in pointer"):
        convert_state(meta, Dialect.POINTER)
    odd = replace(rich, name="Research")
    with pytest.raises(StateError, match="which step of autodev 'Research' is"):
        convert_state(odd, Dialect.AUTODEV, flow="greenfield")
    assert convert_state(odd, Dialect.AUTODEV, flow="greenfield", step="2").state.step == "2"
    assert convert_state(odd, Dialect.AUTODEV, flow="greenfield", steps={"Research": "2"}).state.step == "2"
    assert convert_state(
        replace(rich, step="done", name="Done"), Dialect.AUTODEV, flow="greenfield"
    ).state.done
    with pytest.raises(StateError, match="step '99'"):
        convert_state(rich, Dialect.AUTODEV, flow="greenfield", step="99")


def test_users_flows_convert_with_their_vocabulary() -> None:
    """A flow of the user's own needs its step table."""
    own = Vocabulary(flows={"release": 4})
    state = new_state(Dialect.POINTER, flow="release", vocabulary=own)
    made = convert_state(state, Dialect.AUTODEV, steps={"Problem": "2"}, vocabulary=own)
    assert (made.state.flow, made.state.step) == ("release", "2")


@given(states(), st.sampled_from(Dialect))
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_by_any_conversion(state: StateFile, to: Dialect) -> None:
    """Every value is in the new file: as a value, or in the kept source."""
    source = parse_state(render(state))
    flow = source.flow if source.flow in {"greenfield", "existing-code"} else "greenfield"
    step = "done" if source.step == "done" else "1"
    made = convert_state(source, to, flow=flow, step=step)
    assert (made.state.status, made.state.retry_count, made.state.tracker) == (
        source.status,
        source.retry_count,
        source.tracker,
    )
    if made.unheld:
        assert source.text in made.state.text
    elif to is not source.dialect:
        assert (source.completed, source.decisions, source.retry_log, source.blockers) == ((), (), (), ())
        assert source.cycle in {None, 1}
        kept = made.state.sub_step
        assert isinstance(kept, Phase | Position)
