"""Split the backlog into the jobs of a CI pipeline and print the matrix; changes nothing.

Stories without dependencies form the first stage, stories that depend on them the second, and so on.
Stories that are already done are left out. Each job runs its own stories with
`run --only … --shard-out`, the next stage reads the shards with `--shard-in`, and `aggregate` joins
them all.
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
    jobs.add_argument("--format", choices=FORMATS, default="json", help="the output format (default: json)")
    jobs.add_argument(
        "--stages",
        metavar="N",
        help="at most N stages; jobs of the last stage run whole chains of dependent stories",
    )
    jobs.add_argument(
        "--chain", action="store_true", help="one stage, with one job for each chain of dependent stories"
    )
    jobs.add_argument(
        "--shards",
        metavar="N",
        help="at most N jobs per stage, balanced by how long the stories took in earlier runs",
    )
    jobs.add_argument(
        "--include", metavar="FILE", help="gitlab: the file that defines the job `.autopilot-story`"
    )
    jobs.add_argument(
        "--records",
        metavar="PATH",
        action="append",
        default=[],
        help="how long stories took before: a file of `aggregate --records`, or a folder with shards; "
        "repeatable (default: the records of this repository)",
    )
    jobs.add_argument(
        "--require-agents",
        action="store_true",
        help="fail unless the agents of all stories are installed here, as `plan` does",
    )
    add_plan_flags(parser)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Plan, without checking for agents unless that is requested, and print the jobs."""
    from runner.plan.plan import RunRequest, load_backlog, make_plan
    from runner.plan.repositories.site import require_one_repository
    from runner.remote.ci.balance import load_records
    from runner.remote.ci.matrix import (
        GITLAB_INCLUDE,
        github_outputs,
        gitlab_pipeline,
        make_matrix,
        matrix_document,
    )

    if arguments.chain and arguments.stages:
        raise CommandLineError(
            "--chain and --stages cannot be combined", "--chain always makes one stage; pass one of the two."
        )
    load = make_plan if arguments.require_agents else load_backlog
    backlog = load(
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
    require_one_repository(backlog.sites, "matrix")
    for note in backlog.notes:
        output.warn(note)
    stages = 1 if arguments.chain else _number("--stages", arguments.stages)
    matrix = make_matrix(
        backlog,
        stages=stages,
        shards=_number("--shards", arguments.shards),
        records=load_records([Path(arguments.directory) / path for path in arguments.records]),
    )
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
        raise CommandLineError(
            f"{flag} must be a whole number above 0, not '{text}'", f"for example `{flag} 4`."
        )
    return int(text)
