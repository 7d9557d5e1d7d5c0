"""Damaged files: a state or a clear refusal, nothing else, and never a lost byte."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.flows.state.disk import swap
from runner.flows.state.disk.files import load_state, save_state
from runner.flows.state.errors import StateError, UnreadableStateError
from runner.flows.state.model import Dialect, StateFile
from runner.flows.state.reading import decode, find_problems, parse_state, read
from runner.flows.state.vocabulary import STANDARD
from runner.flows.state.writing import TEMPLATES, new_state, render
from tests.flows.state.samples import NAMES, text_of

SOURCES = {
    **{name: text_of(name).encode() for name in NAMES},
    **{k.value: TEMPLATES[k].encode() for k in Dialect},
}


def judged(data: bytes) -> StateFile | None:
    """Read bytes: the state, or None for a refusal that says where and what."""
    try:
        text = decode(data)
        state = parse_state(text)
    except UnreadableStateError as error:
        problems = error.problems
    else:
        require_consistent(text, state)
        return state
    assert any(problem.fatal for problem in problems)
    assert all(problem.line >= 1 and problem.message for problem in problems)
    assert find_problems(data) == problems
    return None


def require_consistent(text: str, state: StateFile) -> None:
    """Require that reading again gives the same state and that writing it changes nothing."""
    assert read(text, STANDARD).state == state
    assert render(state) == text


@pytest.mark.parametrize("name", SOURCES)
def test_every_truncation_gives_a_state_or_a_refusal(name: str) -> None:
    """A file cut off anywhere, within a character too, is read or refused, never guessed at."""
    data = SOURCES[name]
    whole = judged(data)
    assert whole is not None
    for end in range(len(data)):
        state = judged(data[:end])
        # What decides the place stands at the top: once status is whole, the place cannot be another.
        if state is not None and len(state.step) == len(whole.step):
            assert (state.step, state.status) == (whole.step, whole.status)


@given(
    st.sampled_from(sorted(SOURCES)),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=500, deadline=None)
def test_flipped_bytes_give_a_state_or_a_refusal(name: str, flips: list[tuple[int, int]]) -> None:
    """Bytes that became others never cause anything but a state or a refusal."""
    data = bytearray(SOURCES[name])
    for place, value in flips:
        data[place % len(data)] = value
    judged(bytes(data))


@given(
    st.sampled_from(sorted(SOURCES)),
    st.integers(0, 10_000),
    st.sampled_from(
        [
            "```",
            "~~~\n",
            "\n## Current Step\n",
            "\n# Autodev State\n",
            "<!--",
            "-->",
            "\n<<<<<<< ours\n",
            "\r",
            "\0",
            "|",
            "\nstep: 1\n",
            "\ncycle: 2\n",
            "\n  phase: 3\n",
            "\nname: x\n",
            "- ",
            '"',
            "←",
            "\ufeff",
            "\n ",
            "\n## Blockers\n",
        ]
    ),
)
@settings(max_examples=500, deadline=None)
def test_inserted_marks_give_a_state_or_a_refusal(name: str, place: int, mark: str) -> None:
    """Marks that mean something, at places where they do not belong, are judged like anything else."""
    data = SOURCES[name]
    place %= len(data) + 1
    judged(data[:place] + mark.encode() + data[place:])


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_at_all_are_judged(data: bytes) -> None:
    """Nothing that is no state file makes the reader fall over."""
    judged(data)


@pytest.mark.parametrize("name", ["autodev-plan", "rich-failed", "pointer-failed"])
def test_original_bytes_stay_on_disk_through_load_and_save(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was cut off where: after a load and a save its bytes are in the file or beside it."""
    monkeypatch.setattr(swap, "SETTLING", -1.0)
    data = SOURCES[name]
    lock = tmp_path / ".orchestrator" / "state.lock"
    fresh = new_state(parse_state(text_of(name)).dialect)
    for end in range(0, len(data), 7):
        folder = tmp_path / str(end)
        folder.mkdir()
        path = folder / "_state.md"
        path.write_bytes(data[:end])
        try:
            loaded = load_state(path)
        except UnreadableStateError:
            loaded = None
        if loaded is None:
            assert path.read_bytes() == data[:end]
            with pytest.raises(StateError):
                save_state(path, fresh, None, lock=lock)
            assert path.read_bytes() == data[:end]
            save_state(path, fresh, None, lock=lock, replace_unreadable=True)
            assert (folder / "_state.md.unreadable-1").read_bytes() == data[:end]
            assert sorted(item.name for item in folder.iterdir()) == ["_state.md", "_state.md.unreadable-1"]
        else:
            save_state(path, loaded, loaded, lock=lock)
            assert path.read_bytes() == data[:end]
