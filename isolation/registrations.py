"""The worktrees that git knows of: reading the list, and taking one entry off it.

An entry is ours when its lock reason says so: every worktree of a story is locked with the run and
the story that it belongs to. Functions here change shared metadata only under the caller's
`metadata_lock`.
"""

import os
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from isolation.checkout import admin_dir_of_missing
from isolation.errors import RepositoryError
from isolation.layout import autopilot_dir
from isolation.repository import Repository, failure

_REASON = re.compile(r"autopilot-multi run (?P<run>\S+) story (?P<story>\S+)")
_USAGE = 129


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One entry of `git worktree list`; `lock_reason` is None when it is not locked."""

    path: Path
    head: str
    branch: str | None
    lock_reason: str | None

    @property
    def run_id(self) -> str | None:
        """The run that this worktree was last opened for, None when it is not ours."""
        match = _REASON.fullmatch(self.lock_reason or "")
        return match["run"] if match else None

    @property
    def is_torn(self) -> bool:
        """Whether `git worktree add` was killed before it had written a HEAD."""
        return set(self.head) == {"0"}


def lock_reason(run_id: str, story_id: str) -> str:
    """Say whose worktree it is, for people and for `gc`."""
    return f"autopilot-multi run {run_id} story {story_id}"


def load_registrations(repository: Repository) -> tuple[Registration, ...]:
    """Read every worktree that git knows of; the main checkout comes first."""
    args = ("worktree", "list", "--porcelain", "-z")
    output = repository.run(*args, check=False)
    text, separator = output.stdout, "\0"
    if output.returncode == _USAGE:  # before git 2.36 there is no -z
        text, separator = repository.run(*args[:-1]).stdout, "\n"
    elif output.returncode != 0:
        raise failure(args, output)
    return tuple(_parse(block.split(separator)) for block in text.split(separator * 2) if block)


def registration_at(repository: Repository, path: Path) -> Registration | None:
    """Find the worktree that is registered at exactly this path."""
    return next((each for each in load_registrations(repository) if each.path == path), None)


def clear_missing(repository: Repository, path: Path) -> None:
    """Take the entry of a worktree whose folder is gone off git's list; the branch stays.

    The entry is moved out of git's sight in one step, so that a crash leaves a whole entry or none.
    """
    if os.path.lexists(path / ".git"):
        raise RepositoryError(f"{path} is still there", hint="it is kept; run again")
    entry = admin_dir_of_missing(repository, path)
    if entry is None:
        return
    trash = autopilot_dir(repository.common_dir) / "trash"
    aside = trash / f"{entry.name}-{secrets.token_hex(6)}"
    try:
        trash.mkdir(parents=True, exist_ok=True)
        entry.rename(aside)
    except OSError as error:
        raise RepositoryError(
            f"the registration of {path} could not be removed: {error.strerror}",
            hint=f"`git worktree remove {path}` does it by hand",
        ) from error
    shutil.rmtree(aside, ignore_errors=True)
    for folder in (trash, entry.parent):
        with suppress(OSError):
            folder.rmdir()


def _parse(lines: list[str]) -> Registration:
    values = dict(line.partition(" ")[::2] for line in lines)
    branch = values.get("branch")
    return Registration(
        path=Path(values["worktree"]),
        head=values.get("HEAD", ""),
        branch=branch.removeprefix("refs/heads/") if branch else None,
        lock_reason=values.get("locked"),
    )
