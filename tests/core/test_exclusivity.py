"""The table of modes, complete, and the laws that hold for every mix of sessions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.schedule.exclusivity import (
    MODES,
    ActiveSession,
    Admission,
    Exclusivity,
    admission,
    classify,
    runs_alone,
)

EXCLUSIVE = ("bootstrap", "housekeeping", "memory-cleanup")
PARALLEL = ("deep", "feature", "multi-story", "a-mode-of-tomorrow")
ALWAYS = ("discovery", "evolve", "plan", "portfolio", "repo-audit", "status")
PASS, BLOCKED, OFFER = Admission.PASS, Admission.BLOCKED, Admission.PROMOTION_OFFER

# caller's class -> verdict beside: none, always, parallel (without and with an own tree), exclusive
TABLE = {
    ALWAYS: (PASS, PASS, PASS, PASS, PASS),
    PARALLEL: (PASS, PASS, OFFER, PASS, BLOCKED),
    EXCLUSIVE: (PASS, PASS, BLOCKED, BLOCKED, BLOCKED),
}

modes = st.sampled_from([*EXCLUSIVE, *PARALLEL, *ALWAYS]) | st.text(max_size=12)
crowds = st.lists(
    st.builds(ActiveSession, description=st.text(min_size=1, max_size=4), mode=modes),
    max_size=6,
    unique_by=lambda one: one.description,
)


def _active(*names: str) -> list[ActiveSession]:
    return [ActiveSession(description=f"{name} session", mode=name) for name in names]


@pytest.mark.parametrize(
    ("caller", "verdicts"), [(mode, verdicts) for group, verdicts in TABLE.items() for mode in group]
)
def test_every_cell_of_the_table(caller: str, verdicts: tuple[Admission, ...]) -> None:
    """Each mode beside each other mode gets the verdict of its row and column, with and without a tree."""
    alone, always, shared, parted, exclusive = verdicts
    for own in (True, False):
        assert admission(caller, [], own_workspace=own).verdict is alone
        for other in ALWAYS:
            assert admission(caller, _active(other), own_workspace=own).verdict is always
        for other in PARALLEL:
            expected = parted if own else shared
            assert admission(caller, _active(other), own_workspace=own).verdict is expected
        for other in EXCLUSIVE:
            assert admission(caller, _active(other), own_workspace=own).verdict is exclusive


def test_the_classes_are_those_of_the_modes() -> None:
    """Every known mode has its class and no warning."""
    for group, wanted in (
        (EXCLUSIVE, Exclusivity.EXCLUSIVE),
        (PARALLEL[:-1], Exclusivity.PARALLEL),
        (ALWAYS, Exclusivity.ALWAYS),
    ):
        assert {classify(mode).exclusivity for mode in group} == {wanted}
        assert not any(classify(mode).warning for mode in group)
    assert set(MODES) == {*EXCLUSIVE, *PARALLEL[:-1], *ALWAYS}
    assert [mode for mode in MODES if runs_alone(mode)] == list(EXCLUSIVE)


def test_an_unknown_mode_is_parallel_with_a_warning() -> None:
    """The warning says what it counts as, and the nearest name where there is one."""
    near, far = classify("housekeping"), classify("\x1b[31m")
    assert near.exclusivity is far.exclusivity is Exclusivity.PARALLEL
    assert near.warning == (
        "mode 'housekeping' is unknown and counts as parallel; did you mean 'housekeeping'?"
    )
    assert far.warning.endswith("is unknown and counts as parallel")
    assert "\x1b" not in far.warning


def test_those_in_the_way_are_named_and_no_others() -> None:
    """A parallel caller is blocked by the exclusive alone; an exclusive one by all but the harmless."""
    crowd = _active("status", "deep", "housekeeping", "bootstrap")
    assert admission("feature", crowd, own_workspace=True).by == (crowd[2], crowd[3])
    assert admission("housekeeping", crowd, own_workspace=True).by == tuple(crowd[1:])
    assert admission("feature", crowd[:2], own_workspace=False).by == (crowd[1],)


@given(modes, crowds, st.booleans())
def test_only_a_pass_names_no_session(
    caller: str,
    crowd: list[ActiveSession],
    own: bool,  # noqa: FBT001  hypothesis passes by position
) -> None:
    """Those in the way are among the active, in their order, and never harmless ones."""
    found = admission(caller, crowd, own_workspace=own)
    assert bool(found.by) == (found.verdict is not PASS)
    assert list(found.by) == [one for one in crowd if one in found.by]
    assert all(classify(one.mode).exclusivity is not Exclusivity.ALWAYS for one in found.by)


@given(modes, crowds, modes, st.booleans())
def test_more_company_never_makes_it_easier(
    caller: str,
    crowd: list[ActiveSession],
    another: str,
    own: bool,  # noqa: FBT001  hypothesis passes by position
) -> None:
    """One more session never turns a refusal into a pass, and an own tree never makes things worse."""
    order = [PASS, OFFER, BLOCKED]
    before = admission(caller, crowd, own_workspace=own).verdict
    after = admission(
        caller, [*crowd, ActiveSession(description="another", mode=another)], own_workspace=own
    ).verdict
    assert order.index(before) <= order.index(after)
    parted = admission(caller, crowd, own_workspace=True).verdict
    assert order.index(parted) <= order.index(before)


@given(modes, modes)
def test_of_two_where_one_is_exclusive_at_most_one_works(one: str, other: str) -> None:
    """Two sessions that count never pass beside each other when one of them runs alone."""
    if {classify(one).exclusivity, classify(other).exclusivity} & {Exclusivity.ALWAYS}:
        return
    if runs_alone(one) or runs_alone(other):
        assert (
            admission(one, [ActiveSession(description="other", mode=other)], own_workspace=True).verdict
            is BLOCKED
        )
        assert (
            admission(other, [ActiveSession(description="one", mode=one)], own_workspace=True).verdict
            is BLOCKED
        )
