"""Make the certificates of a cluster: `cluster init` writes them to a folder that every machine needs.

The scheduler, the workers and the coordinator of a run show the same certificate. Copy the folder to every
machine, by a way that is closed to others: with it, they could run commands there.
"""

import argparse

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi cluster init"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `cluster`."""
    parser.add_argument("action", choices=("init",), help="init: make the certificates")
    parser.add_argument(
        "--certificates",
        metavar="DIR",
        default="",
        help="the folder to write to (default: ~/.config/autopilot-multi/cluster)",
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the certificates, and say how they are used."""
    import os
    from datetime import UTC, datetime

    from runner.remote.cluster.address import CA, CERTIFICATE, KEY, certificates
    from runner.remote.cluster.certificates import make_certificates

    folder = certificates(arguments.certificates, os.environ)
    made = make_certificates(folder, now=datetime.now(UTC))
    output.document({"folder": str(folder), "files": [str(path) for path in made]})
    output.answer(f"certificates for a cluster are in {folder}")
    output.say("copy this folder to every machine of the cluster, closed to other users; then:")
    files = f"--tls-ca-file {folder / CA} --tls-cert {folder / CERTIFICATE} --tls-key {folder / KEY}"
    output.say(f"  dask scheduler --protocol tls {files}")
    output.say("  autopilot-multi worker tls://SCHEDULER:8786")
    output.say("  autopilot-multi --cluster tls://SCHEDULER:8786")
    return 0
