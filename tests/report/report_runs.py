"""Runs as reports meet them: many stories, every verdict, and agents that print whatever they like."""

from collections.abc import Sequence

from isolation.git.diffstat import ChangedPath
from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.model import RunId, SessionRecord, StoryId
from runner.report.report_data import ReportData
from tests.records.sample_runs import BASE, COMMIT, START

RUN = RunId("20260102-120311-ab12cd34")
NASTY = "<script>alert(1)</script> & \x1b[31mred\x1b[0m ]]> \x00 ::error::x | `tick` \u202eright \ufffe end"
KINDS = ("done", "done", "failed", "done", "skipped", "retried", "parked", "done", "stopped", "no_work")


def _at(at: float, body: ev.Body) -> ev.Event:
    return ev.Event(run_id=RUN, at=START + at, body=body)


def _session(
    story: StoryId, number: int, start: float, end: float, outcome: str, *, kind: str = "work"
) -> list[ev.Event]:
    name = f"{RUN}-{story}-{number}"
    step = ("2", "Verify") if kind == "verify" else ("1", "Implement")
    begun = ev.SessionStarted(
        story_id=story,
        session_id=name,
        kind=kind,
        step_number=step[0],
        step_name=step[1],
        attempt=1 + number // 3,
        agent="claude" if kind == "work" else "",
        log=f"runs/{RUN}/{story}/{number:02}.log",
    )
    ended = ev.SessionEnded(
        story_id=story,
        session_id=name,
        outcome=outcome,
        exit_code=0 if outcome == "ok" else 1,
        detail="" if outcome == "ok" else f"exited with 1: {NASTY}",
        input_tokens=12000 * number if kind == "work" else None,
        output_tokens=900 if kind == "work" else None,
        cost_usd=0.21 * number if kind == "work" else None,
    )
    return [_at(start, begun), _at(end, ended)]


def _story(number: int, kind: str, start: float) -> list[ev.Event]:
    story = StoryId(f"{kind.replace('_', '-')}-{number}")
    branch = f"autopilot/{story}"
    if kind == "skipped":
        reason = f"depends on failed-{number - 2}, which failed"
        blocked = (f"failed-{number - 2}",)
        return [
            _at(
                start + 60,
                ev.StoryFinished(story_id=story, verdict="skipped", reason=reason, blocked_by=blocked),
            )
        ]
    length = 120 + 47 * (number % 7)
    planned = ev.WorkspacePlanned(story_id=story, branch=branch, path=f"/srv/app.worktrees/{story}")
    opened = ev.WorkspaceOpened(
        story_id=story, branch=branch, path=f"/srv/app.worktrees/{story}", base=BASE, head=BASE
    )
    events = [_at(start, ev.StoryStarted(story_id=story)), _at(start, planned), _at(start + 1, opened)]
    bad = kind in {"failed", "retried"}
    events += _session(story, 1, start + 2, start + length * 0.5, "failed" if bad else "ok")
    events += _session(
        story, 2, start + length * 0.52, start + length * 0.7, "ok" if not bad else "failed", kind="verify"
    )
    if bad:
        text = f"1 Implement, attempt 1: verify `pytest -q` exited with 1: {NASTY}"
        events.append(_at(start + length * 0.7, ev.Remembered(story_id=story, topic="retry", text=text)))
        last = "failed" if kind == "failed" else "ok"
        events += _session(story, 3, start + length * 0.72, start + length, last)
    if kind == "parked":
        question = {"kind": "agent", "title": f"Red or blue? {NASTY}", "options": [], "recommendation": "A"}
        events.append(
            _at(start + length, ev.DecisionAsked(story_id=story, decision_id="d1", question=question))
        )
    verdict = "done" if kind == "retried" else kind
    switch = (
        {"name": "stall-timeout", "detail": "silent", "hint": "look at its log"}
        if kind == "stopped"
        else None
    )
    done = verdict == "done"
    finished = ev.StoryFinished(
        story_id=story,
        verdict=verdict,
        reason="2 commits, verified"
        if done
        else f"verify `pytest -q services/payments` exited with 1: {NASTY}",
        next=f"git merge {branch}" if done else f"autopilot-multi logs {story}",
        commit=COMMIT if done else None,
        commits=2 if done else 0,
        kill_switch=switch,
    )
    return [*events, _at(start + length + 1, finished)]


def sample_report(stories: int = 12, *, log: bytes = b"", kinds: Sequence[str] = KINDS) -> ReportData:
    """Return a run of many stories, four at a time, on a machine that gets short of memory."""
    chosen = [(number, kinds[number % len(kinds)]) for number in range(stories)]
    entries = tuple(
        {
            "id": f"{kind.replace('_', '-')}-{number}",
            "title": f"Story {number}: {NASTY}"
            if number == 0
            else f"Retry payments of kind {number} on timeout",
            "depends_on": [f"failed-{number - 2}"] if kind == "skipped" else [],
            "source": f"stories/{kind}-{number}.md",
        }
        for number, kind in chosen
    )
    started = ev.RunStarted(
        base=BASE, isolation="worktree", enforcement="none", max_stories=4, options={}, stories=entries
    )
    parts = [_story(number, kind, 5 + 160 * (number // 4) + 11 * (number % 4)) for number, kind in chosen]
    body = sorted((event for part in parts for event in part), key=lambda event: event.at)
    end = max(event.at for event in body) - START
    windows = [
        _at(0.1, ev.WindowChanged(window=4, tier="green", reason="12.1 GB free")),
        _at(end * 0.35, ev.WindowChanged(window=3, tier="warn", reason=f"5.1 GB free {NASTY}")),
        _at(end * 0.5, ev.WindowChanged(window=2, tier="degraded", reason="3.0 GB free")),
        _at(end * 0.62, ev.WindowChanged(window=4, tier="green", reason="9.1 GB free")),
    ]
    notes = [_at(1, ev.Noted(message=f"no git identity: committing as autopilot-multi {NASTY}"))]
    events = [_at(0, started), *windows, *notes, *body, _at(end + 2, ev.RunEnded(exit_code=4))]
    output = (
        log or f"collected 14 items\n{NASTY}\nFAILED test_retry.py::test_timeout - TimeoutError\n".encode()
    )

    def read(_session: SessionRecord) -> bytes:
        return output

    changes = [
        ChangedPath(path="services/payments/client.py", added=48, removed=12),
        ChangedPath(path=f"services/{NASTY}.txt", added=3, removed=0),
        ChangedPath(path="docs/logo.png", added=None, removed=None),
    ]
    run = fold(RUN, events)
    done = {story.id: changes for story in run.stories.values() if story.workspace.commits}
    return ReportData(run=run, events=events, changes=done, log=read)
