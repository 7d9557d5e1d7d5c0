"""The loop with real sessions: what ends a story, what is forgiven, and what its siblings notice."""

import json
import os
from pathlib import Path

import pytest
import trio

from runner.core import settings
from runner.core.declaration import Bounds
from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.model import RunSnapshot, Status, StoryId, StorySnapshot
from runner.core.schedule.resources import ResourceSample
from runner.plan.plan import RunRequest, make_plan
from runner.run.coordinator import start_run
from runner.run.result.ended import Ended
from tests.acceptance.program import processes_with, write_story
from tests.conftest import git
from tests.run.test_orchestrator import PLENTY, Watcher


def result(**fields: object) -> str:
    """Return a command that leaves a result file."""
    return f"echo '{json.dumps(fields)}' > $AUTOPILOT_RESULT_FILE"


async def carry(
    repo: Path, view: Watcher | None = None, *, sample: ResourceSample = PLENTY, **flags: object
) -> Ended:
    """Run the backlog; flags by name."""
    given = {name.replace("_", "-"): str(value) for name, value in flags.items()}
    plan = make_plan(RunRequest(directory=repo, flags=given))
    with trio.fail_after(60):
        return await start_run(plan, view or Watcher(), sample=lambda _path: sample)


def story(ended: Ended, name: str) -> StorySnapshot:
    """Return one story of a run."""
    return ended.run.stories[StoryId(name)]


def switch_of(found: StorySnapshot) -> tuple[str, str]:
    """Return name and detail of the switch that ended a story."""
    assert found.kill_switch is not None
    assert found.kill_switch.hint
    return found.kill_switch.name, found.kill_switch.detail


def an_agent(repo: Path, script: str) -> None:
    """Configure an agent that runs a script; stories without a command are done by it."""
    path = repo.parent / "agent.sh"
    path.write_text(script)
    (repo / "autopilot-multi.toml").write_text(f'[agents.mine]\nargv = ["sh", "{path}", "{{id}}"]\n')


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let silence be measured in parts of a second."""
    for name in ("stall-seconds", "inactivity-timeout"):
        monkeypatch.setitem(settings.BOUNDS, name, Bounds(low=0.1, high=100))


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"agent_summary": {"complete": 2, "failed": 1}}, "failed-wave"),
        ({"effectiveness": {"planned_issues": 100, "carryover": 51}}, "carryover-too-high"),
    ],
)
async def test_a_bad_session_ends_its_story_with_its_work_committed(
    repo: Path, said: dict[str, object], name: str
) -> None:
    """Acceptance 30: the switch is named once, what the session left is committed, nothing more runs."""
    write_story(repo, "a", command=f"echo x > a; {result(status='done', **said)}", verify=["true"])
    ended = await carry(repo)
    found = story(ended, "a")
    assert found.status is Status.STOPPED
    assert switch_of(found)[0] == name
    assert [session.kind for session in found.sessions] == ["work"]
    assert found.workspace.commits == 1
    assert git(repo, "show", "autopilot/a:a") == "x\n"


async def test_half_of_the_work_left_over_goes_on(repo: Path) -> None:
    """Acceptance 33: a carryover of exactly 0.50 ends nothing."""
    said = result(status="done", effectiveness={"planned_issues": 2, "carryover": 1})
    write_story(repo, "a", command=f"echo x > a; {said}")
    assert story(await carry(repo), "a").status is Status.DONE


async def test_the_first_spiral_is_retried_in_a_fresh_session(repo: Path) -> None:
    """Acceptance 37: one real retry that is told why, and the counter is 1."""
    said = result(agent_summary={"spiral": 1})
    command = f"if grep -q 'repeated itself' $AUTOPILOT_PROMPT_FILE; then echo x > a; else {said}; fi"
    write_story(repo, "a", command=command)
    ended = await carry(repo)
    found = story(ended, "a")
    assert (found.status, len(found.sessions), found.spirals, found.progress.attempt) == (
        Status.DONE,
        2,
        1,
        1,
    )
    records = (repo / ".orchestrator/metrics/autopilot.jsonl").read_text().splitlines()
    mine = next(json.loads(line) for line in records if json.loads(line)["kind"] == "story")
    assert (mine["spiral_recovery_count"], mine["aborted_by_cohort"]) == (1, False)


async def test_the_second_spiral_of_a_run_ends_the_cohort(repo: Path, tmp_path: Path) -> None:
    """Acceptance 38: nothing new starts, a sibling reaches its session's end and is marked."""
    said = result(agent_summary={"spiral": 1})
    write_story(repo, "a", command=said, priority=9)
    waits = f"until test -f {tmp_path}/go; do sleep 0.02; done"
    write_story(repo, "b", command=f"{waits}; echo x > b", verify=[f"touch {tmp_path}/verified"])
    write_story(repo, "c", command="echo x > c", depends_on=["b"])
    began: list[str] = []

    def react(event: ev.Event, _run: RunSnapshot) -> None:
        match event.body:
            case ev.AdmissionEnded():
                (tmp_path / "go").touch()
            case ev.SessionStarted():
                began.append(event.body.story_id)
            case _:
                pass

    ended = await carry(repo, Watcher(react), max_stories=2, base_check="off")
    assert sorted(began) == ["a", "a", "b"]
    assert switch_of(story(ended, "a")) == (
        "spiral",
        "the session reported a spiral; spiral 2 of this run",
    )
    assert story(ended, "a").spirals == 2
    for name in ("b", "c"):
        assert story(ended, name).status is Status.STOPPED
        assert switch_of(story(ended, name))[0] == "cohort-aborted"
    assert story(ended, "b").workspace.commits == 1, "its session's work is kept"
    assert not (tmp_path / "verified").exists()
    assert (ended.exit_code, ended.run.kill_switch and ended.run.kill_switch.name) == (2, "spiral")
    lines = (repo / ".orchestrator/metrics/autopilot.jsonl").read_text().splitlines()
    records = {record["story_id"]: record for record in map(json.loads, lines)}
    assert [records[name]["aborted_by_cohort"] for name in ("a", "b", "c")] == [False, True, True]
    assert records[None]["cohort_aborted"] is True
    assert records[None]["stop_reason"] == "spiral"


async def test_with_a_higher_limit_two_bad_stories_end_alone(repo: Path) -> None:
    """Each has its retry and is stopped by its second spiral; the good ones that wait are done."""
    for name in ("a", "b"):
        write_story(repo, name, command=result(agent_summary={"spiral": 1}), priority=9)
    for name in ("c", "d"):
        write_story(repo, name, command=f"echo x > {name}")
    ended = await carry(repo, max_stories=2, base_check="off", spiral_limit=9)
    for name in ("a", "b"):
        assert switch_of(story(ended, name))[0] == "spiral"
        assert len(story(ended, name).sessions) == 2
    assert [story(ended, name).status for name in ("c", "d")] == [Status.DONE, Status.DONE]
    assert ended.run.kill_switch is None


async def test_a_session_that_is_being_prepared_at_the_cohorts_end_does_not_begin(
    repo: Path, tmp_path: Path
) -> None:
    """Acceptance 38: it was let in before the second spiral, and asked once more when all was ready."""
    hook = f"test $AUTOPILOT_STORY_ID = a && exit; touch {tmp_path}/let-in; "
    hook += f"until test -f {tmp_path}/go; do sleep 0.02; done"
    (repo / "autopilot-multi.toml").write_text(
        f'[hooks]\nbefore_run = "{hook}"\nafter_run = "touch {tmp_path}/$AUTOPILOT_STORY_ID-after"\n'
    )
    waits = f"until test -f {tmp_path}/let-in; do sleep 0.02; done"
    write_story(repo, "a", command=f"{waits}; {result(agent_summary={'spiral': 1})}")
    write_story(repo, "b", command=f"touch {tmp_path}/began")

    def react(event: ev.Event, _run: RunSnapshot) -> None:
        if isinstance(event.body, ev.AdmissionEnded):
            (tmp_path / "go").touch()

    ended = await carry(repo, Watcher(react), max_stories=2, base_check="off")
    assert not (tmp_path / "began").exists()
    assert (tmp_path / "b-after").exists(), "what a hook set up is taken down again"
    found = story(ended, "b")
    assert (found.status, found.sessions) == (Status.STOPPED, ())
    assert switch_of(found)[0] == "cohort-aborted"


async def test_an_agent_that_fails_the_same_way_three_times_goes_in_circles(repo: Path) -> None:
    """The runner itself sees it; the fourth attempt is told to take another way."""
    an_agent(
        repo,
        f"echo $AUTOPILOT_ATTEMPT > a; cp $AUTOPILOT_PROMPT_FILE {repo.parent}/prompt-$AUTOPILOT_ATTEMPT\n",
    )
    write_story(repo, "a", verify=['echo "2 failed in 0.$AUTOPILOT_ATTEMPT s"; false'])
    view = Watcher()
    ended = await carry(repo, view)
    found = story(ended, "a")
    assert (found.status, found.retry_count, found.spirals) == (Status.FAILED, 3, 1)
    seen = [body for body in view.events if isinstance(body, ev.SpiralSeen)]
    assert len(seen) == 1
    assert seen[0].reason.startswith("the same failure 3 times: verify")
    prompts = sorted(repo.parent.glob("prompt-*"))
    assert ["repeated itself" in path.read_text() for path in prompts] == [
        False,
        False,
        False,
        True,
    ]


async def test_a_plain_command_repeats_itself_and_spirals_nowhere(repo: Path) -> None:
    """Acceptance 51: a command that fails in the same way has its four attempts, and its siblings go on."""
    for name in ("a", "b", "c"):
        write_story(repo, name, command=f"echo x > {name}", verify=["false"])
    ended = await carry(repo)
    assert ended.run.count(Status.FAILED) == 3
    assert ended.run.cohort_spirals == 0
    assert [len(each.sessions) for each in ended.run.stories.values()] == [8, 8, 8]


async def test_a_change_undone_and_redone_is_a_spiral(repo: Path) -> None:
    """The contents after each session tell, whatever the agent says."""
    an_agent(repo, "if test -f a; then rm a; else echo x > a; fi\n")
    write_story(repo, "a", verify=["echo $AUTOPILOT_ATTEMPT; false"])
    view = Watcher()
    ended = await carry(repo, view)
    seen = [body for body in view.events if isinstance(body, ev.SpiralSeen)]
    assert [(body.reason, body.retries) for body in seen[:1]] == [
        ("the same change was undone and made again", True)
    ]
    assert story(ended, "a").spirals == 1
    assert len([one for one in story(ended, "a").sessions if one.kind == "work"]) == 5, "one beside the four"


async def test_parallel_stories_cannot_all_spend_the_last_dollar(repo: Path, tmp_path: Path) -> None:
    """Acceptance 40: what a session is expected to spend is reserved; the others wait, or never start."""
    (repo / "autopilot-multi.toml").write_text("session-cost = 0.8\n")
    trace = tmp_path / "trace"
    spends = result(status="done", usage={"cost_usd": 0.9})
    for name in ("a", "b", "c"):
        works = f"echo $AUTOPILOT_COST_ALLOWANCE > {name}; sleep 0.2"
        write_story(repo, name, command=f"echo + >> {trace}; {works}; echo - >> {trace}; {spends}")
    view = Watcher()
    ended = await carry(repo, view, cost_budget=1, max_stories=3)
    waits = [body for body in view.events if isinstance(body, ag.BudgetAwaited)]
    assert len(waits) == 2, "each says once that it waits"
    assert all("expected to spend $0.80" in body.reason for body in waits)
    for body in waits:
        found = ended.run.stories[body.story_id]
        assert [wait.what for wait in found.waits] == ["budget"]
        assert found.waiting is None
        assert found.waited > 0.1
    assert trace.read_text().split() == ["+", "-", "+", "-"], "one at a time, and no third one"
    assert ended.run.usage.cost_usd == pytest.approx(1.8)
    stopped = [each for each in ended.run.stories.values() if each.status is Status.STOPPED]
    assert [switch_of(each)[0] for each in stopped] == ["cost-budget-exceeded"]
    allowances = {
        git(repo, "show", f"{each.workspace.branch}:{each.id}").strip()
        for each in ended.run.stories.values()
        if each.status is Status.DONE
    }
    assert allowances == {"1.0000", "0.1000"}, "what is really left, not what is expected"


async def test_with_an_estimate_stories_share_a_budget_at_once(repo: Path, tmp_path: Path) -> None:
    """What fits into the budget runs side by side."""
    meet = " ".join(f"until test -f {tmp_path}/{name}; do sleep 0.02; done;" for name in "ab")
    spends = result(status="done", usage={"input_tokens": 100})
    for name in ("a", "b"):
        write_story(repo, name, command=f"touch {tmp_path}/{name}; {meet} echo x > {name}; {spends}")
    (repo / "autopilot-multi.toml").write_text("session-tokens = 100\n")
    ended = await carry(repo, token_budget=250, max_stories=2)
    assert ended.run.count(Status.DONE) == 2


async def test_a_storys_own_budget_ends_that_story_alone(repo: Path) -> None:
    """Acceptance 40: what one story has spent is no reason for its sibling."""
    spends = result(status="partial", usage={"cost_usd": 2})
    write_story(repo, "a", command=f"echo x >> a; {spends}")
    write_story(repo, "b", command="echo x > b")
    ended = await carry(repo, story_cost_budget=3)
    assert switch_of(story(ended, "a")) == ("cost-budget-exceeded", "4.00 of 3.00 USD used by this story")
    assert story(ended, "b").status is Status.DONE


async def test_too_many_other_agents_on_a_critical_machine_stop_the_loop(repo: Path) -> None:
    """`resource-overload`: critical, and more peers than the limit."""
    write_story(repo, "a", command="echo x > a")
    ended = await carry(repo, sample=ResourceSample(memory_available=32 << 30, peers=7))
    assert switch_of(story(ended, "a"))[0] == "resource-overload"
    assert not story(ended, "a").sessions


async def test_low_confidence_parks_the_first_session_and_kills_the_second(repo: Path) -> None:
    """Acceptance 32: iteration 1 is parked for the user, iteration 2 is killed."""
    (repo.parent / "pick").write_text(
        'grep -q \'"sessions": 0\' && C=$FIRST || C=0.2; echo thinking; echo "{\\"mode\\": \\"feature\\", '
        '\\"confidence\\": $C, \\"rationale\\": \\"because\\"}"\n'
    )
    write_story(repo, "a", command=f"echo $AUTOPILOT_MODE >> a; {result(status='partial')}")
    ended = await carry(repo, selector=f"FIRST=0.2 sh {repo.parent}/pick")
    found = story(ended, "a")
    assert (found.status, found.sessions) == (Status.PARKED, ())
    assert found.decision is not None
    assert found.decision.question["kind"] == "confidence"
    assert "because" in found.decision.question["details"]
    assert ended.exit_code == 5
    ended = await carry(repo, selector=f"FIRST=0.9 sh {repo.parent}/pick")
    found = story(ended, "a")
    assert switch_of(found) == ("low-confidence-fallback", "confidence 0.2 is below 0.85")
    assert len(found.sessions) == 1
    assert git(repo, "show", "autopilot/a:a") == "feature\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("exit 3", "the selector failed (exit code 3)"),
        ("echo hello", "the selector printed no JSON object"),
        (
            'echo \'{"mode": "x", "confidence": 7}\'',
            "the selector's confidence must be a number from 0 to 1, not 7",
        ),
        ("echo '{\"confidence\": 1}'", "the selector printed no mode"),
    ],
)
async def test_a_selector_that_prints_no_selection_has_no_confidence_and_is_noted(
    repo: Path, command: str, words: str
) -> None:
    """A crash or nonsense never counts as a choice."""
    write_story(repo, "a", command="echo x > a")
    ended = await carry(repo, selector=command)
    assert story(ended, "a").status is Status.PARKED
    assert f"no selection: {words}" in [note.message for note in ended.run.notes]


@pytest.mark.usefixtures("short_windows")
async def test_a_silent_tree_is_ended_after_two_windows(repo: Path) -> None:
    """Acceptance 35: the whole tree is dead, the worktree kept, the stall recorded."""
    marker = f"600.{os.getpid()}"
    write_story(repo, "a", command=f"echo x > left; (setsid sleep {marker} &) ; sleep {marker}")
    view = Watcher()
    ended = await carry(repo, view, stall_seconds=0.4, grace_seconds=0.2)
    found = story(ended, "a")
    assert switch_of(found)[0] == "stall-timeout"
    assert processes_with(f"sleep {marker}") == []
    assert found.workspace.path is not None
    assert (Path(found.workspace.path) / "left").read_text() == "x\n"
    assert sum(isinstance(body, ev.StallSeen) for body in view.events) == 1
    assert found.sessions[-1].outcome == "stalled"


@pytest.mark.usefixtures("short_windows")
async def test_a_candidate_that_stalls_is_followed_by_the_next(repo: Path) -> None:
    """The stall is the end of that try alone; the next one starts at the base, and its work is the result."""
    command = 'echo $AUTOPILOT_CANDIDATE >> a; test "$AUTOPILOT_CANDIDATE" = 2 || sleep 600'
    write_story(repo, "a", command=command, best_of=2, verify=["test -f a"])
    found = story(await carry(repo, stall_seconds=0.4, grace_seconds=0.2), "a")
    assert [(one.verdict, one.chosen) for one in found.candidates] == [("stopped", False), ("done", True)]
    assert (found.status, git(repo, "show", "autopilot/a:a")) == (Status.DONE, "2\n")


@pytest.mark.usefixtures("short_windows")
@pytest.mark.parametrize(
    "quiet",
    [
        "echo 'overloaded, retrying in 60 s'; sleep 2",
        "timeout 2 sh -c 'while :; do :; done'",
        "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i > note; sleep 0.2; done",
        "for i in 1 2 3 4 5 6 7 8 9 10; do git commit -q --allow-empty -m $i; sleep 0.2; done",
    ],
    ids=["announced wait", "long tool", "files", "commits"],
)
async def test_what_lives_quietly_is_not_killed(repo: Path, quiet: str) -> None:
    """Acceptance 36: each sign of life counts by itself, also for the inactivity of the run."""
    write_story(repo, "a", command=f"{quiet}; echo x > a")
    ended = await carry(repo, stall_seconds=0.4, inactivity_timeout=1)
    assert story(ended, "a").status is Status.DONE
    assert ended.run.kill_switch is None


@pytest.mark.usefixtures("short_windows")
async def test_a_session_that_wakes_up_again_has_recovered(repo: Path) -> None:
    """Silence of one window is noted and forgiven."""
    write_story(repo, "a", command="sleep 0.7; echo up; sleep 0.1; echo x > a")
    view = Watcher()
    ended = await carry(repo, view, stall_seconds=0.5)
    assert story(ended, "a").status is Status.DONE
    assert story(ended, "a").stalls == 1
    records = (repo / ".orchestrator/metrics/autopilot.jsonl").read_text().splitlines()
    assert json.loads(records[0])["stall_recovery_count"] == 1


@pytest.mark.parametrize("isolation", ["worktree", "none"])
async def test_a_result_that_an_earlier_run_left_is_not_taken_for_a_new_one(
    repo: Path, isolation: str
) -> None:
    """A session that leaves no result has said nothing, also where one of the same name stands already."""
    said = result(agent_summary={"failed": 1}, usage={"cost_usd": 1.5})
    write_story(repo, "a", owns=["a"], command=f"echo x > a; {said}")
    first = story(await carry(repo, bg_isolation=isolation, max_stories=1), "a")
    assert switch_of(first)[0] == "failed-wave"
    write_story(repo, "a", owns=["a"], command="echo y > a")
    second = story(await carry(repo, bg_isolation=isolation, max_stories=1), "a")
    assert (second.status, second.usage.cost_usd) == (Status.DONE, None)
