"""What the stories of past runs took, from their records. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.core.model import SessionKind, Status, StoryId
from runner.core.outlook.left import Sample
from runner.core.past_runs import PastRun


def past_samples(runs: Sequence[PastRun], sessions: Iterable[Mapping[str, Any]]) -> tuple[Sample, ...]:
    """Return what done stories took, newest first; the records of their sessions say by which agent."""
    agents = {
        record.get("autopilot_run_id"): record.get("agent_identity")
        for record in sessions
        if record.get("session_kind") == SessionKind.WORK
    }
    return tuple(
        Sample(
            story_id=StoryId(story.id),
            agent=str(agents.get(f"{run.id}/{story.id}") or ""),
            seconds=story.seconds,
            cost_usd=story.cost_usd,
            tokens=story.tokens,
        )
        for run in runs
        for story in run.stories
        # One without sessions was done before: that run only repeated the result of an older one.
        if story.verdict == Status.DONE and story.sessions
    )
