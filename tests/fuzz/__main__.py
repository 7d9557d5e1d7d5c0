"""Fuzz targets for a time: `python -m tests.fuzz [--seconds 60] [--keep FOLDER] [TARGET...]`.

With atheris (`pip install atheris`, which is no dependency) each target runs in a process of its own, guided
by coverage; without it hypothesis searches, guided by the number of lines that an input reaches. Exit code 1
if anything was found; the inputs are then in the folder.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import run
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Run a campaign and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--keep", type=Path, help="where inputs that broke something are kept")
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[[], *TARGETS], default=[])
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="fuzz-findings-"))
    failed = False
    for name in arguments.targets or TARGETS:
        ended = run(name, arguments.seconds, folder)
        sys.stdout.write(f"{name}: {ended.runs} inputs ({ended.engine}), {len(ended.findings)} findings\n")
        for finding in ended.findings:
            failed = True
            sys.stdout.write(f"  {finding.input}\n    {finding.error}\n")
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
