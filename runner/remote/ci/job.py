"""A run inside a CI job: what it takes from earlier jobs, and what it leaves for later ones.

Before the run: the commits of other jobs' stories, as branches. After it: the shard and, if requested,
the branches on the remote.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from isolation.errors import RepositoryError
from isolation.git.bundles import commits_since
from isolation.git.remotes import described, push_branches, require_pushable
from isolation.git.repository import Repository
from isolation.paths import journal_path
from runner.core.errors import RunnerError
from runner.core.events.events import Event
from runner.core.model import Status
from runner.core.text.names import branch_of
from runner.core.text.words import count
from runner.plan.plan import Plan
from runner.plan.settings.json_form import redactor_for
from runner.records.journal import Journal
from runner.records.shards.results import newest
from runner.records.shards.shard import Shard, ShardError
from runner.remote.ci.earlier_work import make_room, set_orphans_aside
from runner.remote.ci.import_shards import import_branches
from runner.remote.ci.shard_writer import ShardContent, require_free, write_shard
from runner.run.result.ended import Ended


class JobEnd(Struct, frozen=True, kw_only=True):
    """What was done after a run, in words, and what failed."""

    said: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


def prepare_job(plan: Plan, out: Path | None, *, push: str | None = None) -> list[str]:
    """Require that the shard can be written and the remote takes a push; import the commits of other jobs.

    Returns messages.
    """
    if out is not None:
        require_free(out)
    if push is not None:
        require_pushable(plan.repository, push, plan.base)
    said = make_room(plan) if out is not None else set_orphans_aside(plan)
    if not plan.other_jobs:
        return said
    imported = import_branches(plan.repository, plan.shards, list(plan.other_jobs))
    if imported.problems:
        # A story must not start without the commits of those that it depends on.
        raise ShardError(imported.problems[0], hint="nothing was started.")
    said += imported.renamed
    stories = count(len(plan.other_jobs), "story", "stories")
    new = count(len(imported.branches), "new branch", "new branches")
    said.append(f"imported {stories} of other jobs from shards, with {new}")
    said += [
        f"story {name} is handed on: an earlier attempt of this job has done it; --again runs it again"
        for name in plan.handed_on
    ]
    return said


def finish_job(plan: Plan, ended: Ended, *, out: Path | None, push: str | None) -> JobEnd:
    """Write the shard and push the branches, as requested."""
    failures = []
    own = [story.id for story in plan.own]
    if out is not None:
        content = ShardContent(
            repository=plan.repository,
            run=ended.run,
            events=ended.events or _journal_events(plan.repository, ended),
            own=own,
            backlog=plan.all_stories,
            redactor=redactor_for(plan.settings, os.environ, plan.repository),
            handed_on=_handed_on(plan),
        )
        try:
            write_shard(out, content)
        except (RunnerError, RepositoryError) as error:
            failures.append(f"{error.message}; {error.hint}")
    pushed = _push(plan, [*own, *plan.handed_on], push) if push is not None else JobEnd()
    return JobEnd(said=pushed.said, failures=(*failures, *pushed.failures))


def _handed_on(plan: Plan) -> list[Shard]:
    sources = newest(plan.shards)
    return list({sources[name].run_id: sources[name] for name in plan.handed_on}.values())


def _failed_tips(plan: Plan) -> dict[str, frozenset[str]]:
    """Return the commits of earlier attempts at the same work that were not done; a push may replace them."""
    found: dict[str, frozenset[str]] = {}
    for shard in plan.shards:
        for name in shard.stories if shard.base == plan.base else ():
            branch, result = branch_of(name), shard.verdicts.get(name)
            tip = shard.branches.get(branch)
            if tip and (result is None or result.verdict != Status.DONE):
                found[branch] = found.get(branch, frozenset()) | {tip}
    return found


def _push(plan: Plan, own: Sequence[str], remote: str) -> JobEnd:
    """Push what the job's own stories committed, and say of each branch where it is now."""
    repository, redactor = plan.repository, redactor_for(plan.settings, os.environ, plan.repository)
    tips = commits_since(repository, plan.base, [branch_of(name) for name in own])
    if not tips:
        return JobEnd(said=("pushed nothing: no story has commits",))
    try:
        results = push_branches(repository, remote, tips, replaceable=_failed_tips(plan))
    except RepositoryError as error:
        return JobEnd(failures=(redactor.text(f"cannot push the branches: {error.message}"),))
    to = described(repository, remote)
    return JobEnd(
        said=tuple(
            redactor.text(f"pushed {one.branch} at {one.commit[:12]} to {to}: {one.how}")
            for one in results
            if not one.refusal
        ),
        failures=tuple(
            redactor.text(f"cannot push {one.branch} to {to}: {one.refusal}")
            for one in results
            if one.refusal
        ),
    )


def _journal_events(repository: Repository, ended: Ended) -> list[Event]:
    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        return journal.events(ended.run.run_id)
