"""What will stop a run or surprise its stories, found before anything starts; nothing is changed."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct

from isolation.git.checkout import read_status
from isolation.git.large_files.stored import unprepared
from isolation.git.repository import Repository
from isolation.model import IsolationMode
from isolation.worktree.provision import INCLUDE_FILE
from runner.core.settings import Settings
from runner.core.text.shell_words import programs_of
from runner.plan.settings.load import PROJECT_FILES

SUBMODULE_HOOK = 'after_create = "git submodule update --init"'
"""The hook that fills the submodules of a new worktree."""

LFS_SETUP = "install git-lfs, then `git lfs install` and `git lfs pull`"
"""What makes files of git-lfs right in this clone and its worktrees."""


class Unseen(Struct, frozen=True, kw_only=True):
    """What the checkout has and the worktree of a story will not have.

    `uncommitted` are changed and untracked files, without the stories and the settings, which are read from
    the checkout. `installed` are folders of packages that git should ignore and does not; their files are not
    listed. `submodules` are folders that stay empty. `large_files` says why those of git-lfs are wrong.
    """

    uncommitted: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    large_files: str = ""


class MissingProgram(Struct, frozen=True, kw_only=True):
    """A program that a verify command starts and that a story will not find; `why` completes "PROGRAM …"."""

    program: str
    command: str
    why: str
    hint: str


def unseen_by_stories(repository: Repository, settings: Settings, *, idle: bool = False) -> Unseen:
    """Return what stories that start from the checkout's commit will not see; `idle` as of `read_status`."""
    if settings.bg_isolation != IsolationMode.WORKTREE or repository.main_checkout is None:
        return Unseen()
    top = repository.top
    own = (PurePosixPath(settings.stories), *map(PurePosixPath, PROJECT_FILES))
    dirty = read_status(repository, top, idle=idle).dirty
    installed = _package_folders(dirty)
    own = (*own, *installed)
    return Unseen(
        uncommitted=tuple(
            path for path in dirty if not any(PurePosixPath(path).is_relative_to(each) for each in own)
        ),
        installed=tuple(f"{folder}/" for folder in installed),
        submodules=tuple(_submodules(repository, settings)),
        large_files=unprepared(repository),
    )


def _package_folders(paths: Sequence[str]) -> tuple[PurePosixPath, ...]:
    """Return the outermost folders of these files that are an environment of Python or Node's packages."""
    found: set[PurePosixPath] = set()
    for path in paths:
        folders = PurePosixPath(path).parents
        if path.endswith("/pyvenv.cfg"):
            found.add(folders[0])
        if "node_modules/" in path:
            found.update(folder for folder in folders if folder.name == "node_modules")
    return tuple(sorted(each for each in found if found.isdisjoint(each.parents)))


def _submodules(repository: Repository, settings: Settings) -> Iterator[str]:
    """Yield the submodules that no hook fills: git leaves them empty in a new worktree."""
    if not (repository.top / ".gitmodules").exists() or "submodule" in settings.hooks.after_create:
        return
    for entry in repository.run("ls-files", "--stage", "-z").fields():
        if entry.startswith("160000 "):
            yield entry.partition("\t")[2]


def missing_programs(
    commands: Sequence[str], repository: Repository, settings: Settings, environ: Mapping[str, str]
) -> tuple[MissingProgram, ...]:
    """Return the programs that these commands are certain to start and that stories will not find."""
    found: dict[str, MissingProgram] = {}
    for number, command in enumerate(commands):
        for position, program in enumerate(programs_of(command)):
            # A file of the project may be made by what runs before it.
            first = (number, position) == (0, 0) and not settings.hooks.after_create
            missing = (
                _why_no_file(repository, settings, program)
                if "/" in program
                else _why_not_on_path(program, environ)
            )
            if missing and (first or "/" not in program) and program not in found:
                why, hint = missing
                found[program] = MissingProgram(program=program, command=command, why=why, hint=hint)
    return tuple(found.values())


def _why_not_on_path(program: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    if shutil.which(program, path=environ.get("PATH")):
        return None
    return "is not on PATH", "install it, activate the environment that has it, or correct the command."


def _why_no_file(repository: Repository, settings: Settings, program: str) -> tuple[str, str] | None:
    path = repository.top / program
    if not path.exists():
        return "does not exist", "correct the command; it runs at the top of the story's workspace."
    if not os.access(path, os.X_OK):
        return "is not executable", f"`chmod +x {program}` makes it executable."
    if settings.bg_isolation != IsolationMode.WORKTREE or PurePosixPath(program).is_absolute():
        return None
    if (repository.top / INCLUDE_FILE).exists() or any(
        PurePosixPath(program).is_relative_to(folder) for folder in settings.symlink_directories
    ):
        return None
    ignored = repository.run("check-ignore", "-q", "--", program, cwd=repository.top, check=False)
    if ignored.returncode != 0:
        return None
    folder = PurePosixPath(program).parts[0]
    hint = f'link its folder into worktrees: `symlink-directories = ["{folder}"]`.'
    return "is ignored by git, so worktrees do not have it", hint


def unwritable(path: Path) -> Path | None:
    """Return the folder that would have to be written to so that `path` can be used; None if that works."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    return None if os.access(place, os.W_OK | os.X_OK) else place
