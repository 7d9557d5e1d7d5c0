"""The backlog as the jobs of a CI pipeline, in the format of each CI system. Writes nothing.

GitHub takes one matrix per stage, as outputs of a job; GitLab takes a whole pipeline. Both pass each job
the flags with which `run` selects its stories.
"""

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from runner.core.errors import RunnerError
from runner.core.limits.budget import Amount
from runner.core.model import ContinuePolicy, Status, Story, StoryId
from runner.core.schedule.budget_share import is_known, parts_of
from runner.core.schedule.fanout import Job, fan_out
from runner.plan.plan import Backlog
from runner.remote.ci.balance import Records, repository_records

GITHUB_JOBS = 256
"""How many jobs GitHub accepts in one matrix."""

GITHUB_OUTPUT = 1_000_000
"""How many characters GitHub accepts as outputs of a job, with some left for the rest."""

GITLAB_NEEDS = 50
"""How many jobs GitLab lets a job need. One that needs more waits for all earlier stages instead."""

GITLAB_INCLUDE = "/.gitlab/autopilot.yml"
JOIN = "join"
SECONDS_A_MINUTE = 60


class MatrixError(RunnerError):
    """The backlog does not fit into the requested jobs."""

    code = "matrix"


class Matrix(Struct, frozen=True, kw_only=True):
    """The stages of jobs, and how the CI system should run them.

    `left` is what is left of the budgets; where there is one, each job needs its share. `session` is what a
    session is expected to spend, as far as that is known. Those of `free` stories spend nothing.
    """

    base: str
    fail_fast: bool
    max_parallel: int
    stages: tuple[tuple[Job, ...], ...]
    left: Amount = Amount()
    session: Amount = Amount()
    free: frozenset[StoryId] = frozenset()

    @property
    def stories(self) -> tuple[StoryId, ...]:
        """Every story that a job runs."""
        return tuple(name for stage in self.stages for job in stage for name in job.stories)

    def share(self, job: Job) -> str:
        """Return which part of what is left of the budgets a job may use; empty without a budget.

        The jobs of a stage cannot see each other's sessions, so each gets an equal part. Where that would be
        less than a session spends, only as many jobs get a part as there is money for. Where nothing is known
        about sessions, the jobs find that out from the shards of earlier stages.
        """
        if self.left == Amount():
            return ""
        stage = [each for each in self.stages[job.stage - 1] if not self.free.issuperset(each.stories)]
        if job not in stage:
            return "1"
        place = stage.index(job)
        if not is_known(self.left, self.session):
            return f"1/{len(stage)}@{place + 1}"
        parts = parts_of(len(stage), self.left, self.session)
        return f"1/{parts}" if place < parts else "0"


def make_matrix(
    backlog: Backlog,
    *,
    stages: int | None = None,
    shards: int | None = None,
    records: Records | None = None,
) -> Matrix:
    """Distribute the unfinished stories over jobs, balanced by how long they took before."""
    records = records or repository_records(backlog.repository)
    done = {name for name, result in backlog.other_jobs.items() if result.verdict == Status.DONE}
    todo = [story for story in backlog.stories if story.id not in backlog.finished and story.id not in done]
    settings = backlog.settings
    left = backlog.others.left_of(Amount(tokens=settings.token_budget, cost=settings.cost_budget))
    session = _session(backlog, records)
    first = None if left == Amount() or is_known(left, session) else _first(todo)
    return Matrix(
        base=backlog.base,
        fail_fast=settings.continue_ is ContinuePolicy.NEVER,
        max_parallel=settings.max_stories,
        stages=fan_out(
            todo,
            stages=stages,
            shards=shards,
            seconds=_seconds(backlog, records),
            need_all=left != Amount(),
            first=first,
        ),
        left=left,
        session=session,
        free=frozenset(story.id for story in todo if story.command),
    )


def matrix_document(matrix: Matrix) -> dict[str, Any]:
    """Return the matrix as JSON values, for other CI systems and for `aggregate --matrix`."""
    return {
        "base": matrix.base,
        "fail_fast": matrix.fail_fast,
        "max_parallel": matrix.max_parallel,
        "stories": list(matrix.stories),
        "stages": [[_entry(matrix, job) for job in stage] for stage in matrix.stages],
    }


def github_outputs(matrix: Matrix) -> str:
    """Return the lines that a step adds to its outputs: one strategy per stage, their count, the base."""
    for number, stage in enumerate(matrix.stages, 1):
        if len(stage) > GITHUB_JOBS:
            raise MatrixError(
                f"stage {number} has {len(stage)} jobs, but GitHub accepts at most {GITHUB_JOBS} in a matrix",
                hint=f"use `--shards {GITHUB_JOBS}` to put several stories into one job.",
            )
    stages: list[dict[str, Any]] = [
        {
            "fail-fast": matrix.fail_fast,
            "max-parallel": matrix.max_parallel,
            "matrix": {"include": [_entry(matrix, job) for job in stage]},
        }
        for stage in matrix.stages
    ]
    text = _compact(stages)
    if len(text) > GITHUB_OUTPUT:
        # The names are a pattern for the artifacts that a job downloads: all of them.
        entries = [entry for stage in stages for entry in stage["matrix"]["include"] if entry["needs"]]
        for entry in entries:
            entry["needs"] = ["*"]
        text = _compact(stages)
    lines = {"stages": text, "count": str(len(stages)), "base": matrix.base}
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def gitlab_pipeline(matrix: Matrix, *, include: str = GITLAB_INCLUDE) -> str:
    """Return a child pipeline whose jobs extend `.autopilot-story` of the included file.

    GitLab cannot limit how many jobs run simultaneously, so the jobs share that many resource groups.
    """
    import yaml

    stages = [f"stage-{number}" for number in range(1, len(matrix.stages) + 1)]
    pipeline: dict[str, Any] = {"include": [{"local": include}], "stages": [*stages, JOIN]}
    slot = 0
    for stage in matrix.stages:
        for job in stage:
            slot = slot % matrix.max_parallel + 1
            needs = [f"story {name}" for name in job.needs]
            pipeline[f"story {job.name}"] = {
                "extends": ".autopilot-story",
                "stage": f"stage-{job.stage}",
                **({"needs": needs} if len(needs) <= GITLAB_NEEDS else {"dependencies": needs}),
                "resource_group": f"autopilot-{slot}",
                "variables": {"AUTOPILOT_JOB": job.name, "AUTOPILOT_ONLY": _only(matrix, job)},
            }
    if not matrix.stages:
        # GitLab refuses a pipeline without jobs.
        pipeline["nothing to do"] = {"stage": JOIN, "script": ["echo every story is done"]}
    else:
        pipeline[JOIN] = {"extends": ".autopilot-join", "stage": JOIN}
    return yaml.safe_dump(pipeline, sort_keys=False, width=110)


def _seconds(backlog: Backlog, records: Records) -> dict[StoryId, float]:
    """Return how long stories take: their own estimate, or else how long they took last time."""
    estimates = {
        story.id: story.estimate * SECONDS_A_MINUTE for story in backlog.stories if story.estimate is not None
    }
    return {**records.seconds, **estimates}


def _session(backlog: Backlog, records: Records) -> Amount:
    """Return what a session is expected to spend: as the settings say, or the most that one spent before."""
    said, seen = backlog.settings, records.session
    return Amount(
        tokens=seen.tokens if said.session_tokens is None else said.session_tokens,
        cost=seen.cost if said.session_cost is None else said.session_cost,
    )


def _first(todo: Sequence[Story]) -> StoryId | None:
    """Return the story that runs before all others, to show what a session spends; None if none has any."""
    names = {story.id for story in todo}
    agents = (story for story in todo if not story.command and names.isdisjoint(story.depends_on))
    return next((story.id for story in agents), None)


def _entry(matrix: Matrix, job: Job) -> dict[str, Any]:
    return {
        "name": job.name,
        "stage": job.stage,
        "stories": list(job.stories),
        "only": _only(matrix, job),
        "seconds": job.seconds,
        "needs": list(job.needs),
    }


def _only(matrix: Matrix, job: Job) -> str:
    """Return the flags that select a job's stories and its share of the budgets; nothing needs quotes."""
    share = matrix.share(job)
    flags = [f"--only={name}" for name in job.stories] + [f"--budget-share={share}"] * bool(share)
    return " ".join(flags)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
