"""The backlog as the jobs of a CI pipeline, in the format of each CI system. Writes nothing.

GitHub takes one matrix per stage, as outputs of a job; GitLab takes a whole pipeline. Both pass each job
the flags with which `run` selects its stories.
"""

import json
from typing import Any

from msgspec import Struct

from runner.core.errors import RunnerError
from runner.core.model import ContinuePolicy, Status, StoryId
from runner.core.schedule.fanout import Job, fan_out
from runner.plan.plan import Backlog
from runner.records.telemetry import load_loops, records_checkout

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
    """The stages of jobs, and how the CI system should run them."""

    base: str
    fail_fast: bool
    max_parallel: int
    stages: tuple[tuple[Job, ...], ...]

    @property
    def stories(self) -> tuple[StoryId, ...]:
        """Every story that a job runs."""
        return tuple(name for stage in self.stages for job in stage for name in job.stories)


def make_matrix(backlog: Backlog, *, stages: int | None = None, shards: int | None = None) -> Matrix:
    """Distribute the unfinished stories over jobs, balanced by how long they took before."""
    done = {name for name, result in backlog.other_jobs.items() if result.verdict == Status.DONE}
    todo = [story for story in backlog.stories if story.id not in backlog.finished and story.id not in done]
    settings = backlog.settings
    return Matrix(
        base=backlog.base,
        fail_fast=settings.continue_ is ContinuePolicy.NEVER,
        max_parallel=settings.max_stories,
        stages=fan_out(
            todo,
            stages=stages,
            shards=shards,
            seconds=_seconds(backlog),
            need_all=settings.token_budget is not None or settings.cost_budget is not None,
        ),
    )


def matrix_document(matrix: Matrix) -> dict[str, Any]:
    """Return the matrix as JSON values, for other CI systems and for `aggregate --matrix`."""
    return {
        "base": matrix.base,
        "fail_fast": matrix.fail_fast,
        "max_parallel": matrix.max_parallel,
        "stories": list(matrix.stories),
        "stages": [[_entry(job) for job in stage] for stage in matrix.stages],
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
            "matrix": {"include": [_entry(job) for job in stage]},
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
                "variables": {"AUTOPILOT_JOB": job.name, "AUTOPILOT_ONLY": _only(job)},
            }
    if not matrix.stages:
        # GitLab refuses a pipeline without jobs.
        pipeline["nothing to do"] = {"stage": JOIN, "script": ["echo every story is done"]}
    else:
        pipeline[JOIN] = {"extends": ".autopilot-join", "stage": JOIN}
    return yaml.safe_dump(pipeline, sort_keys=False, width=110)


def _seconds(backlog: Backlog) -> dict[StoryId, float]:
    """Return how long stories take: their own estimate, or else how long they took last time."""
    found: dict[StoryId, float] = {}
    repository = backlog.repository
    for record in load_loops(records_checkout(repository.paths)):
        seconds, story = record.get("duration_seconds"), record.get("story_id")
        if record.get("kind") == "story" and isinstance(seconds, int | float) and isinstance(story, str):
            found[StoryId(story)] = float(seconds)
    estimates = {
        story.id: story.estimate * SECONDS_A_MINUTE for story in backlog.stories if story.estimate is not None
    }
    return {**found, **estimates}


def _entry(job: Job) -> dict[str, Any]:
    return {
        "name": job.name,
        "stage": job.stage,
        "stories": list(job.stories),
        "only": _only(job),
        "seconds": job.seconds,
        "needs": list(job.needs),
    }


def _only(job: Job) -> str:
    """Return the flags that select a job's stories; ids need no quotes."""
    return " ".join(f"--only={name}" for name in job.stories)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
