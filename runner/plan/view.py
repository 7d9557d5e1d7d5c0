"""The plan as people and machines read it: every story with when it starts, and why."""

import os
from collections.abc import Sequence
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from isolation.model import IsolationMode
from runner.agents.catalog import PROGRAMS
from runner.core.base.check import Mode, Question, questions
from runner.core.forecast.clashes import Clash
from runner.core.model import Status, Story, StoryId
from runner.core.progress.repositories import HOME
from runner.core.schedule.candidates import most_candidates
from runner.core.schedule.exclusivity import runs_alone
from runner.core.schedule.graph import critical_path, waves
from runner.core.schedule.schedule import decide
from runner.core.schedule.window import at_start
from runner.core.text.names import branch_of
from runner.machine import probe
from runner.plan.earlier_runs import load_past
from runner.plan.plan import Plan
from runner.plan.shared_tree import EnforcementPlan
from runner.plan.standing import Standing, standing
from runner.plan.trust.agreed import not_agreed_yet
from runner.plan.trust.demands import demands_of
from runner.records.base_answers import known_answers
from runner.records.history import Past
from runner.report.terminal.plan import PlanRepository, PlanRow, PlanView


def view(plan: Plan, enforcement: EnforcementPlan) -> PlanView:
    """Return what `plan` shows."""
    settings = plan.settings
    # The same functions that the run uses, so that the plan shows what would happen now.
    allowed = at_start(probe.sample(plan.worktree_root, PROGRAMS), settings)
    levels = {story_id: number for number, wave in enumerate(waves(plan.stories), 1) for story_id in wave}
    reasons = _reasons(plan, allowed.stories)
    left = [story for story in plan.own if story.id not in plan.finished]
    runs_there = settings.base_check != Mode.OFF and settings.bg_isolation == IsolationMode.WORKTREE
    home = [story for story in left if story.repo == HOME]
    elsewhere = {story.id for story in plan.stories if story.repo != HOME}
    asked = questions(home, settings, elsewhere=elsewhere) if runs_there else ()
    critical = critical_path(left, plan.durations)
    past = load_past(plan.repository, left)
    standings = {story.id: standing(plan, story, past.get(story.id, Past())) for story in left}
    rows = tuple(
        replace(
            _row(plan, story, position=position, wave=levels[story.id], reason=reasons[story.id]),
            critical=story.id in critical,
            expected_minutes=plan.durations.get(story.id),
            minutes_to_the_end=critical.get(story.id) if plan.durations else None,
            **_position(standings.get(story.id)),
        )
        for position, story in enumerate(plan.stories, 1)
    )
    return PlanView(
        base=plan.base,
        base_ref=settings.base,
        window=allowed.stories,
        max_stories=settings.max_stories,
        tier=allowed.tier,
        tier_reason=allowed.reason,
        isolation=settings.bg_isolation,
        enforcement=enforcement.name,
        seal=enforcement.write_guard.sealing,
        ways_out=tuple(way.document for way in enforcement.ways_out),
        base_check=tuple(each.command for each in asked),
        base_known=_known(plan, asked),
        fence=plan.boundary,
        disjoint=plan.disjoint,
        possible_conflicts=_possible(plan),
        rows=rows,
        repos=_repositories(plan),
    )


def _possible(plan: Plan) -> tuple[Clash, ...]:
    """Return the stories that may conflict, as far as they are still to run."""
    return tuple(each for each in plan.overlaps if not any(name in plan.finished for name in each.stories))


def _known(plan: Plan, asked: Sequence[Question]) -> tuple[str, ...]:
    """Return the commands that the base has answered in an earlier run, so that they are not asked again."""
    repository = plan.repository
    if not asked:
        return ()
    tree = repository.trees((plan.base,))[0]
    known = known_answers(repository.common_dir, tree, asked, plan.settings)
    return tuple(each.command for each in asked if each.command in known)


def _position(found: Standing | None) -> dict[str, Any]:
    """Return the part of a row that says where a story is in its flow; nothing for one that does not run."""
    if found is None:
        return {}
    return {
        "step": structs.asdict(found.step) if found.step else None,
        "steps": tuple(structs.asdict(step) for step in found.steps),
        "boundary": found.until,
        "asks": found.asks,
        "problem": found.problem,
    }


def _reasons(plan: Plan, window: int) -> dict[StoryId, str]:
    """Return for each story when it starts, as the scheduler itself decides at the beginning."""
    statuses = {
        story.id: Status.DONE if story.id in plan.finished else Status.WAITING for story in plan.stories
    }
    statuses |= {story_id: Status(result.verdict) for story_id, result in plan.other_jobs.items()}
    decision = decide(plan.stories, statuses, window, plan.settings.continue_, admitting=True)
    finished = {
        story_id: f"done in run {done.run_id}; --again runs it again"
        for story_id, done in plan.finished.items()
    }
    skipped = {skip.story_id: f"is skipped: {skip.reason}" for skip in decision.skip}
    other_jobs = {
        story_id: f"{result.verdict} in another job: {result.reason}"
        for story_id, result in plan.other_jobs.items()
    }
    modes = {story.id: story.mode for story in plan.stories}
    starting = {story_id: _starts(modes[story_id]) for story_id in decision.start}
    return {**starting, **decision.waiting_for, **skipped, **finished, **other_jobs}


def _starts(mode: str) -> str:
    return f"starts immediately, alone (mode {mode})" if runs_alone(mode) else "starts immediately"


def _row(plan: Plan, story: Story, *, position: int, wave: int, reason: str) -> PlanRow:
    waits_for = tuple(name for name in story.depends_on if name not in plan.finished)
    site = plan.sites[story.repo]
    there = {each.id for each in plan.stories if each.repo == story.repo}
    base = " + ".join(branch_of(name) for name in story.depends_on if name in there) or site.base[:12]
    workers = plan.workers.get(story.id)
    return PlanRow(
        position=position,
        wave=wave,
        id=story.id,
        title=story.title,
        flow=story.flow,
        agent=", ".join(worker.agent.name for worker in workers.order) if workers else "",
        waits_for=waits_for,
        reason=reason,
        branch=branch_of(story.id),
        base=base,
        claim=story.owns,
        verify=story.verify or site.settings.verify,
        escalate=tuple(worker.name for worker in workers.later) if workers else (),
        max_attempts=story.max_attempts or plan.settings.max_attempts,
        story_minutes=story.story_minutes or plan.settings.story_minutes,
        verify_minutes=story.verify_minutes or site.settings.verify_minutes,
        best_of=most_candidates(story, plan.settings),
        review=workers.reviewer.name if workers and workers.reviewer else "",
        repo=site.label if plan.several else None,
    )


def _repositories(plan: Plan) -> tuple[PlanRepository, ...]:
    """Return the repositories of a plan with several, and whether the user has agreed to their files."""
    if not plan.several:
        return ()
    asked = demands_of(plan)
    return tuple(
        PlanRepository(
            name=site.label,
            path=str(site.repository.top),
            base=site.base,
            base_ref=site.settings.base
            if not site.url or site.settings.base != "HEAD"
            else "its default branch",
            trusted=not not_agreed_yet(
                site.repository, asked.get(name, ()), trust=plan.settings.trust, environ=os.environ
            ),
            url=site.url or None,
        )
        for name, site in plan.sites.items()
    )
