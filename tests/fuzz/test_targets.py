"""Every parser of outside text: what it is given may be refused, but never breaks it or holds it up.

`make chaos` runs each target for a minute, with coverage where atheris is installed.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz import campaign, growth
from tests.fuzz.inputs import quick_inputs
from tests.fuzz.registry import CORPUS
from tests.fuzz.targets import TARGETS

EXAMPLES = 60
CHAOS_SECONDS = 60
_LARGEST_SAMPLE = 64 << 10
_LARGEST_CORPUS = 1 << 20


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_taken_or_refused(name: str) -> None:
    """Every input that once broke a parser is in its corpus."""
    target = TARGETS[name]
    for sample in target.samples:
        target.check(sample.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_parser(name: str) -> None:
    """A parser raises its own errors and no others, and no impossible number comes out of it."""
    target = TARGETS[name]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(quick_inputs(target))
    def search(data: bytes) -> None:
        target.check(data)

    search()


def test_each_corpus_belongs_to_a_target() -> None:
    """No corpus is left behind when a target is renamed, and none is large."""
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.glob("*/*")) <= _LARGEST_CORPUS
    for target in TARGETS.values():
        assert all(path.stat().st_size <= _LARGEST_SAMPLE for path in target.samples)


def test_a_campaign_keeps_the_input_that_broke_a_parser(tmp_path: Path) -> None:
    """What is found is kept with its error, once for each place, and the search continues."""

    def broken(data: bytes) -> None:
        if b"x" in data:
            raise ZeroDivisionError("by x")

    check = campaign._noting(broken, tmp_path)
    for data in (b"a", b"ax", b"bx", b"c"):
        check(data)
    (kept,) = tmp_path.glob("*.input")
    assert kept.read_bytes() == b"ax"
    assert "ZeroDivisionError: by x" in kept.with_suffix(".txt").read_text()


def test_only_inputs_that_reach_something_new_are_added(tmp_path: Path) -> None:
    """The corpus in the tree stays small: of inputs that reach the same lines, the shortest is enough."""
    target = TARGETS["landing_message"]
    found, corpus = tmp_path / "found", tmp_path / "corpus"
    found.mkdir()
    (corpus / target.name).mkdir(parents=True)
    for number, data in enumerate((b"{", b"{" * 9, target.samples[0].read_bytes(), b"x" * 4000)):
        (found / str(number)).write_bytes(data)
    (added,) = growth.grow(target, found, corpus)
    assert added.read_bytes() == b"{"


@pytest.mark.chaos
@pytest.mark.parametrize("name", TARGETS)
def test_a_minute_of_fuzzing_finds_nothing(name: str, tmp_path: Path) -> None:
    """Guided by coverage, with atheris; without it by hypothesis and the lines that an input reaches."""
    ended = campaign.run(name, CHAOS_SECONDS, tmp_path)
    assert ended.runs > 0
    assert not ended.findings, "\n".join(f"{one.error}\n{one.command}" for one in ended.findings)
