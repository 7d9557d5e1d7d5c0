"""What is read can be written, and what is written reads back: losslessly, in every dialect."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from runner.flows.state.conversion import convert_state
from runner.flows.state.errors import UnreadableStateError
from runner.flows.state.model import Dialect, StateFile, StepStatus
from runner.flows.state.reading import parse_state, read
from runner.flows.state.vocabulary import STANDARD
from runner.flows.state.writing import TEMPLATES, new_state, render
from tests.flows.state.samples import EXPECTED, NAMES, states, text_of

VARIANTS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "bom": lambda text: "\ufeff" + text,
    "no final newline": lambda text: text.rstrip("\n"),
    "trailing blanks": lambda text: text.replace("\n", " \t\n"),
    "fenced": lambda text: f"# Notes\n\nabove\n\n~~~~markdown\n{text}~~~~\n\nbelow\n",
}


def test_every_fixture_has_a_meaning() -> None:
    """No sample is without its expected state."""
    assert sorted(EXPECTED) == NAMES


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_acceptance_48_samples_are_read_and_written_losslessly(name: str, variant: str) -> None:
    """A sample means what it says however it is dressed, and an unchanged state gives its bytes back."""
    text = VARIANTS[variant](text_of(name))
    if variant == "fenced" and "```" in text_of(name):
        text = text_of(name)
    state = parse_state(text)
    assert state == EXPECTED[name]
    assert state.problems == ()
    assert render(state) == text


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_acceptance_48_a_change_touches_only_its_own_lines(name: str, variant: str) -> None:
    """A new status changes one line; unknown sections, comments and line endings stay."""
    text = VARIANTS[variant](text_of(name))
    if variant == "fenced" and "```" in text_of(name):
        text = text_of(name)
    changed = render(replace(parse_state(text), status=StepStatus.SKIPPED))
    before, after = text.split("\n"), changed.split("\n")
    different = [new for old, new in zip(before, after, strict=True) if old != new]
    assert len(different) == 1
    assert different[0].strip(" \t\r\ufeff") == "status: skipped"
    assert different[0].endswith("\r") == (variant == "crlf")


@given(states())
@settings(max_examples=400, deadline=None)
def test_any_state_round_trips_and_the_second_write_is_stable(state: StateFile) -> None:
    """Whatever may be written reads back as the same values, and writing again changes no byte."""
    text = render(state)
    again = parse_state(text)
    assert again == state
    assert render(again) == text
    assert read(text, STANDARD).state == again


@given(states(), states())
@settings(max_examples=300, deadline=None)
def test_any_state_can_follow_any_other_of_its_dialect(first: StateFile, second: StateFile) -> None:
    """Writing one state into another's text gives exactly the second one's values."""
    text = render(first)
    if first.dialect is second.dialect:
        assert parse_state(render(replace(second, text=text))) == second


@pytest.mark.parametrize("name", NAMES)
@given(state=states())
@settings(max_examples=30, deadline=None)
def test_any_state_can_be_written_into_a_sample(name: str, state: StateFile) -> None:
    """The samples' comments, placeholders and foreign sections survive every change of values."""
    text = text_of(name)
    if state.dialect is not EXPECTED[name].dialect:
        return
    written = render(replace(state, text=text))
    assert parse_state(written) == state
    assert render(parse_state(written)) == written
    for kept in (
        "## House rules\nDo not touch `vendor/`.\n",
        "## Open questions\n| a | b |\n",
        "More notes.",
    ):
        assert (kept in written) == (kept in text)


@given(state=states(dialect=Dialect.RICH))
@settings(max_examples=50, deadline=None)
def test_the_table_of_steps_stays_whatever_is_written(state: StateFile) -> None:
    """A new rich file has it, every write keeps it, and a conversion does not take it for somebody's text."""
    steps = [("0", "Problem", "a|b/*.md"), ("1", "Research", "")]
    text = new_state(Dialect.RICH, reference=steps).text
    written = render(replace(state, text=text))
    assert parse_state(written) == state
    table = (
        "\n## Step ↔ SubStep Reference\n\n| Step | Name | Artifacts |\n|------|------|-----------|\n"
        "| 0 | Problem | a\\|b/*.md |\n| 1 | Research |  |\n\n## Completed Steps\n"
    )
    assert table in written
    more = text.replace("\n\n## Completed", "\nmine\n\n## Completed")
    for one, own in ((text, False), (more, True)):
        made = convert_state(parse_state(one), Dialect.AUTODEV, flow="greenfield", step="1")
        assert ("text of its own" in made.unheld) == own


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "tail",
    [
        "step: 2\n",
        "\ncycle: 2\n",
        "owner: x\n",
        "\nwords\n\n## Notes\n",
        "\n## Current   Step\n",
        "\n## Notes\n# Autodev State\n",
        "\n## blockers\n- x\n",
        "\n## Blockers\n- x\n",
        "\n ## Key Decisions\n- x\n",
        "\n## Notes\n```\n## Blockers\n- x\n```\n",
        "\n## Notes\n<!--\n## Blockers\n-->\n",
        "\n## Notes\n\n<<<<<<< ours\n",
    ],
)
def test_text_behind_the_block_is_read_without_loss_or_refused(dialect: Dialect, tail: str) -> None:
    """Whatever follows the block, directly or behind the whole file: a lossless state, or a refusal."""
    whole = TEMPLATES[dialect]
    end = whole.index("\n", whole.index("cycle:" if dialect is Dialect.AUTODEV else "retry_count:")) + 1
    for text in (whole + tail, whole[:end] + tail + whole[end:]):
        try:
            state = parse_state(text)
        except UnreadableStateError:
            continue
        assert state.dialect is dialect or "autodev" in tail.lower() or "cycle" in tail
        assert render(state) == text
