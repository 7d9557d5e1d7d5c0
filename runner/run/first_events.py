"""A run's first events: the plan, and the results that its stories already have from elsewhere."""

import os
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import asdict, replace

from isolation.errors import RepositoryError
from isolation.git.landing.restart import restarted
from isolation.git.repository import Repository
from runner.core.events import events as ev
from runner.core.events import landing as ld
from runner.core.events.story_json import digest, to_json
from runner.core.flow import QUICK
from runner.core.landing.question import chosen
from runner.core.left_out.evidence import RETRY
from runner.core.limits.budget import OtherJobs
from runner.core.model import RunSnapshot, Status, Story, StoryId, StorySnapshot, Tier
from runner.core.text.names import branch_of
from runner.plan.plan import Plan
from runner.plan.settings.json_form import to_json as settings_to_json

OTHER_JOBS = "other_jobs"
"""The option of a run that keeps what other jobs had used when it started."""


IS_JOB = "is_job"
"""The option of a run whose result goes to other jobs as a shard."""


def beginning(plan: Plan, tier: Tier, enforcement: str) -> tuple[ev.Body, ...]:
    """Return the first events of a run."""
    settings = plan.settings
    options = settings_to_json(settings) | {
        "digests": {story.id: digest(story) for story in plan.stories},
        "host_class": _host_class(),
        "resource_verdict_at_start": tier,
    }
    if plan.is_job:
        options[IS_JOB] = True
    if plan.others != OtherJobs():
        options[OTHER_JOBS] = asdict(plan.others)
    started = ev.RunStarted(
        base=plan.base,
        isolation=settings.bg_isolation,
        enforcement=enforcement,
        max_stories=settings.max_stories,
        options=options,
        stories=tuple(to_json(story) for story in plan.stories),
        repos={name: asdict(site.info) for name, site in plan.sites.items()} if plan.several else {},
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


def planned_retries(
    repositories: Mapping[str, Repository],
    run: RunSnapshot,
    stories: Sequence[Story],
    *,
    without: Collection[StoryId] = (),
) -> tuple[ld.LandingRetryPlanned, ...]:
    """Return the intents for the stories that the user wants to be retried. Moves nothing. Blocking.

    `repositories` are those of the run, by the names that stories have for them.
    """
    by_id = {story.id: story for story in stories}
    found = [
        _planned(repositories[story.repo], story, by_id[story.id])
        for story in run.stories.values()
        if story.status is Status.DONE
        and story.id in by_id
        and chosen(story) == RETRY
        and story.id not in without
    ]
    return tuple(planned for planned in found if planned is not None)


def _planned(repository: Repository, story: StorySnapshot, written: Story) -> ld.LandingRetryPlanned | None:
    """Return the intent for one story; None if its work is in the target by now."""
    left, branch = story.workspace.left_out, story.workspace.branch or branch_of(story.id)
    old = repository.branch_tip(branch)
    if left is None or old is None:
        return None
    base = repository.branch_tip(left.onto)
    if base is None:
        raise RepositoryError(
            f"story {story.id} is to be tried again on {left.onto}, which is gone",
            hint=f"`git branch {left.onto} COMMIT` restores it.",
        )
    if repository.is_ancestor(old, base):
        return None
    message = f"Merge {left.onto} into {branch}\n\nAutopilot-Story: {story.id}\n"
    # The documents of a flow are not made again by one session.
    fresh = written.command is not None and written.flow == QUICK.name
    commit, files = restarted(repository, base, old, message, fork=left.fork, fresh=fresh)
    return ld.LandingRetryPlanned(
        story_id=story.id,
        landing_id=left.landing_id,
        onto=left.onto,
        base=base,
        old=old,
        commit=commit,
        files=files,
        fresh=fresh,
    )


def as_recorded(stories: Sequence[Story], run: RunSnapshot) -> tuple[Story, ...]:
    """Return the stories with the flow that they are in: another try has one step only."""
    return tuple(
        replace(story, flow=run.stories[story.id].flow) if story.id in run.stories else story
        for story in stories
    )
