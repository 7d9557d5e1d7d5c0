"""Installs and removes the git merge driver for state files.

Nothing happens automatically: this changes the repository's configuration, so the user has to request it.
Only `<git common dir>/config` and `<git common dir>/info/attributes` are written, never a tracked file, and
all worktrees of the repository follow. Other lines of both files stay unchanged.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from isolation.files.disk import replace_file
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository, failure
from runner.core.flow import PROJECT_DOCS, STORY_DOCS, state_paths

NAME = "autopilot-state"
TITLE = "merges state files of stories without conflicts"
COMMAND = "autopilot-multi state merge-driver %O %A %B"
STATE_FILES = tuple(path for docs in (PROJECT_DOCS, f"{STORY_DOCS}/*") for path in state_paths(docs))
INSTALL, UNINSTALL = "install-merge-driver", "uninstall-merge-driver"
ACTIONS = (INSTALL, UNINSTALL)

_LINES = tuple(f"{path} merge={NAME}".encode() for path in STATE_FILES)
_NO_SECTION = 128
_UNSET = 1


class Answer(Struct, frozen=True, kw_only=True):
    """What a command prints: text, and values for the JSON document."""

    text: str
    data: dict[str, Any]


def execute(action: str, directory: Path) -> Answer:
    """Carry out one of `ACTIONS` for the repository around a folder."""
    repository = Repository.open(directory)
    before = is_installed(repository)
    if action == INSTALL:
        install(repository)
        text = "git now merges state files in this repository with the merge driver"
        same = "the merge driver is already installed in this repository"
    else:
        uninstall(repository)
        text = "removed the merge driver: git merges state files in this repository like any other file"
        same = "the merge driver is not installed in this repository"
    after = is_installed(repository)
    return Answer(
        text=same if before == after else text, data={"installed": after, "changed": before != after}
    )


def is_installed(repository: Repository) -> bool:
    """Return whether the driver is installed: git knows the driver and the files that it merges."""
    known = set(_lines(_attributes(repository)))
    return _config(repository, "driver") == COMMAND and known.issuperset(_LINES)


def install(repository: Repository) -> None:
    """Register the driver; doing so twice is harmless."""
    with metadata_lock(repository.common_dir):
        for key, value in (("name", TITLE), ("driver", COMMAND)):
            if _config(repository, key) != value:
                repository.run("config", "--local", f"merge.{NAME}.{key}", value)
        path = _attributes(repository)
        lines = _lines(path)
        missing = [line for line in _LINES if line not in lines]
        if missing:
            _write(path, [*lines, *missing])


def uninstall(repository: Repository) -> None:
    """Remove the driver; nothing happens where it is not installed."""
    with metadata_lock(repository.common_dir):
        # The attributes go first: files that name a missing driver would be merged as plain text.
        path = _attributes(repository)
        lines = _lines(path)
        left = [line for line in lines if line not in _LINES]
        if lines and not left:
            path.unlink()
        elif left != lines:
            _write(path, left)
        args = ("config", "--local", "--remove-section", f"merge.{NAME}")
        output = repository.run(*args, check=False)
        if output.returncode not in {0, _NO_SECTION}:
            raise failure(args, output)


def _config(repository: Repository, key: str) -> str | None:
    args = ("config", "--local", "--get", f"merge.{NAME}.{key}")
    output = repository.run(*args, check=False)
    if output.returncode not in {0, _UNSET}:
        raise failure(args, output)
    return output.stdout.removesuffix("\n") if output.returncode == 0 else None


def _attributes(repository: Repository) -> Path:
    return Path(os.path.realpath(repository.common_dir / "info" / "attributes"))


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []


def _write(path: Path, lines: Sequence[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    replace_file(path, b"".join(line + b"\n" for line in lines), mode=mode)
