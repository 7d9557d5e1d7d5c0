"""Runs made of real events, for the tests of everything that shows one."""

from collections.abc import Sequence

from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.model import RunId, RunSnapshot, StoryId

RUN = RunId("20260102-120311-ab12")
START = 1767355391.0
BASE = "0123456789abcdef0123456789abcdef01234567"
COMMIT = "89abcdef0123456789abcdef0123456789abcdef"
OPTIONS = {"max_sessions": 5, "max_hours": 8.0, "confidence_threshold": 0.85, "host_class": "linux-2c"}


def event(at: float, body: ev.Body, run: RunId = RUN) -> ev.Event:
    """Return an event `at` seconds after the start."""
    return ev.Event(run_id=run, at=START + at, body=body)


def started(
    *stories: str | tuple[str, Sequence[str]], run: RunId = RUN, max_stories: int = 3, flow: str = "quick"
) -> ev.Event:
    """Start a run; a story is an id, or an id and its dependencies."""
    entries = [(story, ()) if isinstance(story, str) else story for story in stories]
    return event(
        0,
        ev.RunStarted(
            base=BASE,
            isolation="worktree",
            enforcement="none",
            max_stories=max_stories,
            options=OPTIONS,
            stories=tuple(
                {"id": name, "title": f"The work of {name}", "depends_on": list(needs), "flow": flow}
                for name, needs in entries
            ),
        ),
        run,
    )


def working(name: str, at: float, *, attempt: int = 1, session: str = "", run: RunId = RUN) -> list[ev.Event]:
    """Bring a story into its session."""
    story = StoryId(name)
    branch = f"autopilot/{name}"
    path = f"/srv/app.worktrees/{name}"
    session_id = session or f"{run}-{name}-{attempt}"
    return [
        event(at, ev.StoryStarted(story_id=story), run),
        event(at, ev.WorkspacePlanned(story_id=story, branch=branch, path=path), run),
        event(
            at + 0.1,
            ev.WorkspaceOpened(story_id=story, branch=branch, path=path, base=BASE, head=BASE),
            run,
        ),
        event(
            at + 0.2,
            ev.SessionStarted(
                story_id=story,
                session_id=session_id,
                kind="work",
                step_number="1",
                step_name="Implement",
                attempt=attempt,
                agent="claude",
                log=f"runs/{run}/{name}/{attempt}.log",
                agents_per_wave=6,
            ),
            run,
        ),
    ]


def session_ended(
    name: str, at: float, *, attempt: int = 1, outcome: str = "ok", run: RunId = RUN
) -> ev.Event:
    """End a story's session."""
    return event(
        at,
        ev.SessionEnded(
            story_id=StoryId(name),
            session_id=f"{run}-{name}-{attempt}",
            outcome=outcome,
            exit_code=0 if outcome == "ok" else 1,
            input_tokens=1000,
            output_tokens=50,
            cost_usd=0.25,
            summary={"complete": 3, "spiral": 1},
            effectiveness={"planned_issues": 4, "carryover": 1, "completed": 3},
        ),
        run,
    )


def done(name: str, at: float, *, run: RunId = RUN) -> list[ev.Event]:
    """Bring a working story to its commit and its result."""
    story = StoryId(name)
    return [
        session_ended(name, at - 0.3, run=run),
        event(at - 0.2, ev.CheckpointPlanned(story_id=story), run),
        event(at - 0.1, ev.Checkpointed(story_id=story, commit=COMMIT, commits=2), run),
        event(
            at,
            ev.StoryFinished(
                story_id=story,
                verdict="done",
                reason="2 commits, verified",
                next=f"git merge autopilot/{name}",
                commit=COMMIT,
                commits=2,
            ),
            run,
        ),
        event(at, ev.WorkspaceClosed(story_id=story, removed=True, reason=""), run),
    ]


def failed(name: str, at: float, reason: str, *, run: RunId = RUN) -> list[ev.Event]:
    """Bring a working story to its failure."""
    story = StoryId(name)
    return [
        session_ended(name, at - 0.3, outcome="failed", run=run),
        event(at - 0.2, ev.AttemptFailed(story_id=story, attempt=3, reason=reason, output=""), run),
        event(
            at,
            ev.StoryFinished(
                story_id=story, verdict="failed", reason=reason, next=f"autopilot-multi logs {name}"
            ),
            run,
        ),
        event(at, ev.WorkspaceClosed(story_id=story, removed=False, reason="2 uncommitted files"), run),
    ]


def skipped(name: str, at: float, because: str, *, run: RunId = RUN) -> ev.Event:
    """Let a story never start."""
    return event(
        at,
        ev.StoryFinished(
            story_id=StoryId(name),
            verdict="skipped",
            reason=f"{because} failed, and this story depends on it",
            next=f"autopilot-multi logs {because}",
            blocked_by=(because,),
        ),
        run,
    )


def mixed_events(run: RunId = RUN) -> list[ev.Event]:
    """Return a run in its midst: done, failed, skipped, running, queued and waiting."""
    return [
        started(
            "api-3",
            "checkout-17",
            ("web-1", ["checkout-17"]),
            "docs-2",
            "ops-1",
            ("ui-4", ["docs-2"]),
            run=run,
        ),
        event(0.1, ev.WindowChanged(window=3, tier="green", reason="12.1 GB free"), run),
        *working("api-3", 1, run=run),
        *working("checkout-17", 1.5, run=run),
        *done("api-3", 13.3, run=run),
        *failed("checkout-17", 46.5, "verify failed: `pytest -q services/payments` exited with 1", run=run),
        skipped("web-1", 46.6, "checkout-17", run=run),
        *working("docs-2", 47, run=run),
        event(47.1, ev.Noted(message="no git identity: committing as autopilot-multi", story_id=None), run),
    ]


def ended_events(run: RunId = RUN) -> list[ev.Event]:
    """Return a run that has ended, with a done, a failed and a skipped story."""
    return [
        started("api-3", "checkout-17", ("web-1", ["checkout-17"]), run=run),
        *working("api-3", 1, run=run),
        *working("checkout-17", 1.5, run=run),
        *done("api-3", 13.3, run=run),
        *failed("checkout-17", 46.5, "verify failed: `pytest -q` exited with 1", run=run),
        skipped("web-1", 46.6, "checkout-17", run=run),
        event(47.4, ev.RunEnded(exit_code=4), run),
    ]


def snapshot(events: Sequence[ev.Event], run: RunId = RUN) -> RunSnapshot:
    """Fold events into a run."""
    return fold(run, events)
