"""`make chaos`: eight stories of 1.5 GB in a machine of 4 GB; the window keeps the kernel from killing."""

from pathlib import Path

import pytest

from tests.chaos.memory import MB, memory_group, told, write_hog

pytestmark = pytest.mark.chaos

STORIES, STORY, MACHINE = 8, 1536 * MB, 4096 * MB


@pytest.mark.parametrize("window", ["adaptive", "fixed"])
def test_eight_large_stories_in_a_small_machine(repo: Path, window: str) -> None:
    """All finish and the kernel kills nothing; with the window held fast it does, so the danger is real."""
    for number in range(STORIES):
        write_hog(repo, f"s{number}", size=STORY, seconds=2)
    with memory_group(MACHINE) as group:
        ran = group.run(repo, f"--max-stories={STORIES}", f"--window={window}", "--json", tick=2)
        print(f"{window}: {told(ran, group)}")  # noqa: T201  both outcomes are the result
        if window == "fixed":
            assert group.kills > 0
        else:
            assert group.kills == 0
            assert ran.data["counts"]["done"] == STORIES, ran.out
