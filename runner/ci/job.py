"""A run inside a CI job: what it takes from earlier jobs, and what it leaves for later ones.

Before the run: the commits of other jobs' stories, as branches. After it: the shard and, if requested,
the branches on the remote.
"""

import os
from pathlib import Path

from isolation.errors import RepositoryError
from isolation.git.bundles import commits_since, push_branches
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


def prepare_job(plan: Plan, out: Path | None) -> list[str]:
    """Require that the shard can be written, import the commits of other jobs, and return messages."""
    if out is not None:
        require_free(out)
    if not plan.other_jobs:
        return []
    branches = import_branches(plan.repository, plan.shards, list(plan.other_jobs))
    stories = count(len(plan.other_jobs), "story", "stories")
    new = count(len(branches), "new branch", "new branches")
    return [f"imported {stories} of other jobs from shards, with {new}"]


def finish_job(plan: Plan, ended: Ended, *, out: Path | None, push: str | None) -> list[str]:
    """Write the shard and push the branches, as requested; return what failed."""
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
    if push is not None:
        branches = commits_since(plan.repository, plan.base, [branch_of(name) for name in own])
        try:
            if branches:
                push_branches(plan.repository, push, list(branches))
        except RepositoryError as error:
            failures.append(Redactor(os.environ).text(f"cannot push the branches: {error.message}"))
    return failures


def _journal_events(repository: Repository, ended: Ended) -> list[Event]:
    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        return journal.events(ended.run.run_id)
