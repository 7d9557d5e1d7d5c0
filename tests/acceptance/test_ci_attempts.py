"""A pipeline that runs more than once: attempts of a job, nights in one clone, a budget over all jobs."""

import json
import shutil
from pathlib import Path

import pytest

from tests.acceptance.ci import Ci, Stories, event, forge, make_ci, nothing
from tests.acceptance.flow_stories import sessions, story
from tests.acceptance.program import Ran, commit_stories, run, write_story
from tests.conftest import git

AGENT = """\
agent = "mine"
verify = ["true"]
max-stories = 1
base-check = "off"
{more}
[agents.mine]
argv = ["sh", "-c", "echo x > {{id}}.txt; echo '{{\\"cost\\": {cost}, \\"tokens\\": 1000}}'"]
events = {{cost = "cost", input-tokens = "tokens"}}
"""


def statuses(ran: Ran) -> dict[str, str]:
    """Return each story's status."""
    return {story["id"]: story["status"] for story in ran.data["stories"]}


def pipeline_with_costs(root: Path, repo: Path, *, stories: int, cost: float, more: str) -> Ci:
    """Make a pipeline whose sessions cost money, and that has a budget."""
    (repo / "autopilot-multi.toml").write_text(AGENT.format(cost=cost, more=more))
    return make_ci(root, repo, {f"s{number:02}": {} for number in range(stories)})


def run_jobs(ci: Ci, *flags: str) -> dict[str, Ran]:
    """Run the jobs of each stage; those of one stage do not see each other's shards."""
    asked = ci.run("plan", "matrix", "--json", *flags)
    assert asked.code == 0, asked.err
    found: dict[str, Ran] = {}
    for stage in asked.data["stages"]:
        seen = ci.root / f"seen-{stage[0]['stage']}"
        shutil.copytree(ci.shards, seen) if ci.shards.exists() else seen.mkdir()
        for job in stage:
            out = ("--shard-out", str(ci.shards / job["name"].replace("+", "-")), "--json")
            found[job["name"]] = ci.run(
                job["name"].replace("+", "-"), "run", *job["only"].split(), "--shard-in", str(seen), *out
            )
    return found


@pytest.mark.parametrize(
    ("cost", "more", "spent"),
    [(1.5, "", 7.5), (3.0, "", 9.0), (6.0, "", 12.0), (6.0, "session-cost = 6.0", 12.0)],
    ids=["small sessions", "a session above a share", "above all shares", "a known cost above a share"],
)
def test_a_budget_holds_over_all_jobs(
    repo: Path, tmp_path: Path, cost: float, more: str, spent: float
) -> None:
    """Twelve stories and $10, as one run and as four jobs: both stop, at most one session past it.

    Where nothing is known about sessions, one story runs before the four jobs, which learn from its shard.
    """
    ci = pipeline_with_costs(tmp_path, repo, stories=12, cost=cost, more=f"cost-budget = 10.0\n{more}")
    alone = ci.run("alone", "run", "--json")
    assert alone.code == 2, alone.err
    assert 10 - cost < alone.data["usage"]["cost_usd"] < 10 + cost
    jobs = run_jobs(ci, "--shards", "4")
    if not more:
        assert jobs.pop("s00").code == 0
    assert len(jobs) == 4
    assert {ran.code for ran in jobs.values()} == {2}
    stopped = [
        story for ran in jobs.values() for story in ran.data["stories"] if story["status"] == "stopped"
    ]
    assert {story["kill_switch"]["name"] for story in stopped} == {"cost-budget-exceeded"}
    joined = ci.run("join", "aggregate", str(ci.shards), "--json")
    assert joined.code == 2
    assert joined.data["usage"]["cost_usd"] == spent < 10 + cost


def test_jobs_that_cannot_learn_what_a_session_costs_do_not_all_start_one(repo: Path, tmp_path: Path) -> None:
    """One stage has no shard to learn from: one job gets the budget. Here the tokens are not known."""
    ci = pipeline_with_costs(
        tmp_path,
        repo,
        stories=4,
        cost=11.0,
        more="cost-budget = 10.0\ntoken-budget = 2500\nsession-cost = 1.0",
    )
    jobs = run_jobs(ci, "--chain")
    assert [ran.data["usage"]["cost_usd"] for ran in jobs.values()] == [11.0, None, None, None]
    assert [ran.code for ran in jobs.values()][1:] == [2, 2, 2]


def test_a_later_stage_has_what_the_earlier_ones_left(repo: Path, tmp_path: Path) -> None:
    """Tokens, dollars and hours of the shards count; a job says what it may spend."""
    ci = pipeline_with_costs(
        tmp_path, repo, stories=2, cost=4.0, more="cost-budget = 7.5\ntoken-budget = 5000"
    )
    for name in ("s01", "s02"):
        write_story(repo, name, depends_on=["s00"])
    write_story(repo, "s03", depends_on=["s01", "s02"])
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "a diamond")
    jobs = run_jobs(ci)
    assert jobs["s00"].code == 0
    assert "this job may spend" not in jobs["s00"].err, "it is alone in its stage"
    for name, part in (("s01", "$3.50"), ("s02", "$0.00")):  # a session costs $4
        expected = f"cost-budget: other jobs have spent $4.00 of $7.50; this job may spend {part}"
        assert expected in jobs[name].err
        assert "token-budget: other jobs have spent 1,000 tokens of 5,000 tokens" in jobs[name].err
    assert jobs["s02"].story("s02")["kill_switch"]["name"].endswith("-budget-exceeded")
    assert jobs["s03"].code != 0
    assert jobs["s03"].story("s03")["sessions"] == 0
    spent = ci.run("join", "aggregate", str(ci.shards), "--json").data["usage"]["cost_usd"]
    assert spent == 8.0 < 7.5 + 4.0
    begun = json.loads((ci.shards / "s00" / "events.ndjson").read_text().partition("\n")[0])["at"]
    forge(ci.shards / "s00", nothing, events=event(ci.shards / "s00", at=begun - 1800))
    limits = ("--max-hours=0.5", "--cost-budget=1000")
    late = ci.run("late", "run", "--only=s02", "--shard-in", str(ci.shards), *limits, "--json")
    assert late.story("s02")["sessions"] == 0
    assert late.data["kill_switch"]["name"] == "max-hours-exceeded", late.data
    wrong = ci.run("wrong", "run", "--budget-share=5/4", "--json")
    assert wrong.code == 1
    assert "fraction from 0 to 1" in wrong.document["error"]["message"]


def test_a_second_attempt_does_not_pay_twice_and_goes_green(repo: Path, tmp_path: Path) -> None:
    """What is done is handed on, what failed runs again and may replace its branch here and on the remote."""
    switch = tmp_path / "fixed"
    stories: Stories = {
        "good": {"command": f"echo run >> {tmp_path}/good.log; date +%N > good.txt"},
        "bad": {"command": "date +%N > bad.txt", "verify": [f"test -e {switch}"]},
        "after": {"command": f"echo run >> {tmp_path}/after.log; touch after.txt", "depends_on": ["good"]},
    }
    ci = make_ci(tmp_path, repo, stories)

    def attempt(number: int) -> dict[str, Ran]:
        jobs = {
            name: ci.story_job(name, "--push", "--max-attempts=1", job=f"{name}-{number}") for name in stories
        }
        return {
            name: ci.run(f"{name}-{number}", *(one for one in job if one != "-q"))
            for name, job in jobs.items()
        }

    first = attempt(1)
    assert {name: ran.code for name, ran in first.items()} == {"good": 0, "bad": 3, "after": 0}
    place = ci.clone("join")
    assert run(place, "aggregate", str(ci.shards), "--branches").code == 4
    failed = git(repo, "rev-parse", "autopilot/bad").strip()
    assert git(place, "rev-parse", "autopilot/bad").strip() == failed

    switch.touch()
    second = attempt(2)
    assert {name: (ran.code, ran.err) for name, ran in second.items() if ran.code} == {}
    assert "story good is handed on: an earlier attempt of this job has done it" in second["good"].err
    assert "replaced a failed attempt" in second["bad"].err
    assert (tmp_path / "good.log").read_text() == (tmp_path / "after.log").read_text() == "run\n"
    joined = run(place, "aggregate", str(ci.shards), "--branches", "--json")
    assert joined.code == 0, joined.data["shards"]
    assert statuses(joined) == dict.fromkeys(stories, "done")
    for where in (place, repo):
        assert git(where, "rev-parse", "autopilot/bad").strip() != failed
        assert git(where, "show", "autopilot/after:after.txt") == ""
    kept = git(place, "for-each-ref", "--format=%(objectname)", "refs/autopilot/replaced/").split()
    assert kept == [failed]

    # Only the artifacts of the second attempt are left: they hold what was handed on.
    for name in stories:
        shutil.rmtree(ci.shards / f"{name}-1")
    alone = ci.run("join-2", "aggregate", str(ci.shards), "--branches", "--json")
    assert alone.code == 0, alone.data["shards"]
    assert statuses(alone) == dict.fromkeys(stories, "done")
    assert alone.data["shards"]["remarks"] == []
    assert alone.story("good")["sessions"] == 1, "its session is not lost"


def test_a_parent_that_changed_is_a_reason_to_run_again(repo: Path, tmp_path: Path) -> None:
    """`after` was built on a result of `good` that no longer counts."""
    stories: Stories = {
        "good": {"command": "date +%N > good.txt"},
        "after": {
            "command": f"echo run >> {tmp_path}/after.log; cat good.txt > after.txt",
            "depends_on": ["good"],
        },
    }
    ci = make_ci(tmp_path, repo, stories)
    for name in stories:
        assert ci.run(f"{name}-1", *ci.story_job(name, job=f"{name}-1")).code == 0
    assert ci.run("good-2", *ci.story_job("good", "--again", job="good-2")).code == 0
    assert ci.run("after-2", *ci.story_job("after", job="after-2")).code == 0
    assert (tmp_path / "after.log").read_text() == "run\nrun\n"
    joined = ci.run("join", "aggregate", str(ci.shards), "--json")
    assert joined.code == 0, joined.data["shards"]


def test_five_nights_in_a_clone_that_stays(repo: Path, tmp_path: Path) -> None:
    """Main moves every day: each night does that night's work, and its bundle joins in a shallow clone."""
    stories: Stories = {
        "note": {"command": "cat day.txt > note.txt; echo note >> note.txt"},
        "more": {"command": "cat note.txt > more.txt; echo more >> more.txt", "depends_on": ["note"]},
        "odd": {"command": "cat day.txt > odd.txt; echo unfinished > left.txt; test $(cat day.txt) -gt 2"},
    }
    make_ci(tmp_path, repo, stories)
    agent = tmp_path / "agent"
    git(tmp_path, "clone", "-q", "--depth", "1", repo.as_uri(), str(agent))
    desk = tmp_path / "desk"
    git(tmp_path, "clone", "-q", "--depth", "1", repo.as_uri(), str(desk))
    for night in range(1, 6):
        (repo / "day.txt").write_text(f"{night}\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", f"day {night}")
        for clone in (agent, desk):
            git(clone, "fetch", "-q", "--depth", "1", "origin", "main")
            git(clone, "checkout", "-q", "--force", "--detach", "FETCH_HEAD")
        shards = tmp_path / f"night-{night}"
        shards.mkdir()
        ran = run(
            agent, "--max-attempts=1", "--shard-in", str(shards), "--shard-out", str(shards / "all"), "--json"
        )
        expected = {"note": "done", "more": "done", "odd": "done" if night > 2 else "failed"}
        assert statuses(ran) == expected, ran.err
        assert ran.story("note")["sessions"] == 1
        joined = run(desk, "aggregate", str(shards), "--branches", "--json")
        assert (joined.code, joined.data["shards"]["problems"]) == (ran.code, []), night
        assert git(desk, "show", "autopilot/more:more.txt") == f"{night}\nnote\nmore\n"
        git(desk, "merge-base", "--is-ancestor", "HEAD", "autopilot/more")
        git(desk, "fsck")
    assert "unfinished" in git(agent, "grep", "-h", "unfinished", *_earlier(agent, "odd"))
    assert len(_earlier(desk, "note")) == 4, "what the earlier nights did is still there"


def test_a_flow_begins_again_every_night_in_a_clone_that_stays(
    repo: Path, tmp_path: Path, memory: Path
) -> None:
    """What failed on three earlier commits is not asked about; an attempt on the same commit counts."""
    story(repo, "a", "fail:Problem:6", max_attempts=2)
    commit_stories(repo)
    agent = tmp_path / "agent"
    git(tmp_path, "clone", "-q", "--depth", "1", repo.as_uri(), str(agent))
    before = 0
    for night in range(1, 6):
        (repo / "day.txt").write_text(f"{night}\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", f"day {night}")
        git(agent, "fetch", "-q", "--depth", "1", "origin", "main")
        git(agent, "checkout", "-q", "--force", "--detach", "FETCH_HEAD")
        job = ("--cross-boundaries", "--json", "--shard-out", str(tmp_path / f"night-{night}"))
        ran = run(agent, *job)
        began, before = sessions(memory)[before:], len(sessions(memory))
        assert began[0] == "a-1 attempt 1", (night, ran.err)
        assert ran.story("a")["status"] == ("parked" if night < 4 else "done"), night
        if night == 3:
            again = run(agent, *job[:-1], str(tmp_path / "again"))
            assert (again.story("a")["sessions"], len(sessions(memory))) == (0, before), "it was asked about"
    assert git(agent, "show", "autopilot/a:day.txt") == "5\n"


def test_reports_of_a_pipeline_are_short_true_and_kept_for_the_next_one(repo: Path, tmp_path: Path) -> None:
    """One failure for a failed story, with text; bounded logs; names that exist there; records."""
    noisy = "printf 'the beginning\\n'; yes 'a line of output' | head -c 3000000; echo the very end; exit 1"
    stories: Stories = {
        "bad": {"command": noisy},
        "good": {"command": "touch good.txt"},
        "fine": {"command": "touch fine.txt"},
    }
    ci = make_ci(tmp_path, repo, stories)
    for name in stories:
        ci.run(name, *ci.story_job(name))
    logs = sorted((ci.shards / "bad").glob("logs/runs/*/bad/*.log"))
    assert len(logs) == 4, "four attempts"
    text = logs[0].read_text()
    assert 1_000_000 < len(text) < 1_100_000
    assert text.startswith("the beginning\n")
    assert text.endswith("the very end\n")
    assert "of 3,000,027 bytes are left out here]" in text

    junit = run(tmp_path, "report", str(ci.shards), "--format", "junit").out
    assert 'failures="1" errors="0"' in junit
    assert "the very end" in junit.partition("<failure ")[2].partition("</failure>")[0]
    page = run(
        tmp_path, "report", str(ci.shards), "--format", "markdown", "--branch-prefix", "autopilot-7/"
    ).out
    assert len(page) < 65_536
    assert "1 on `autopilot-7/good`" in page
    assert "autopilot-multi logs" not in page
    assert "Next: `run its job again`" in page

    kept = tmp_path / "cache" / "records.jsonl"
    joined = ci.run("join", "aggregate", str(ci.shards), "--records", str(kept), "--json")
    assert joined.story("bad")["next"] == "run its job again"
    ci.run("join-2", "aggregate", str(ci.shards), "--records", str(kept))
    assert len(kept.read_text().splitlines()) == 3, "a story is there once"
    for records in (kept, ci.shards):
        asked = ci.run(f"plan-{records.name}", "matrix", "--shards", "2", "--records", str(records), "--json")
        (stage,) = asked.data["stages"]
        took = {
            one["story_id"]: one["duration_seconds"] for one in map(json.loads, kept.read_text().splitlines())
        }
        assert [max(took, key=took.__getitem__)] in [job["stories"] for job in stage], "the longest is alone"
        assert sum(job["seconds"] for job in stage) == pytest.approx(sum(took.values()))
    nothing_yet = ci.run("first", "matrix", "--records", str(tmp_path / "none"), "--require-agents", "--json")
    assert nothing_yet.code == 0
    write_story(repo, "thinks")
    commit_stories(repo)
    none = ci.run("no-agent", "matrix", "--require-agents", env={"PATH": "/usr/bin:/bin"})
    assert none.code == 1
    assert "no agent is configured or installed" in none.err


def _earlier(clone: Path, story: str) -> list[str]:
    return git(clone, "branch", "--format=%(refname)", "--list", f"autopilot-earlier/{story}-*").split()


def test_a_worktree_of_a_clone_that_is_gone_is_set_aside(repo: Path, tmp_path: Path) -> None:
    """The failed story runs again, and what lay there is moved, not deleted."""
    write_story(repo, "fails", command="echo precious > work.txt; exit 1")
    commit_stories(repo)
    clone = tmp_path / "agent"
    git(tmp_path, "clone", "-q", repo.as_uri(), str(clone))
    assert run(clone, "--max-attempts=1").code == 3
    left = tmp_path / "agent.worktrees" / "fails"
    (left / "unsaved.txt").write_text("unsaved")
    shutil.rmtree(clone)
    git(tmp_path, "clone", "-q", repo.as_uri(), str(clone))
    again = run(clone, "--max-attempts=1", "--json")
    assert again.story("fails")["sessions"] == 1, again.err
    assert f"{left} was the worktree of a clone that is gone; it is at " in again.err
    (moved,) = (tmp_path / "agent.worktrees" / ".earlier").iterdir()
    assert (moved / "unsaved.txt").read_text() == "unsaved"
    assert str(moved) in again.err
    assert ".earlier" not in run(clone, "gc", "--dry-run").out
