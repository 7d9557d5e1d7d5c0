"""What starts when: dependencies, order and the window, by the real program."""

from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, write_story, writes
from tests.conftest import git


def test_a_plan_shows_real_items_in_order_with_reasons(repo: Path) -> None:
    """Acceptance 21: the real backlog in start order, and why each that waits does."""
    write_story(repo, "c-later", command="true", depends_on=["a-first"])
    write_story(repo, "a-first", command="true", title="The first")
    write_story(repo, "b-urgent", command="true", priority=10)
    ran = run(repo, "plan", "--max-stories=1", "--json")
    rows = ran.data["stories"]
    assert [row["id"] for row in rows] == ["b-urgent", "a-first", "c-later"]
    assert rows[1]["title"] == "The first"
    assert "free slot" in rows[1]["reason"]
    assert "a-first" in rows[2]["reason"]
    assert rows[2]["base"] == "autopilot/a-first"
    text = run(repo, "plan", "--max-stories=1").out
    assert text.index("b-urgent") < text.index("a-first") < text.index("c-later")


def test_a_plan_puts_the_critical_path_first(repo: Path) -> None:
    """Acceptance 21, 29: the longest chain by the stories' estimates starts first, and the plan says so."""
    write_story(repo, "a-long", command="true", estimate=30)
    write_story(repo, "x-short", command="true", estimate=5)
    write_story(repo, "y-behind", command="true", estimate=40, depends_on=["x-short"])
    write_story(repo, "b-urgent", command="true", estimate=1, priority=1)
    ran = run(repo, "plan", "--max-stories=1", "--json")
    rows = ran.data["stories"]
    assert [row["id"] for row in rows] == ["b-urgent", "x-short", "y-behind", "a-long"]
    assert [row["id"] for row in rows if row["critical"]] == ["x-short", "y-behind"]
    assert [row["minutes_to_the_end"] for row in rows] == [None, 45, 40, None]
    text = run(repo, "plan", "--max-stories=1").out
    assert text.count("on the critical path") == 2
    assert "on the critical path: 45 min 00 s to the end" in text
    again = run(repo, "plan", "--max-stories=1", "--json").data["stories"]
    assert again == rows, "the same input gives the same plan"


def test_what_a_story_took_before_decides_when_it_gives_no_estimate(repo: Path) -> None:
    """The story whose sessions took longest in an earlier run starts first the next time."""
    for name, seconds in (("a", 0), ("b", 0.6), ("c", 0.3)):
        write_story(repo, name, command=f"sleep {seconds}; {writes(name)}")
    first = run(repo, "plan", "--json").data["stories"]
    assert [(row["id"], row["expected_minutes"]) for row in first] == [("a", None), ("b", None), ("c", None)]
    assert run(repo).code == 0
    again = run(repo, "plan", "--again", "--json").data["stories"]
    assert [row["id"] for row in again] == ["b", "c", "a"]
    assert 0.6 / 60 < again[0]["expected_minutes"] < 1
    write_story(repo, "d", command="true", estimate=0.001)
    write_story(repo, "e", command="true")
    later = run(repo, "plan", "--again", "--json").data["stories"]
    usual = sorted(row["expected_minutes"] for row in later if row["id"] != "e")
    unknown = next(row["expected_minutes"] for row in later if row["id"] == "e")
    assert unknown == pytest.approx((usual[1] + usual[2]) / 2), "the median of all that is known"


def test_a_dependant_of_a_failure_never_starts(repo: Path) -> None:
    """Acceptance 22: it is skipped because of the one that failed, and so is what waits for it."""
    write_story(repo, "a", command="false")
    write_story(repo, "b", command=f"touch {repo.parent}/b-ran", depends_on=["a"])
    write_story(repo, "c", command=f"touch {repo.parent}/c-ran", depends_on=["b"])
    ran = run(repo, "--json")
    assert ran.code == 3
    for name in ("b", "c"):
        assert ran.story(name)["status"] == "skipped"
        assert ran.story(name)["sessions"] == 0
        assert "a" in ran.story(name)["reason"]
        assert not (repo.parent / f"{name}-ran").exists()


def test_a_dependant_starts_from_its_dependencys_commit(repo: Path) -> None:
    """Acceptance 23: the dependency's commit is in its history."""
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command="cat a.txt > b.txt", depends_on=["a"])
    ran = run(repo, "--json")
    assert ran.code == 0
    first = ran.story("a")["commit"]
    assert ran.story("b")["base"] == first
    git(repo, "merge-base", "--is-ancestor", first, "autopilot/b")
    assert git(repo, "show", "autopilot/b:b.txt") == "made\n"


def test_several_dependencies_are_merged(repo: Path) -> None:
    """Acceptance 24: a story that depends on two starts from their merge."""
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "c", command=writes("c.txt"))
    write_story(repo, "b", command="cat a.txt c.txt > b.txt", depends_on=["a", "c"])
    ran = run(repo, "--json")
    assert ran.code == 0
    for name in ("a", "c"):
        git(repo, "merge-base", "--is-ancestor", ran.story(name)["commit"], "autopilot/b")


def test_dependencies_that_conflict_fail_the_dependant(repo: Path) -> None:
    """Acceptance 24: a conflict fails the story and names the files."""
    write_story(repo, "a", command="echo from-a > same.txt")
    write_story(repo, "c", command="echo from-c > same.txt")
    write_story(repo, "b", command="true", depends_on=["a", "c"])
    ran = run(repo, "--json")
    assert ran.code == 4
    assert ran.story("b")["status"] == "failed"
    assert "same.txt" in ran.story("b")["reason"]
    assert not git(repo, "branch", "--list", "autopilot/b")


def test_an_absent_dependency_is_an_error(repo: Path) -> None:
    """Acceptance 25: it is named, with the story that asks for it."""
    write_story(repo, "a", command="true", depends_on=["aa"])
    ran = run(repo, "plan")
    assert ran.code == 1
    assert "'aa'" in ran.err
    assert "story a" in ran.err


def test_a_cycle_is_an_error_that_names_its_members(repo: Path) -> None:
    """Acceptance 26: the members stand in the message, in order."""
    for name, needs in (("a", "b"), ("b", "c"), ("c", "a")):
        write_story(repo, name, command="true", depends_on=[needs])
    ran = run(repo, "plan")
    assert ran.code == 1
    assert "a → b → c → a" in ran.err


def test_the_window_holds_and_a_free_place_is_refilled(repo: Path) -> None:
    """Acceptance 27: of ten stories never more than three are active, and a place is soon taken again."""
    trace = repo.parent / "trace"
    script = (
        f"date +%s.%N-start >> {trace}; sleep 0.3; echo x > $AUTOPILOT_STORY_ID; date +%s.%N-end >> {trace}"
    )
    for number in range(10):
        write_story(repo, f"s{number}", command=script)
    assert run(repo, "--max-stories=3").code == 0
    events = sorted((float(when), what) for when, what in (line.split("-") for line in _lines(trace)))
    active, most, idle_since, slowest = 0, 0, None, 0.0
    started = 0
    for when, what in events:
        if what == "start":
            started += 1
            active += 1
            if idle_since is not None:
                slowest, idle_since = max(slowest, when - idle_since), None
        else:
            active -= 1
            idle_since = when if started < 10 else None
        most = max(most, active)
    assert most == 3
    assert slowest < 1.0


def test_the_same_input_gives_the_same_plan(repo: Path) -> None:
    """Acceptance 29: planning twice prints the same, to the letter."""
    for number in range(8):
        write_story(repo, f"s{number}", command="true", depends_on=[f"s{number - 3}"] if number > 3 else [])
    first, second = run(repo, "plan", "--json"), run(repo, "plan", "--json")
    assert first.data["stories"] == second.data["stories"]


@pytest.mark.parametrize("policy", ["dependencies-successful", "never"])
def test_the_continue_policy_decides_about_the_rest(repo: Path, policy: str) -> None:
    """With `never` nothing starts after a failure; by default independent stories go on."""
    write_story(repo, "a", command="false", priority=5)
    write_story(repo, "b", command=writes("b.txt"))
    ran = run(repo, "--max-stories=1", f"--continue={policy}", "--json")
    expected = "skipped" if policy == "never" else "done"
    assert ran.story("b")["status"] == expected


def test_only_runs_the_named_story_and_what_it_needs(repo: Path) -> None:
    """`--only` leaves the rest of the backlog alone."""
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command=writes("b.txt"), depends_on=["a"])
    write_story(repo, "c", command=writes("c.txt"))
    ran = run(repo, "--only", "b", "--json")
    assert {story["id"] for story in ran.data["stories"]} == {"a", "b"}


def test_retry_failed_takes_up_what_failed(repo: Path) -> None:
    """`--retry-failed` runs the failed stories of the newest run and what was skipped because of them."""
    flag = repo.parent / "mended"
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command=f"test -f {flag} && echo b > b.txt")
    write_story(repo, "c", command=writes("c.txt"), depends_on=["b"])
    assert run(repo).code == 4
    flag.touch()
    ran = run(repo, "--retry-failed", "--json")
    assert ran.code == 0
    assert {story["id"] for story in ran.data["stories"]} == {"b", "c"}


def test_prompts_lists_and_ids_are_sources_too(repo: Path) -> None:
    """Stories come from lists and from prompts on the command line as well."""
    (repo / "autopilot-multi.toml").write_text('[agents.mine]\nargv = ["sh", "-c", "cat > said.txt"]\n')
    (repo / "backlog.toml").write_text(
        '[[stories]]\nid = "from-list"\nprompt = "x"\ncommand = "echo l > l.txt"\n'
    )
    commit_stories(repo)
    assert run(repo, "backlog.toml").code == 0
    ran = run(repo, "Say hello to the world", "--json")
    assert ran.code == 0
    (story,) = ran.data["stories"]
    assert "Say hello to the world" in git(repo, "show", f"autopilot/{story['id']}:said.txt")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_dependency_that_is_added_later_is_there_when_the_story_runs_again(repo: Path) -> None:
    """Acceptance 23: `b` failed without `a` and left its worktree; now it goes on with `a`'s commit."""
    write_story(repo, "b", command="cat a.txt > b.txt")
    assert run(repo, "--json").story("b")["status"] == "failed"
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command="cat a.txt > b.txt", depends_on=["a"])
    ran = run(repo, "--json")
    assert (ran.story("a")["status"], ran.story("b")["status"]) == ("done", "done"), ran.err
    assert git(repo, "show", "autopilot/b:b.txt") == "made\n"
