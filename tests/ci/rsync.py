"""Copies files as rsync does in the few forms that gitlab-ci-local uses, for machines without rsync."""

import argparse
import os
import shutil
import sys
from pathlib import Path

MISSING = 23
"""The exit code of rsync if a file to copy is not there."""


def main(arguments: list[str]) -> int:
    """Copy as the flags say."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-a", action="store_true")
    parser.add_argument("-R", action="store_true")
    parser.add_argument("--exclude", action="append", default=[])
    parser.add_argument("--exclude-from", type=Path)
    parser.add_argument("--delete", action="store_true")
    parser.add_argument("--delete-excluded", action="store_true")
    parser.add_argument("names", nargs="+")
    given = parser.parse_args(arguments)
    excludes = given.exclude + (given.exclude_from.read_text().splitlines() if given.exclude_from else [])
    left_out = {Path(name.strip("/").removesuffix("/**")) for name in excludes}
    *sources, last = given.names
    target = Path(last)
    if given.delete:
        shutil.rmtree(target, ignore_errors=True)
    for source in sources:
        if given.R:
            copy(Path(source), target / source.lstrip("/"), left_out)
        elif source.endswith(("/", "/.")):
            copy(Path(source), target, left_out)
        else:
            copy(Path(source), target / Path(source).name, left_out)
    return 0 if all(os.path.lexists(source) for source in sources) else MISSING


def copy(source: Path, target: Path, left_out: set[Path]) -> None:
    """Copy a file, a link or a folder; what is not there is left out."""
    if source in left_out or not os.path.lexists(source):
        return
    if source.is_dir() and not source.is_symlink():
        target.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            copy(path, target / path.name, left_out)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
