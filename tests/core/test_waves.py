"""Which failures of a session's agents are left once those that recovered are taken off."""

from typing import Any

import pytest

from runner.core.limits.waves import unrecovered_failures


@pytest.mark.parametrize(
    ("summary", "waves", "left"),
    [
        ({}, None, None),
        ({"recovered": 1}, None, None),
        ({"failed": 0}, None, 0),
        ({"failed": 2}, None, 2),
        ({"failed": 2, "recovered": 1}, None, 1),
        ({"failed": 1, "recovered": 3}, None, 0),
        ({"failed": -1}, None, 0),
        ({"failed": 1, "recovered": -1}, None, 1),
        ({"failed": 1}, [{"wave": 1}, 7, {"failed": "one"}], 1),
        ({"failed": 1}, [{"failed": 1, "recovered": 1}], 0),
        ({"failed": 1, "recovered": 0}, [{"failed": 1, "recovered": 1}], 1),
        ({"failed": 0}, [{"failed": 1}], 0),
        ({}, [{"failed": 1, "recovered": 1}, {"agent_summary": {"failed": 2}}], 2),
        ({}, [{"failed": True}], None),
    ],
)
def test_what_did_not_recover(summary: dict[str, int], waves: list[Any] | None, left: int | None) -> None:
    """Counts that say who recovered win, and what is not reported is unknown."""
    assert unrecovered_failures(summary, waves) == left
