"""What a run in a CI job takes from the jobs before it, and leaves for those after it.

Before the run: the commits of other jobs' stories, as branches. After it: the shard, and, where that
was asked for, the branches on the remote.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from isolation.errors import RepositoryError
from isolation.git.bundles import commits_since, push_branches, read_bundle
from isolation.git.repository import Repository
from isolation.paths import journal_path
from runner.ci.write_shard import Handover, require_free, write_shard
from runner.core.errors import RunnerError
from runner.core.events.events import Event
from runner.core.model import StoryId
from runner.core.text.names import branch_of
from runner.core.text.redaction import Redactor
from runner.core.text.words import count
from runner.plan.plan import Plan
from runner.records.journal import Journal
from runner.records.shards import BUNDLE, Shard, newest
from runner.run.coordinator import Ended


def prepare(plan: Plan, out: Path | None) -> list[str]:
    """Make sure that the shard can be written, bring the commits of other jobs, and say what came."""
    if out is not None:
        require_free(out)
    if not plan.told:
        return []
    brought = take_branches(plan.repository, plan.shards, list(plan.told))
    stories = count(len(plan.told), "story", "stories")
    return [
        f"{stories} of other jobs taken from shards, with {count(len(brought), 'new branch', 'new branches')}"
    ]


def take_branches(
    repository: Repository, shards: Sequence[Shard], stories: Sequence[StoryId]
) -> tuple[str, ...]:
    """Bring the branches of stories from the shards that count for them; name those that moved."""
    wanted: dict[Path, tuple[Shard, dict[str, str]]] = {}
    for name, shard in newest(shards).items():
        branch = branch_of(name)
        if name in stories and branch in shard.branches:
            _, tips = wanted.setdefault(shard.path, (shard, {}))
            tips[branch] = shard.branches[branch]
    brought: list[str] = []
    for path, (shard, tips) in wanted.items():
        shard.read(BUNDLE)  # git would take a torn one for another's fault
        brought += read_bundle(repository, path.resolve() / BUNDLE, tips)
    return tuple(brought)


def hand_over(plan: Plan, ended: Ended, *, out: Path | None, push: str | None) -> list[str]:
    """Write the shard and push the branches, as far as asked for; tell what did not work."""
    trouble = []
    own = [story.id for story in plan.own]
    if out is not None:
        handover = Handover(
            repository=plan.repository,
            run=ended.run,
            events=ended.events or _journalled(plan.repository, ended),
            own=own,
            backlog=plan.whole,
            redactor=Redactor(os.environ),
        )
        try:
            write_shard(out, handover)
        except (RunnerError, RepositoryError) as error:
            trouble.append(f"{error.message}; {error.hint}")
    if push is not None:
        branches = commits_since(plan.repository, plan.base, [branch_of(name) for name in own])
        try:
            if branches:
                push_branches(plan.repository, push, list(branches))
        except RepositoryError as error:
            trouble.append(Redactor(os.environ).text(f"the branches were not pushed: {error.message}"))
    return trouble


def _journalled(repository: Repository, ended: Ended) -> list[Event]:
    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        return journal.events(ended.run.run_id)
