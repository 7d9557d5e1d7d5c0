"""Fuzz targets for a time: `python -m tests.fuzz [--seconds 60] [--keep FOLDER] [--grow] [TARGET...]`.

With atheris (`pip install atheris`, which is no dependency) each target runs in a process of its own, guided
by coverage; without it hypothesis searches, guided by the number of lines that an input reaches. Exit code 1
if anything was found; the inputs are then in the folder, and each is printed with the command that shows it
again. `--grow` adds what reaches something new to the corpus in the tree.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import FOUND, run
from tests.fuzz.growth import grow
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Run a campaign and print what it found, or show one input."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--keep", type=Path, help="where inputs that broke something are kept")
    parser.add_argument("--grow", action="store_true", help="add what reaches something new to the corpus")
    parser.add_argument("--input", type=Path, help="give one input to a target, and show what happens")
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[[], *TARGETS], default=[])
    arguments = parser.parse_args()
    if arguments.input:
        for name in arguments.targets:
            TARGETS[name].check(arguments.input.read_bytes())
            sys.stdout.write(f"{name}: taken, or refused as it should be\n")
        return 0
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="fuzz-findings-"))
    inputs = findings = 0
    for name in arguments.targets or TARGETS:
        ended = run(name, arguments.seconds, folder)
        inputs, findings = inputs + ended.runs, findings + len(ended.findings)
        sys.stdout.write(f"{name}: {ended.runs} inputs ({ended.engine}), {len(ended.findings)} findings\n")
        for finding in ended.findings:
            sys.stdout.write(f"  {finding.error}\n    {finding.command}\n")
        found = folder / name / FOUND
        for path in grow(TARGETS[name], found) if arguments.grow and found.is_dir() else ():
            sys.stdout.write(f"  new: {path}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{inputs} inputs, {findings} findings\n")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
