"""Memory that limits admission, by the real program in a real control group; the large one is in `chaos`."""

from pathlib import Path

import pytest

from tests.chaos.memory import MB, memory_group, told, write_hog

STORIES, STORY, MACHINE = 4, 150 * MB, 512 * MB
# Thresholds that such a small machine does not cross, so that only what stories need holds it back.
SMALL = "".join(f"tiers.{tier}.memory-gb = 0.02\n" for tier in ("green", "warn", "degraded"))


@pytest.mark.parametrize("window", ["adaptive", "fixed"])
def test_stories_that_do_not_fit_together_run_one_after_the_other(repo: Path, window: str) -> None:
    """What a story needs is known from the settings: all finish; with a fixed window the kernel kills."""
    (repo / "autopilot-multi.toml").write_text(f"memory-per-story-gb = 0.16\n{SMALL}")
    for number in range(STORIES):
        write_hog(repo, f"s{number}", size=STORY, seconds=0.5)
    with memory_group(MACHINE) as group:
        ran = group.run(repo, f"--max-stories={STORIES}", f"--window={window}", "--json", tick=0.1)
        assert (group.kills > 0) == (window == "fixed"), told(ran, group)
    if window == "adaptive":
        assert ran.data["counts"]["done"] == STORIES, ran.out


def test_what_the_first_story_used_holds_the_next_ones_back(repo: Path) -> None:
    """What a story needs is measured on the first: the settings say far too little."""
    (repo / "autopilot-multi.toml").write_text(f"memory-per-story-gb = 0.001\n{SMALL}")
    write_hog(repo, "scout", size=STORY, seconds=0.6)
    for number in range(STORIES):
        write_hog(repo, f"s{number}", size=STORY, seconds=0.5, after="scout")
    with memory_group(MACHINE) as group:
        ran = group.run(repo, f"--max-stories={STORIES}", "--json", tick=0.1)
        assert group.kills == 0, told(ran, group)
    assert ran.data["counts"]["done"] == STORIES + 1, ran.out


def test_a_resumed_run_knows_what_stories_used(repo: Path, tmp_path: Path) -> None:
    """What was measured before the resume holds stories back after it."""
    (repo / "autopilot-multi.toml").write_text(f"memory-per-story-gb = 0.001\n{SMALL}")
    flag = tmp_path / "now"
    write_hog(repo, "scout", size=STORY, seconds=0.6)
    for number in range(STORIES):
        write_hog(repo, f"s{number}", size=STORY, seconds=0.5, after="scout", when=flag)
    with memory_group(MACHINE) as group:
        group.run(repo, f"--max-stories={STORIES}", "-q", tick=0.1)
        flag.touch()
        ran = group.run(repo, "resume", "--retry-failed", "--json", tick=0.1)
        assert group.kills == 0, told(ran, group)
    assert ran.data["counts"]["done"] == STORIES + 1, ran.out
