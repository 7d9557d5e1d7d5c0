"""A budget shared by parallel stories: who starts, who waits, and that every view says so."""

import io
import json
from pathlib import Path
from time import time

from rich.console import Console

from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.events.fold import apply
from runner.core.model import StoryId
from runner.report.terminal.dashboard import render
from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
from tests.records.sample_runs import RUN, mixed_events, snapshot

SCRIPT = """\
touch %(folder)s/begun-$1
until test -f %(folder)s/go; do sleep 0.02; done
echo x > $1
echo '{"cost": 0.5}'
"""


def prepare(repo: Path, folder: Path) -> None:
    """Configure an agent that waits for the test and then reports what it cost."""
    script = folder / "agent.sh"
    script.write_text(SCRIPT % {"folder": folder})
    agent = f'[agents.mine]\nargv = ["sh", "{script}", "{{id}}"]\nevents = {{cost = "cost"}}\n'
    (repo / "autopilot-multi.toml").write_text(f'agent = "mine"\nverify = ["true"]\n{agent}')


def test_stories_share_a_budget_by_what_earlier_sessions_cost(repo: Path, tmp_path: Path) -> None:
    """Without history all start at once; with it those for which nothing is left wait, in every view."""
    prepare(repo, tmp_path)
    go = tmp_path / "go"
    for name in "abc":
        write_story(repo, name)
    commit_stories(repo)
    with started(repo, "run", "--cost-budget=0.9", "--max-stories=3", "--window=fixed") as first:
        begun = [tmp_path / f"begun-{name}" for name in "abc"]
        wait_until(lambda: all(path.exists() for path in begun), what="all three work at the same time")
        go.touch()
        assert first.finish().code == 0, "it is crossed by what runs already, which finishes"

    go.unlink()
    for name in "def":
        write_story(repo, name)
    commit_stories(repo)
    reason = (
        "a session is expected to spend $0.50, and $0.30 of $0.80 is free ($0.00 spent, $0.50 reserved for "
        "running sessions) (from 3 earlier sessions)"
    )
    limits = ("--cost-budget=0.8", "--max-stories=3", "--window=fixed", "--no-base-check")
    with started(repo, "run", "--json", *limits) as second:
        wait_until(lambda: second.err.count(f"waits for budget: {reason}") == 2, what="two stories wait")
        shown = run(repo, "status").out
        assert "1 running, 2 waiting" in shown
        assert "1 story running, 2 waiting for budget" in shown
        assert "for budget: a session is expected to spend" in shown
        waits = {one["id"]: one["waiting"] for one in run(repo, "status", "--json").data["stories"]}
        (working,) = [name for name in "def" if waits[name] is None]
        waiting = [name for name in "def" if name != working]
        assert [(waits[name]["for"], waits[name]["reason"]) for name in waiting] == [("budget", reason)] * 2
        page = repo / ".orchestrator/state.md"
        wait_until(lambda: page.exists() and "## Waiting" in page.read_text(), what="the page says so")
        assert page.read_text().count("for budget, since") == 2
        assert run(repo, "report", "--format", "markdown").out.count(" for budget now, ") == 2
        assert run(repo, "report", "--format", "html").out.count('class="wait"') == 2
        go.touch()
        ran = second.finish()
    assert ran.code == 2, ran.err
    statuses = {name: ran.story(name)["status"] for name in "def"}
    assert sorted(statuses.values()) == ["done", "done", "stopped"], "once it is spent, no session starts"
    (stopped,) = [name for name in "def" if statuses[name] == "stopped"]
    assert ran.story(stopped)["kill_switch"]["name"] == "cost-budget-exceeded"
    assert all(ran.story(name)["waits"][0]["until"] for name in waiting)
    lines = (repo / ".orchestrator/metrics/autopilot.jsonl").read_text().splitlines()
    waited = {one["story_id"]: one["waited_seconds"] for one in map(json.loads, lines) if one["story_id"]}
    assert waited[working] == 0
    assert all(waited[name] > 0 for name in waiting)


def test_the_dashboard_shows_a_story_that_waits_for_budget_as_waiting() -> None:
    """It has its slot, and does not run."""
    before = snapshot(mixed_events())
    name = next(story.id for story in before.stories.values() if story.status == "running")
    body = ag.BudgetAwaited(story_id=StoryId(name), reason="nothing is free")
    after = apply(before, ev.Event(run_id=RUN, at=time(), body=body))
    texts = []
    for state in (before, after):
        stream = io.StringIO()
        console = Console(file=stream, width=120, height=40)
        console.print(render(state, now=time(), width=120, height=40, hint=""))
        texts.append(stream.getvalue())
    assert "waiting for budget" not in texts[0]
    assert "1 waiting for budget" in texts[1]
    assert "waiting for budget: nothing is free" in texts[1]
