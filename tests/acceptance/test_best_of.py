"""Best of N: candidates one after the other, judged by gates, hidden commands and size; one budget."""

import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
from tests.conftest import git

PRICE = 0.5
AGENT = """\
plan=$(sed -n "${AUTOPILOT_CANDIDATE}p" "%(plans)s/$AUTOPILOT_STORY_ID")
echo "$AUTOPILOT_STORY_ID $AUTOPILOT_CANDIDATE $AUTOPILOT_ATTEMPT $1 $plan" >> "%(trace)s"
env | grep -q SECRET-CHECK && echo leaked >> "%(trace)s"
records=$(git rev-parse --git-common-dir)/autopilot
grep -rqs SECRET-CHECK . "$records" "$HOME/.config/autopilot-multi" && echo leaked >> "%(trace)s"
ls | grep -q '^left-' && echo dirty >> "%(trace)s"
echo '{"cost": 0.5}'
echo x > "left-$AUTOPILOT_CANDIDATE"
set -- $plan
case "$1" in
  good|large) seq "${2:-1}" > work.txt; echo ok > proof.txt ;;
  bad) echo bad > proof.txt ;;
  sneaky) echo ok > proof.txt; echo cheat > cheat.txt ;;
  nothing) rm -f left-*; exit 0 ;;
  fails) exit 7 ;;
  waits) touch "%(trace)s.waits"; sleep 900 ;;
esac
"""
VERIFY = "grep -qx ok proof.txt"


class Stage:
    """A repository with a scripted agent, and what each candidate of each story does."""

    def __init__(self, repo: Path, tmp_path: Path) -> None:
        self.repo, self.plans, self.trace = repo, tmp_path / "plans", tmp_path / "trace"
        self.plans.mkdir()
        self.trace.touch()
        script = tmp_path / "agent.sh"
        script.write_text(AGENT % {"plans": self.plans, "trace": self.trace})
        agents = "".join(
            f'[agents.{name}]\nargv = ["sh", "{script}", "{name}"]\nevents = {{cost = "cost"}}\n'
            for name in ("small", "big")
        )
        (repo / "autopilot-multi.toml").write_text(
            f'agent = "small"\nmax-attempts = 1\npeer-abort = 1000\nbase-check = "off"\n{agents}'
        )

    def story(self, story_id: str, *plan: str, **keys: Any) -> None:
        """Add a story whose candidates do what `plan` says, one after the other."""
        (self.plans / story_id).write_text("".join(f"{line}\n" for line in plan))
        write_story(self.repo, story_id, **{"verify": [VERIFY], **keys})

    @property
    def traced(self) -> list[str]:
        """What the sessions said, in order."""
        return self.trace.read_text().splitlines()


@pytest.fixture
def stage(repo: Path, tmp_path: Path) -> Stage:
    return Stage(repo, tmp_path)


def content(repo: Path, ref: str, path: str) -> str:
    return git(repo, "show", f"{ref}:{path}").strip()


def test_the_next_candidate_starts_over_when_one_fails(stage: Stage) -> None:
    """Each begins at the base by the next agent; what failed is a branch; the report shows them together."""
    repo = stage.repo
    stage.story("a", "bad", "fails", "good 3", best_of=3, escalate=["big"])
    stage.story("b", "good", "good", best_of=3)
    stage.story("c", "nothing", "bad", best_of=2)
    stage.story("d", "bad")
    commit_stories(repo)
    ran = run(repo, "run", "--json", "--max-stories=1")
    assert ran.code == 4, ran.err
    assert stage.traced == [
        "a 1 1 small bad",
        "a 2 1 big fails",
        "a 3 1 big good 3",
        "b 1 1 small good",
        "c 1 1 small nothing",
        "c 2 1 small bad",
        "d 1 1 small bad",
    ]
    a, b, c, d = (ran.story(name) for name in "abcd")
    assert [one["status"] for one in (a, b, c, d)] == ["done", "done", "failed", "failed"]
    assert a["reason"] == "1 commit, verified, candidate 3 of 3"
    assert c["reason"].startswith("none of 2 candidates passed; the last: gave up after 1 attempt")
    assert b["candidates"][0]["chosen"] is True
    assert d["candidates"] == []
    shown = [
        (one["number"], one["agent"], one["verdict"], one["files"], one["lines"], one["cost_usd"])
        for one in a["candidates"]
    ]
    assert shown == [
        (1, "small", "failed", 2, 2, PRICE),
        (2, "big", "failed", 0, 0, PRICE),
        (3, "big", "done", 3, 5, PRICE),
    ]
    assert a["usage"]["cost_usd"] == 3 * PRICE
    first, second, third = (one["branch"] for one in a["candidates"])
    assert third == a["branch"] == "autopilot/a"
    assert content(repo, first, "proof.txt") == "bad"
    assert content(repo, second, "left-2") == "x", "what a failed session left uncommitted is kept, too"
    assert content(repo, "autopilot/a", "proof.txt") == "ok"
    text = " ".join(run(repo, "status").out.split())
    assert "candidate 1 by small: failed, 2 files, 2 lines, $0.50" in text
    assert "candidate 3 by big: done, 3 files, 5 lines, $0.50; chosen" in text
    page = run(repo, "report", "--format=markdown").out
    assert "### Candidates" in page
    assert first in page


def test_hidden_commands_and_size_decide_among_those_that_pass(
    stage: Stage,
) -> None:
    """No session finds the hidden command; who fails it never wins; the smallest difference does."""
    repo, folder = stage.repo, Path(os.environ["XDG_CONFIG_HOME"]) / "autopilot-multi"
    folder.mkdir(parents=True)
    (folder / "check").write_text("# SECRET-CHECK\nsleep 0; echo SECRET-CHECK; ! test -e cheat.txt")
    command = f"sh {folder}/check $AUTOPILOT_STORY_ID # SECRET-CHECK"
    (folder / "config.toml").write_text(f"hidden-verify = ['{command}']\n")
    stage.story("all", "good 9", "sneaky", "good 4", "good 30", best_of=4)
    stage.story("cheats", "sneaky", "sneaky", best_of=2)
    stage.story("unjudged", "bad 1", "good 2", verify=[], best_of=2)
    stage.story("single", "sneaky")
    commit_stories(repo)
    ran = run(repo, "run", "--json", "--max-stories=1", "--best-of-when=always")
    assert ran.code == 4, ran.err
    assert "leaked" not in stage.traced
    assert "dirty" not in stage.traced, "each has a worktree of its own"
    for text in (ran.out, ran.err, run(repo, "status", "--json").out, run(repo, "logs", "all").out):
        assert "SECRET-CHECK" not in text
    best = ran.story("all")
    assert (best["status"], best["reason"]) == (
        "done",
        "1 commit, verified, hidden verify commands passed, candidate 3 of 4",
    )
    assert [(one["hidden_verify"], one["chosen"]) for one in best["candidates"]] == [
        ("passed", False),
        ("failed", False),
        ("passed", True),
        ("passed", False),
    ]
    assert [one["verdict"] for one in best["candidates"]] == ["done"] * 4
    assert content(repo, "autopilot/all", "work.txt").split()[-1] == "4"
    assert git(repo, "rev-parse", "autopilot/all").strip() == best["commit"]
    kept = [one["branch"] for one in best["candidates"]]
    assert kept[2] == "autopilot/all"
    assert [content(repo, kept[number], "left-" + str(number + 1)) for number in (0, 1, 3)] == ["x"] * 3
    for name in ("cheats", "single"):
        assert ran.story(name)["status"] == "failed"
        assert "hidden verify command 1 of 1: exit code 1" in ran.story(name)["reason"]
    assert not Path(best["workspace"] or "/nowhere").exists()


def test_what_no_gate_has_judged_is_followed_by_another_try(stage: Stage) -> None:
    """Without a verify command the first one proves nothing: the others start, and the smallest wins."""
    stage.story("a", "good 9", "good 2", "good 5", best_of=3, verify=[])
    commit_stories(stage.repo)
    ran = run(stage.repo, "run", "--json")
    story = ran.story("a")
    assert (ran.code, story["status"]) == (0, "done"), ran.err
    assert [one["chosen"] for one in story["candidates"]] == [False, True, False]
    assert content(stage.repo, "autopilot/a", "work.txt").split() == ["1", "2"]


def test_a_budget_is_for_all_candidates_and_what_has_passed_is_not_lost(stage: Stage) -> None:
    """When the money is gone the best so far wins; a story of which none has passed is stopped."""
    stage.story("a", "good 5", "good 2", "good 1", best_of=3)
    stage.story("b", "bad", "good", best_of=3)
    commit_stories(stage.repo)
    once = ("--max-stories=1", "--story-cost-budget=0.9", "--json")
    ran = run(stage.repo, "run", "a", "--best-of-when=always", *once)
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert ran.story("a")["reason"] == "1 commit, verified, candidate 2 of 3"
    assert ran.story("a")["usage"]["cost_usd"] == 2 * PRICE
    ran = run(stage.repo, "run", "b", "--story-cost-budget=0.4", "--json")
    assert ran.story("b")["kill_switch"]["name"] == "cost-budget-exceeded", ran.err
    assert ran.story("b")["usage"]["cost_usd"] == PRICE


def test_a_killed_run_continues_in_its_candidate(stage: Stage) -> None:
    """What ended before stays as it was judged, and nothing runs again but the session that was cut off."""
    repo, flag = stage.repo, stage.trace.with_name("trace.waits")
    stage.story("a", "waits", best_of=3)
    stage.story("b", "bad", "waits", best_of=3)
    commit_stories(repo)
    with started(repo, "run") as running:
        waiting = {"a 1 1 small waits", "b 2 1 small waits"}
        wait_until(lambda: waiting <= set(stage.traced) and flag.exists(), what="both sessions to wait")
        running.send(signal.SIGKILL)
        running.finish()
    for name in "ab":
        (stage.plans / name).write_text("bad\ngood 2\n")
    ran = run(repo, "resume", "--json")
    assert ran.code == 0, ran.err
    for name in "ab":
        ended = ran.story(name)["candidates"]
        assert [(one["number"], one["verdict"], one["chosen"]) for one in ended] == [
            (1, "failed", False),
            (2, "done", True),
        ]
        assert content(repo, f"autopilot/{name}", "work.txt").split() == ["1", "2"]
        assert content(repo, ended[0]["branch"], "proof.txt") == "bad"
    assert len([line for line in stage.traced if line != "dirty"]) == 6


@pytest.mark.chaos
def test_kills_at_any_moment_lose_no_candidate(stage: Stage) -> None:
    """Killed again and again, also while a candidate is set aside or the best returns: the same result."""
    repo, chance = stage.repo, random.Random(7)  # noqa: S311  instants, no secrets
    for number in range(6):
        stage.story(f"s{number}", "good 9", "bad", "good 3", "good 30", best_of=4)
    commit_stories(repo)
    command, kills = ["run", "--best-of-when=always", "--max-stories=3"], 0
    while True:
        with started(repo, *command) as running:
            time.sleep(chance.uniform(0.5, 3.0))
            with suppress(ProcessLookupError):
                running.send(signal.SIGKILL)
            if running.finish().code == 0:
                break
        kills, command = kills + 1, ["resume"]
    assert kills > 1
    status = run(repo, "status", "--json")
    for number in range(6):
        story = status.story(f"s{number}")
        assert (story["status"], [one["chosen"] for one in story["candidates"]]) == (
            "done",
            [False, False, True, False],
        )
        branches = [one["branch"] for one in story["candidates"]]
        assert branches[2] == f"autopilot/s{number}"
        sizes = [content(repo, branches[each], "work.txt").split()[-1] for each in (0, 2, 3)]
        assert sizes == ["9", "3", "30"]


def best_of_three(stage: Stage, stories: int, *, failing: float) -> dict[str, float]:
    """Run stories of which so many fail at first; compare with what the plans of their candidates say."""
    chance = random.Random(stories)  # noqa: S311  a plan, no secret
    firsts = ["bad"] * round(stories * failing) + ["good"] * (stories - round(stories * failing))
    chance.shuffle(firsts)
    plans = {
        f"s{number:02}": [first, *chance.choices(["good", "bad", "fails", "nothing"], [4, 2, 1, 1], k=2)]
        for number, first in enumerate(firsts)
    }
    for name, plan in plans.items():
        stage.story(name, *plan, best_of=3)
    commit_stories(stage.repo)
    ran = run(stage.repo, "run", "--json", "--max-stories=4", "--window=fixed", limit=600)
    expected = {name for name, plan in plans.items() if "good" in plan}
    done = {name for name in plans if ran.story(name)["status"] == "done"}
    assert done == expected, ran.err
    for name, plan in plans.items():
        story, tried = ran.story(name), plan.index("good") + 1 if name in expected else 3
        assert story["usage"]["cost_usd"] == tried * PRICE
        assert [one["verdict"] == "done" for one in story["candidates"]] == [
            one == "good" for one in plan[:tried]
        ]
        if name in done:
            assert content(stage.repo, f"autopilot/{name}", "proof.txt") == "ok", "the gate holds"
            assert [one["number"] for one in story["candidates"] if one["chosen"]] == [tried]
    alone = sum(plan[0] == "good" for plan in plans.values())
    cost = [ran.story(name)["usage"]["cost_usd"] for name, plan in plans.items() if plan[0] == "good"]
    assert sum(cost) <= 1.3 * alone * PRICE
    return {"stories": stories, "first": alone, "done": len(done), "cost": sum(cost) / (alone * PRICE)}


def test_best_of_three_of_a_few_stories(stage: Stage) -> None:
    """A sample of the one below."""
    best_of_three(stage, 5, failing=0.4)


@pytest.mark.chaos
def test_best_of_three_of_fifty_stories(stage: Stage) -> None:
    """Two in five fail at first: as many are done as their plans say, and nobody pays for what passes."""
    sys.stdout.write(json.dumps(best_of_three(stage, 50, failing=0.4)))
