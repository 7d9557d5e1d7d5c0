"""Two stories that go in circles, and the good ones behind them."""

from pathlib import Path

from tests.acceptance.program import run, write_story

CIRCLES = """echo '{"agent_summary": {"spiral": 1}}' > $AUTOPILOT_RESULT_FILE"""
GOOD = ("c", "d", "e")


def test_two_bad_stories_need_not_hold_the_good_ones_back(repo: Path) -> None:
    """The run ends at the second spiral and says what would help: with that flag, the good ones are done."""
    for name in ("a", "b"):
        write_story(repo, name, command=CIRCLES, priority=9)
    for name in GOOD:
        write_story(repo, name, command=f"echo x > {name}")
    ran = run(repo, "--json", "--max-stories=2", "--window=fixed")
    assert ran.code == 2, ran.err
    ended = [ran.story(name)["kill_switch"] for name in GOOD]
    assert [each["name"] for each in ended] == ["cohort-aborted"] * len(GOOD)
    assert "or run with --spiral-limit 10" in ended[0]["hint"]
    again = run(repo, "--json", "--max-stories=2", "--window=fixed", "--spiral-limit=10")
    assert [again.story(name)["status"] for name in GOOD] == ["done"] * len(GOOD), again.err
    assert [again.story(name)["kill_switch"]["name"] for name in ("a", "b")] == ["spiral"] * 2
