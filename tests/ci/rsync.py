"""Copies files as rsync does in the few forms that gitlab-ci-local uses, for machines without rsync."""

import os
import shutil
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Copy; return 23, as rsync does, if something is missing."""
    excludes: list[str] = []
    names: list[str] = []
    relative = delete = False
    rest = iter(arguments)
    for argument in rest:
        if argument == "--exclude":
            excludes.append(next(rest))
        elif argument.startswith("--exclude="):
            excludes.append(argument.partition("=")[2])
        elif argument.startswith("--exclude-from="):
            excludes += Path(argument.partition("=")[2]).read_text().splitlines()
        elif argument.startswith("--delete"):
            delete = True
        elif argument.startswith("-"):
            relative |= "R" in argument
        else:
            names.append(argument)
    *sources, target = names
    left_out = {name.strip("/").removesuffix("/**") for name in excludes}
    if delete:
        shutil.rmtree(target, ignore_errors=True)
    code = 0
    for source in sources:
        if not os.path.lexists(source):
            code = 23
        elif relative:
            copy(source, os.path.join(target, source.lstrip("/")), left_out)
        else:
            inside = source.endswith(("/", "/."))
            copy(source, target if inside else os.path.join(target, os.path.basename(source)), left_out)
    return code


def copy(source: str, target: str, left_out: set[str]) -> None:
    """Copy a file, a link or a folder."""
    if os.path.normpath(source) in left_out:
        return
    if os.path.isdir(source) and not os.path.islink(source):
        os.makedirs(target, exist_ok=True)
        for name in os.listdir(source):
            copy(os.path.join(source, name), os.path.join(target, name), left_out)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.lexists(target):
        os.remove(target)
    shutil.copy2(source, target, follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
