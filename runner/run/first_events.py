"""A run's first events: the plan, and the results that its stories already have from elsewhere."""

import os

from msgspec.structs import replace

from runner.core.events import events as ev
from runner.core.events.story_json import digest, to_json
from runner.core.model import Status, Story, Tier
from runner.core.text.names import branch_of
from runner.plan.plan import Plan
from runner.plan.settings.json_form import to_json as settings_to_json


def beginning(plan: Plan, tier: Tier, enforcement: str) -> tuple[ev.Body, ...]:
    """Return the first events of a run."""
    settings = plan.settings
    options = settings_to_json(settings) | {
        "digests": {story.id: digest(story) for story in plan.stories},
        "host_class": _host_class(),
        "resource_verdict_at_start": tier,
    }
    started = ev.RunStarted(
        base=plan.base,
        isolation=settings.bg_isolation,
        enforcement=enforcement,
        max_stories=settings.max_stories,
        options=options,
        stories=tuple(to_json(story) for story in plan.stories),
    )
    already = (_done_before(plan, story) for story in plan.stories if story.id in plan.finished)
    elsewhere = (
        _done_elsewhere(plan.other_jobs[story.id]) for story in plan.stories if story.id in plan.other_jobs
    )
    return started, *already, *elsewhere


def _done_before(plan: Plan, story: Story) -> ev.StoryFinished:
    before = plan.finished[story.id]
    return ev.StoryFinished(
        story_id=story.id,
        verdict=Status.DONE,
        reason=f"already done in run {before.run_id}",
        next=before.next,
        commit=before.commit or "",
        commits=before.commits,
        branch=branch_of(story.id),
    )


def _done_elsewhere(verdict: ev.StoryFinished) -> ev.StoryFinished:
    return replace(verdict, branch=branch_of(verdict.story_id))


def _host_class() -> str:
    uname = os.uname()
    return f"{uname.sysname.lower()}-{uname.machine}-{os.cpu_count() or 1}cpu"
