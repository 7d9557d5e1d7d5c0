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
from runner.ci.import_shards import import_branches
from runner.ci.shard_writer import ShardContent, require_free, write_shard
from runner.core.errors import RunnerError
from runner.core.events.events import Event
from runner.core.text.names import branch_of
from runner.core.text.redaction import Redactor
from runner.core.text.words import count
from runner.plan.plan import Plan
from runner.records.journal import Journal
from runner.run.coordinator import Ended


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
    if not plan.other_jobs:
        return []
    branches = import_branches(plan.repository, plan.shards, list(plan.other_jobs))
    stories = count(len(plan.other_jobs), "story", "stories")
    new = count(len(branches), "new branch", "new branches")
    return [f"imported {stories} of other jobs from shards, with {new}"]


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
            redactor=Redactor(os.environ),
        )
        try:
            write_shard(out, content)
        except (RunnerError, RepositoryError) as error:
            failures.append(f"{error.message}; {error.hint}")
    pushed = _push(plan, own, push) if push is not None else JobEnd()
    return JobEnd(said=pushed.said, failures=(*failures, *pushed.failures))


def _push(plan: Plan, own: Sequence[str], remote: str) -> JobEnd:
    """Push what the job's own stories committed, and say of each branch where it is now."""
    repository, redactor = plan.repository, Redactor(os.environ)
    tips = commits_since(repository, plan.base, [branch_of(name) for name in own])
    if not tips:
        return JobEnd(said=("pushed nothing: no story has commits",))
    try:
        results = push_branches(repository, remote, tips)
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
