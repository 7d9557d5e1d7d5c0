"""Signs of life, and waits that were announced."""

import pytest

from runner.core.limits.stall import LONGEST_WAIT, Signs, announced_wait, sign_of_life

STILL = Signs(printed=10, cpu_seconds=5.0, processes=2)


@pytest.mark.parametrize(
    ("now", "sign"),
    [
        (STILL, ""),
        (Signs(printed=11, cpu_seconds=5.0, processes=2), "output"),
        (Signs(printed=10, cpu_seconds=6.0, processes=2), "processor time"),
        (Signs(printed=10, cpu_seconds=5.9, processes=2), ""),
        (Signs(printed=10, cpu_seconds=5.0, processes=3), "processes"),
    ],
)
def test_each_sign_counts_by_itself(now: Signs, sign: str) -> None:
    """Output, a hundredth of a core, or processes that come and go; nothing else."""
    assert sign_of_life(STILL, now, seconds=100) == sign


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("retrying in 300 s", 300),
        ("API error (529 overloaded); Retrying in 2.5 minutes…", 150),
        ("rate limited: retry-after: 45", 45),
        ("Waiting 500ms before the next try", 0.5),
        ("usage limit reached, resets in 2 hours", 7200),
        ("will try again in 10 seconds", 10),
        ("retrying in 99999999 s", LONGEST_WAIT),
        ("compiled 300 files", 0),
        ("retry logic added to client", 0),
        ("waiting for 500 tests", 0),
        ("retry 3 of 5 failed", 0),
        ("", 0),
    ],
)
def test_an_announced_wait_is_understood(line: str, seconds: float) -> None:
    """Acceptance 36: what agents print before they wait, in its usual forms."""
    assert announced_wait(line) == pytest.approx(seconds)
