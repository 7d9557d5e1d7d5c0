"""The backlog as the jobs of a CI pipeline, in the format of each CI system. Writes nothing.

GitHub takes one matrix per stage, as outputs of a job; GitLab takes a whole pipeline. Both pass each job
the flags with which `run` selects its stories.
"""

import json
from typing import Any

from msgspec import Struct

from runner.ci.balance import Records, repository_records
from runner.core.errors import RunnerError
from runner.core.limits.budget import Amount
from runner.core.model import ContinuePolicy, Status, StoryId
from runner.core.schedule.fanout import Job, fan_out
from runner.plan.plan import Backlog

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

    `limited` means that there is a budget, so that each job needs its share of it. `session_cost` is what a
    session is expected to cost of `cost_left`; both are None where that is not known, or not limited.
    """

    base: str
    fail_fast: bool
    max_parallel: int
    stages: tuple[tuple[Job, ...], ...]
    limited: bool = False
    cost_left: float | None = None
    session_cost: float | None = None

    @property
    def stories(self) -> tuple[StoryId, ...]:
        """Every story that a job runs."""
        return tuple(name for stage in self.stages for job in stage for name in job.stories)

    def share(self, job: Job) -> str:
        """Return which part of what is left of the budgets a job may use; empty without a budget.

        The jobs of a stage cannot see each other's sessions, so each gets an equal part. Where that would be
        less than a session costs, only as many jobs get a part as there is money for.
        """
        if not self.limited:
            return ""
        stage = self.stages[job.stage - 1]
        parts = len(stage)
        if self.cost_left is not None and self.session_cost:
            parts = min(parts, max(1, int(self.cost_left / self.session_cost)))
        return f"1/{parts}" if stage.index(job) < parts else "0"


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
        ),
        limited=left != Amount(),
        cost_left=left.cost,
        session_cost=_session_cost(backlog, records) if left.cost is not None else None,
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


def _session_cost(backlog: Backlog, records: Records) -> float | None:
    """Return what a session is expected to cost: as the settings say, or the most that one cost before."""
    stated = backlog.settings.session_cost
    return records.session_cost if stated is None else stated


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
