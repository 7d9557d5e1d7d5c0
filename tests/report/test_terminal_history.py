"""Past runs as a table: what fits a terminal is shown there, and no more."""

import pytest

from runner.core.limits.kill_switches import Switch
from runner.core.past_runs import PastRun, PastStory, of_story, summary, summary_of_story
from runner.core.text.screen import cells
from runner.report.terminal.history import runs_text, story_text
from runner.report.terminal.table import PLAIN, Look

STORY = PastStory(
    run_id="20260303-220104-5a1c77e0",
    id="a",
    verdict="done",
    started_at=1_700_000_000.0,
    seconds=36_000.0,
    sessions=4,
    tokens=123_456_789,
    cost_usd=1234.5,
    kill_switch="stall-timeout",
)
RUN = PastRun(
    id=STORY.run_id,
    started_at=1_700_000_000.0,
    seconds=36_000.0,
    counts={"done": 12, "failed": 3, "parked": 1, "skipped": 2, "stopped": 4},
    tokens=123_456_789,
    cost_usd=1234.5,
    stop_reason="backlog-done",
    stories=(STORY,),
)


@pytest.mark.parametrize("width", [80, 139, 140, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """What there is no room for is left out, the stories last of all."""
    look = Look(width=width, color=False, marks=True)
    parts = of_story([RUN], "a")
    text = runs_text([RUN], summary([RUN]), left_out=3, look=look)
    text += story_text(parts, summary_of_story(parts), left_out=0, look=look)
    assert max(map(cells, text.splitlines())) <= width
    assert "12 done, 3 failed" in text
    assert ("$1,234.50  stall-timeout" in text) is (width >= 140)


def test_everything_is_there_off_a_terminal() -> None:
    """Plain output cuts nothing."""
    head, row, *rest = runs_text([RUN], summary([RUN]), left_out=3, look=PLAIN).splitlines()
    assert head.split() == ["RUN", "STARTED", "TIME", "SUCCESS", "TOKENS", "COST", "ENDED", "BY", "STORIES"]
    assert row.endswith("$1,234.50  stall-timeout  12 done, 3 failed, 1 parked, 2 skipped, 4 stopped")
    assert rest == [
        "",
        "1 run: 1 of 1 story done (100 %)",
        "median time per story 10 h 00 min · 123,456,789 tokens · $1,234.50",
        "kill-switches: stall-timeout",
        f"hint: stall-timeout: {Switch.STALL.hint}",
        "3 older runs not shown; use --limit to show more.",
    ]
