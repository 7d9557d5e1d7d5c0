"""Spread the backlog over the jobs of a CI pipeline: print the matrix, change nothing.

Stories that depend on nothing are the first stage, those that depend on them the second, and so on.
Only what is not done is there. Each job runs its own stories with `run --only … --shard-out`, and the
next stage takes them up with `--shard-in`; `aggregate` joins them all.
"""

import argparse
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import CommandLineError, common
from runner.cli.run_options import add_plan_flags, flags_of, shard_folders

EXAMPLE = 'autopilot-multi matrix --format github >> "$GITHUB_OUTPUT"'

FORMATS = ("github", "gitlab", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `matrix`."""
    jobs = parser.add_argument_group("jobs")
    jobs.add_argument("--format", choices=FORMATS, default="json", help="for which system (default: json)")
    jobs.add_argument(
        "--stages", metavar="N", help="at most N stages; the jobs of the last carry whole chains of stories"
    )
    jobs.add_argument("--chain", action="store_true", help="one stage: one job for each chain of stories")
    jobs.add_argument(
        "--shards", metavar="N", help="at most N jobs a stage, balanced by how long stories took before"
    )
    jobs.add_argument(
        "--include", metavar="FILE", help="gitlab: the file that has the job `.autopilot-story`"
    )
    add_plan_flags(parser)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Plan without asking for agents, and print the jobs."""
    from runner.ci.matrix import (
        GITLAB_INCLUDE,
        github_outputs,
        gitlab_pipeline,
        make_matrix,
        matrix_document,
    )
    from runner.plan.plan import RunRequest, load_backlog

    if arguments.chain and arguments.stages:
        raise CommandLineError("--chain is one stage, and --stages asks for more", "give one of the two.")
    backlog = load_backlog(
        RunRequest(
            directory=Path(arguments.directory),
            sources=tuple(arguments.sources),
            flags=flags_of(arguments),
            only=tuple(arguments.only),
            retry_failed=arguments.retry_failed,
            again=arguments.again,
            shard_in=shard_folders(arguments),
        )
    )
    for note in backlog.notes:
        output.warn(note)
    stages = 1 if arguments.chain else _number("--stages", arguments.stages)
    matrix = make_matrix(backlog, stages=stages, shards=_number("--shards", arguments.shards))
    if arguments.format == "github":
        text = github_outputs(matrix)
    elif arguments.format == "gitlab":
        text = gitlab_pipeline(matrix, include=arguments.include or GITLAB_INCLUDE)
    else:
        import json

        text = json.dumps(matrix_document(matrix), indent=2)
    output.document(matrix_document(matrix))
    output.answer(text)
    return 0


def _number(flag: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise CommandLineError(f"{flag} takes a number from 1 on, not '{text}'", f"for example `{flag} 4`.")
    return int(text)
