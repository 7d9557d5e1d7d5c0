"""Work for the coordinators of a cluster: wait at a Dask scheduler for runs with `--cluster`.

The worker keeps a clone of each repository in its folder, brought up to date by what a coordinator sends,
and runs stories there as a run on this machine would: with worktrees, keeper and guard of its own. If its
connection breaks, its sessions continue, and it joins again. Ctrl-C ends it; its stories start again
elsewhere.
"""

import argparse

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi worker tls://scheduler.example.org:8786 --slots=4 --label=linux"

MOST_PORTS = 1 << 16


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `worker`."""
    parser.add_argument("address", metavar="ADDRESS", help="the scheduler: its address or scheduler file")
    parser.add_argument("--name", metavar="NAME", help="how the worker is called (default: host and process)")
    parser.add_argument(
        "--slots", metavar="N", type=int, default=0, help="stories at a time (default: the run's max-stories)"
    )
    parser.add_argument(
        "--offer",
        metavar="NAME=AMOUNT",
        action="append",
        default=[],
        help="a resource that stories may need, for example gpu=1",
    )
    parser.add_argument("--label", metavar="WORD", action="append", default=[], help="a label, such as linux")
    parser.add_argument(
        "--folder",
        metavar="DIR",
        help="where its clones are (default: ~/.local/share/autopilot-multi-workers)",
    )
    parser.add_argument(
        "--port", metavar="PORT", type=int, default=0, help="where it listens (default: any free port)"
    )
    parser.add_argument(
        "--contact",
        metavar="ADDRESS",
        default="",
        help="where the scheduler reaches it, if that is not where it listens: tls://gateway:9000",
    )
    parser.add_argument(
        "--certificates", metavar="DIR", default="", help="the certificates that `cluster init` made"
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Serve until a signal ends it."""
    import os
    from pathlib import Path

    from runner.core.errors import UsageError
    from runner.remote.cluster.address import (
        certificates,
        parse,
        require_packages,
        security_for,
    )
    from runner.remote.cluster.worker.process import WorkerOptions, serve

    require_packages()
    where = parse(arguments.address, Path(arguments.directory).absolute())
    if where.local:
        raise UsageError(
            "a worker needs the address of a scheduler", hint="for example tcp://127.0.0.1:8786."
        )
    if arguments.slots < 0:
        raise UsageError("--slots must not be negative", hint="0 stands for the run's max-stories.")
    if not 0 <= arguments.port < MOST_PORTS:
        raise UsageError(f"--port {arguments.port} is no port", hint="for example --port 9000.")
    options = WorkerOptions(
        address=where.address,
        security=security_for(where.address, certificates(arguments.certificates, os.environ)),
        name=arguments.name or "",
        slots=arguments.slots,
        resources=dict(_amount(text) for text in arguments.offer),
        labels=tuple(arguments.label),
        folder=arguments.folder or "",
        port=arguments.port,
        contact=_contact(arguments.contact) if arguments.contact else "",
    )
    return serve(options, output.say)


def _contact(text: str) -> str:
    from runner.core.errors import UsageError
    from runner.remote.cluster.address import with_protocol

    try:
        return with_protocol(text)
    except UsageError as error:
        raise UsageError(
            f"'--contact {text}' is not an address", hint="for example --contact tls://gateway:9000."
        ) from error


def _amount(text: str) -> tuple[str, float]:
    from runner.core.errors import UsageError

    name, _, amount = text.partition("=")
    try:
        value = float(amount or 1)
    except ValueError:
        value = -1.0
    if not name or not 0 < value < float("inf"):
        raise UsageError(f"'--offer {text}' is not a name with an amount", hint="for example --offer gpu=1.")
    return name, value
