"""A run for machines and for people: the shared document, the status table, the report, the plan."""

import io
import json
import os
import pty
import re

import pytest
from msgspec.structs import replace

from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.model import RunSnapshot, Status, StoryId
from runner.core.outlook.left import Sample, outlook
from runner.core.text.screen import cells
from runner.report.run_document import run_document
from runner.report.terminal.plan import PlanRow, PlanView, plan_document, plan_text
from runner.report.terminal.table import PLAIN, Cell, Column, Look, layout, look_for
from runner.report.terminal.text import report, status
from tests.records.sample_runs import (
    BASE,
    COMMIT,
    RUN,
    START,
    done,
    ended_events,
    event,
    mixed_events,
    snapshot,
    started,
    working,
)
from tests.report.asking import COLOUR, answered, asks

NARROW = Look(width=80, color=False, marks=True)
WIDE = Look(width=120, color=False, marks=True)


def mixed() -> RunSnapshot:
    return snapshot(mixed_events())


def test_document_has_the_shared_shape() -> None:
    """Exactly the documented keys, every status counted, instants in UTC."""
    data = run_document(mixed())
    assert list(data) == [
        *("run_id", "state", "started_at", "ended_at", "base", "repos", "isolation", "enforcement", "tier"),
        *("window", "paused"),
        *("kill_switch", "base_checks", "counts", "usage", "stories", "decisions", "forecast"),
        *("landings", "next", "notes"),
    ]
    assert (data["state"], data["tier"], data["window"]) == ("running", "green", 3)
    assert data["started_at"] == "2026-01-02T12:03:11.000Z"
    assert data["counts"] == {
        "done": 1,
        "failed": 1,
        "parked": 0,
        "skipped": 1,
        "stopped": 0,
        "no_work": 0,
        "running": 1,
        "waiting": 1,
        "queued": 1,
    }
    usage = {"input_tokens": 2000, "output_tokens": 100, "cost_usd": 0.5, "cost_estimated": False}
    assert data["usage"] == usage
    story = data["stories"][0]
    assert list(story) == [
        *("id", "title", "repo", "status", "reason", "branch", "base", "commit", "commits", "merged"),
        *("not_landed", "draft", "workspace", "ports", "database"),
        *("step", "attempt", "max_attempts", "retry_count", "sessions", "agent", "model", "escalated"),
        *("waiting", "waits", "started_at", "ended_at"),
        *("kill_switch", "decision", "candidates", "review", "usage", "next"),
    ]
    assert story["step"] == {"number": "1", "name": "Implement"}
    assert (story["commit"], story["base"], story["commits"]) == (COMMIT, BASE, 2)
    assert json.loads(json.dumps(data)) == data


def test_document_of_an_interrupted_run_claims_nothing_runs() -> None:
    """Without a coordinator a running story has stopped, and the next command goes on with it."""
    data = run_document(mixed(), alive=False)
    assert (data["state"], data["ended_at"]) == ("ended", None)
    assert (data["counts"]["running"], data["counts"]["stopped"]) == (0, 1)
    docs = next(story for story in data["stories"] if story["id"] == "docs-2")
    assert (docs["status"], docs["next"]) == ("stopped", f"autopilot-multi resume {RUN}")
    assert run_document(snapshot(ended_events()), alive=False)["stories"][0]["status"] == "done"


def test_status_table_of_a_running_run() -> None:
    """The whole picture at 80 columns."""
    run = mixed()
    docs = replace(
        run.stories[StoryId("docs-2")], last_line="Editing \x1b[31mdocs/guide.md\x1b[0m " + "x" * 80
    )
    run = replace(run, stories={**run.stories, docs.id: docs})
    past = [Sample(story_id=name, seconds=900.0, cost_usd=1.0) for name in run.stories]
    expected = outlook(run, past, START + 120)
    text = status(run, look=NARROW, now=START + 120, alive=True, outlook=expected)
    assert text.splitlines() == [
        "run 20260102-120311-ab12 · running for 2 min 00 s · 1 done, 1 failed, 1 skipped,",
        "1 running, 1 queued, 1 waiting",
        "1 story running · $0.50 of ~$3.50 · 2.1k tokens · ~29 min left · 3 of 3 slots ·",
        "machine OK, 12.1 GB free",
        "",
        "STORY          STATUS   ATTEMPT        TIME   COST     LEFT",
        "✓ api-3        done     1 of 4       12.3 s  $0.25           autopilot/api-3: 2…",
        "✗ checkout-17  failed   4 of 4       45.0 s  $0.25",
        "⊘ web-1        skipped",
        "    checkout-17 failed, and this story depends on it",
        "    next: autopilot-multi logs checkout-17",
        "● docs-2       running  1 of 4   1 min 13 s         ~14 min  Implement: Editing…",
        "○ ops-1        queued                                        waits for its turn",
        "· ui-4         waiting                                       waits for docs-2",
        "",
        "kept: /srv/app.worktrees/checkout-17 (checkout-17)",
        "note: no git identity: committing as autopilot-multi",
        "",
        "✗ checkout-17 failed: verify failed: `pytest -q services/payments` exited with 1",
        "    next: autopilot-multi logs checkout-17",
    ]


def test_status_of_an_interrupted_run_says_how_to_go_on() -> None:
    """A run whose coordinator died is not called running, and its time does not go on."""
    text = status(mixed(), look=PLAIN, now=START + 9999, alive=False)
    assert text.startswith(f"run {RUN} · interrupted · ")
    assert "running" not in text
    row = next(line for line in text.splitlines() if line.startswith("docs-2"))
    assert row.split() == ["docs-2", "stopped", "1", "of", "4"]
    assert f"hint: continue with `autopilot-multi resume {RUN}`." in text


def test_report_tells_verdict_branch_time_reason_and_next_command() -> None:
    """The plain report of an ended run, as CI keeps it."""
    assert report(snapshot(ended_events()), look=PLAIN).splitlines() == [
        "STORY        STATUS   ATTEMPT    TIME   COST",
        "api-3        done     1 of 4   12.3 s  $0.25  autopilot/api-3: 2 commits, verified",
        "checkout-17  failed   4 of 4   45.0 s  $0.25",
        "web-1        skipped",
        "    checkout-17 failed, and this story depends on it",
        "    next: autopilot-multi logs checkout-17",
        "",
        "1 done, 1 failed, 1 skipped in 47.4 s",
        "next: autopilot-multi land",
        "kept: /srv/app.worktrees/checkout-17 (checkout-17)",
        "",
        "checkout-17 failed: verify failed: `pytest -q` exited with 1",
        "    next: autopilot-multi logs checkout-17",
    ]


def test_what_failed_is_told_in_full_at_the_bottom() -> None:
    """The command and the lines that name the error, wrapped and never cut; terminal escapes are gone."""
    command = "cd services/payments && pytest -q -k 'timeout or retry' --maxfail=1 -p no:cacheprovider `pwd`"
    error = "E   AssertionError: expected 3 retries with growing pauses between them, but there was only one"
    printed = f"collected 14 items\n\x1b[31m{error}\x1b[0m\n\n  FAILED test_retry.py\n1 failed in 0.2 s\n"
    output = f"$ {command}\n{printed}"
    reason = f"verify `{command}`: exit code 1"
    events = [
        started("a"),
        *working("a", 1),
        event(2, ev.AttemptFailed(story_id=StoryId("a"), attempt=4, reason=reason, output=output)),
        event(
            3,
            ev.StoryFinished(
                story_id=StoryId("a"),
                verdict="failed",
                reason=f"gave up after 4 attempts: {reason}",
                next="autopilot-multi logs a",
            ),
        ),
    ]
    plain = report(snapshot(events), look=PLAIN).splitlines()
    assert plain[-6:] == [
        "a failed: gave up after 4 attempts: verify failed, exit code 1",
        f"    $ {command}",
        f"    {error}",
        "      FAILED test_retry.py",
        "    1 failed in 0.2 s",
        "    next: autopilot-multi logs a",
    ]
    narrow = report(snapshot(events), look=NARROW).splitlines()
    assert all(cells(line) <= 80 for line in narrow)
    assert error.split() == " ".join(narrow[-6:-3]).split()[-len(error.split()) :], "wrapped, and whole"
    assert "…" not in "".join(narrow)


def test_all_branches_are_offered_by_one_command() -> None:
    """Whatever depends on what; and what is merged is offered no more."""
    names = ("a", ("b", ["a"]), ("c", ["b"]), "d")
    events = [started(*names)]
    for number, name in enumerate("abcd"):
        events += [*working(name, 1 + number), *done(name, 5 + number)]
    run = snapshot(events)
    lines = report(run, look=PLAIN).splitlines()
    assert [line for line in lines if "next:" in line] == ["next: autopilot-multi land"]
    story = run.stories[StoryId("c")]
    merged = replace(story, next="", workspace=replace(story.workspace, merged="main"))
    after = report(replace(run, stories={**run.stories, merged.id: merged}), look=PLAIN)
    assert "c      landed" in after
    assert "autopilot/c: 2 commits, verified, on main" in after
    everything = {
        name: replace(each, next="", workspace=replace(each.workspace, merged="main"))
        for name, each in run.stories.items()
    }
    assert "next:" not in report(replace(run, stories=everything), look=PLAIN)


def test_report_names_the_kill_switch_with_its_hint() -> None:
    """What ended a run, and what to do about it, stands below the summary."""
    switch = ev.AdmissionEnded(name="max-hours-exceeded", detail="8 h have passed", hint="raise --max-hours")
    text = report(snapshot([started("a"), event(1, switch)]), look=PLAIN)
    assert "ended by max-hours-exceeded: 8 h have passed\nhint: raise --max-hours\n" in text


def test_report_of_many_done_stories_stays_short() -> None:
    """Forty merges are one command, not forty; so are two."""
    names = [f"pkg-{number:02}" for number in range(40)]
    events = [started(*names)]
    for name in names:
        events += [*working(name, 1), *done(name, 5)]
    text = report(snapshot(events), look=PLAIN)
    assert "git merge" not in text
    assert text.splitlines().count("next: autopilot-multi land") == 1


@pytest.mark.parametrize("look", [NARROW, WIDE])
def test_no_line_is_wider_than_the_terminal(look: Look) -> None:
    """Long ids, reasons and notes, CJK among them, fit 80 and 120 columns; paths stay whole."""
    name = "a" * 63
    events = [
        started(name, "short"),
        *working(name, 1),
        event(
            2,
            ev.StoryFinished(story_id=StoryId(name), verdict="failed", reason="日本語 word " * 30, next="x"),
        ),
        event(3, ev.Noted(message="a note that goes on " * 20)),
    ]
    for text in (
        report(snapshot(events), look=look),
        status(snapshot(events), look=look, now=START + 5, alive=True),
    ):
        lines = [line for line in text.splitlines() if not line.startswith("kept: ")]
        assert max(map(cells, lines)) <= (look.width or 0)
        assert len(lines) < len(text.splitlines())


def test_titles_are_shown_where_there_is_room() -> None:
    """At 120 columns each story has its title, at 80 it has not."""
    assert "The work of api-3" in report(snapshot(ended_events()), look=WIDE)
    assert "The work of api-3" not in report(snapshot(ended_events()), look=NARROW)


def test_hostile_reasons_and_notes_are_neutralised() -> None:
    """No escape from an agent's words reaches a terminal or a log."""
    hostile = "\x1b]0;owned\x07bad\x1b[2J\u202e"
    events = [
        started("a"),
        event(1, ev.StoryFinished(story_id=StoryId("a"), verdict="failed", reason=hostile, next=hostile)),
        event(2, ev.Noted(message=hostile, story_id=StoryId("a"))),
        event(3, ev.AdmissionEnded(name="spiral", detail=hostile, hint=hostile)),
    ]
    run = snapshot(events)
    run = replace(run, stories={key: replace(item, title=hostile) for key, item in run.stories.items()})
    for look in (PLAIN, WIDE):
        text = report(run, look=look)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "bad" in text


def test_colors_only_where_they_are_wanted() -> None:
    """Every status is colored on a terminal, and the plain text is the same without."""
    run = snapshot(ended_events())
    colored = report(run, look=Look(width=80, color=True, marks=True))
    assert "\x1b[32mdone\x1b[0m" in colored
    assert "\x1b[31mfailed\x1b[0m" in colored
    plain = report(run, look=NARROW)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain


def test_look_follows_the_stream_and_the_environment() -> None:
    """Pipes are plain; terminals are colored unless NO_COLOR, --no-color or a dumb one says no."""
    assert look_for(io.StringIO(), environ={}) == PLAIN
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal:
        assert look_for(terminal, environ={}).color
        assert look_for(terminal, environ={}).marks
        assert not look_for(terminal, environ={"NO_COLOR": "1"}).color
        assert not look_for(terminal, environ={"TERM": "dumb"}).color
        assert not look_for(terminal, environ={}, no_color=True).color
    os.close(leader)


def test_columns_align_by_cells_not_characters() -> None:
    """A wide character takes two places in the table."""
    rows = [[Cell(text="日本"), Cell(text="x")], [Cell(text="abcd"), Cell(text="y")]]
    assert layout([Column(title="A"), Column(title="B")], rows, PLAIN) == ["A     B", "日本  x", "abcd  y"]


PLAN = PlanView(
    base=BASE,
    base_ref="main",
    window=2,
    max_stories=3,
    tier="warn",
    tier_reason="5.1 GB free",
    isolation="worktree",
    enforcement="none",
    rows=(
        PlanRow(
            position=1,
            wave=1,
            id="api-3",
            title="Retry",
            agent="claude",
            branch="autopilot/api-3",
            base="main",
            critical=True,
            expected_minutes=5.0,
            minutes_to_the_end=12.5,
        ),
        PlanRow(
            position=2,
            wave=2,
            id="web-1",
            title="Button",
            agent="command",
            waits_for=("api-3",),
            reason="after api-3, from its commits",
            claim=("web/**",),
            verify=("make test",),
            critical=True,
        ),
    ),
)


def test_plan_tells_order_waves_and_why() -> None:
    """What waits for what, and why, is told for each story."""
    assert plan_text(PLAN, look=PLAIN).splitlines() == [
        "2 stories in 2 waves, from main (0123456789)",
        "2 of 3 slots · tier warn, 5.1 GB free · isolation worktree, enforcement none, seal writes",
        "",
        "#  WAVE  STORY  AGENT    STARTS",
        "1     1  api-3  claude   immediately",
        "    on the critical path: 12 min 30 s to the end",
        "    branch autopilot/api-3 from main",
        "2     2  web-1  command  after api-3, from its commits",
        "    on the critical path",
        "    owns web/**",
        "    verify make test",
        "",
        "nothing was started or written.",
    ]


def test_plan_as_json_holds_the_same() -> None:
    """The rows are the stories, in start order."""
    data = plan_document(PLAN)
    assert [story["id"] for story in data["stories"]] == ["api-3", "web-1"]
    assert data["stories"][1]["waits_for"] == ("api-3",)
    assert "rows" not in data


def test_every_status_can_be_shown() -> None:
    """No status is without a mark, a color and a word."""
    run = snapshot([started("a")])
    story = run.stories[StoryId("a")]
    for item in Status:
        shown = replace(run, stories={story.id: replace(story, status=item)})
        assert item.value.replace("_", " ") in status(shown, look=NARROW, now=START, alive=True)


def test_a_story_that_was_decided_since_waits_to_be_resumed() -> None:
    """Its question is answered, so that nobody is sent there again."""
    past = [started("a"), *asks("a", 1, COLOUR), answered("a", 2, "A"), event(3, ev.RunEnded(exit_code=5))]
    run = snapshot(past)
    text = status(run, look=PLAIN, now=START + 9, alive=False)
    assert f"    decided: A\n    next: autopilot-multi resume {RUN}\n" in text
    (told,) = run_document(run, alive=False)["stories"]
    assert told["next"] == f"autopilot-multi resume {RUN}"
    unanswered = snapshot([started("a"), *asks("a", 1, COLOUR)])
    assert run_document(unanswered, alive=False)["stories"][0]["next"] != told["next"]


def test_the_time_of_a_story_is_that_of_its_work() -> None:
    """A pause of the agent, a question, a resume after a stop or a crash: each is a wait, told beside it."""
    name = StoryId("a")
    paused = ag.AgentPaused(story_id=name, agent="claude", reason="at its limit", until=START + 100)
    begun = ev.StoryStarted(story_id=name)
    resumed = ev.RunResumed(requeued=("a",))
    events = [
        *(started("a"), *working("a", 10)),
        *(event(20, paused), *working("a", 119.8)[-1:]),
        *asks("a", 130, COLOUR),
        *(answered("a", 1000, "A"), event(1000, ev.StoryRequeued(story_id=name)), event(1030, begun)),
        *(event(5000, resumed), event(5001, begun)),  # as after a crash
        *done("a", 5011),
    ]
    run = snapshot(events)
    assert run.stories[name].started_at == START + 10
    lines = report(run, look=PLAIN).splitlines()
    # How long it continued before the crash is unknown, so that all since its last start counts as a wait.
    assert lines[2] == "    worked 30.0 s, waited 1 h 22 min"
    assert lines[1].split()[5:7] == ["30.0", "s"]
    waiting = snapshot(events[: events.index(event(20, paused)) + 1])
    assert "worked 10.0 s, waited 1 min 20 s" in status(waiting, look=PLAIN, now=START + 100, alive=True)
