"""What the checkout has and stories will not see, although their commands name it: notes, or a refusal.

A worktree holds what is committed and what `.worktreeinclude` and `symlink-directories` bring. A command that
runs a script of the checkout which is none of that can never work, however good the session is.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from isolation.git.repository import Repository
from isolation.model import IsolationMode
from isolation.worktree.provision import INCLUDE_FILE
from runner.core.base.check import Mode
from runner.core.base.commands import words_of
from runner.core.errors import BacklogError
from runner.core.model import Story
from runner.core.settings import Settings
from runner.core.text.words import count
from runner.plan.readiness import LFS_SETUP, SUBMODULE_HOOK, unseen_by_stories

_NAMED = 3


class _Mention(Struct, frozen=True, kw_only=True):
    """A file of the checkout that a command runs, or only names; `certain` if nothing can bring it later."""

    path: str
    what: str
    runs: bool
    certain: bool


def require_seen(
    repository: Repository, base: str, stories: Sequence[Story], settings: Settings
) -> tuple[str, ...]:
    """Return notes about named files that stories will not see; raise if a command runs such a file."""
    if settings.bg_isolation != IsolationMode.WORKTREE or repository.main_checkout is None:
        return ()
    mentions = {each.path: each for each in _mentions(repository, stories, settings)}
    absent = _absent(repository, base, tuple(mentions), settings)
    notes = []
    for path, hint in absent.items():
        found = mentions[path]
        verb = "runs" if found.runs else "names"
        words = f"{found.what} {verb} {path}, which is in your checkout, but stories will not see it"
        if found.runs and found.certain and Mode(settings.base_check) is Mode.REQUIRE:
            raise BacklogError(words, hint=f"{hint}; --no-base-check starts anyway.")
        notes.append(f"{words}: {hint}")
    return tuple(notes)


def unseen_notes(repository: Repository, settings: Settings, *, idle: bool) -> tuple[str, ...]:
    """Return what else of the checkout stories will not see: uncommitted files, empty submodules. Blocks.

    If nothing waits for that it is `idle`, and takes only what the machine has to spare.
    """
    unseen = unseen_by_stories(repository, settings, idle=idle)
    notes = []
    if unseen.uncommitted:
        number = count(len(unseen.uncommitted), "uncommitted file")
        notes.append(f"{number} that stories will not see: {_listed(unseen.uncommitted)}")
    if unseen.installed:
        notes.append(
            f"git does not ignore installed packages; add to .gitignore: {_listed(unseen.installed)}"
        )
    if unseen.submodules:
        notes.append(
            f"submodules that are empty in stories' worktrees: {_listed(unseen.submodules)}; "
            f"under [hooks], `{SUBMODULE_HOOK}` fills them"
        )
    if unseen.large_files:
        notes.append(
            f"{unseen.large_files}, though .gitattributes names files for it: stories see pointers, and "
            f"commit such files whole; {LFS_SETUP}"
        )
    return tuple(notes)


def named_by_output(repository: Repository, base: str, settings: Settings, output: str) -> tuple[str, ...]:
    """Return notes about ignored files of the checkout that the output of a failed command names. Blocks.

    Such a command passes in the checkout and fails in every worktree: a version file that a build has
    written, a local configuration.
    """
    if repository.main_checkout is None:
        return ()
    listing = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    ignored = repository.run(*listing, cwd=repository.top, check=False).fields()
    named = [path.rstrip("/") for path in ignored if _is_named(path, output)]
    named = _ignored(repository, named)  # the list has folders, too, in which all that there is is ignored
    absent = _absent(repository, base, tuple(named), settings)
    return tuple(
        f"the output names {path}, which is in your checkout, but stories will not see it: {hint}"
        for path, hint in list(absent.items())[:_NAMED]
    )


def _is_named(path: str, output: str) -> bool:
    """Whether an output has the name of a file, or the name of its module in quotes; or a folder's name."""
    name, suffix = PurePosixPath(path).name, PurePosixPath(path).suffix
    if path.endswith("/"):  # caches and environments are in every trace, and needed by none
        return (
            not name.startswith((".", "__"))
            and re.search(rf"(?<![\w.-]){re.escape(name)}/", output) is not None
        )
    module = re.escape(name.removesuffix(suffix))
    found = re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])|['\"./]{module}['\"]", output)
    return found is not None


def _mentions(repository: Repository, stories: Sequence[Story], settings: Settings) -> Iterator[_Mention]:
    """Yield the existing files of the checkout that commands name; those that they run come last."""
    named: list[_Mention] = []
    run: list[_Mention] = []
    for story in stories:
        certain = not story.depends_on and not settings.hooks.after_create
        verify = [(f"verify `{each}`", each) for each in story.verify or settings.verify]
        own = [(f"the command of story {story.id}", story.command)] if story.command else []
        for what, command in (*verify, *own):
            words = words_of(command)
            files = [(run, words.scripts)] + ([(named, words.names)] if isinstance(command, str) else [])
            for found, paths in files:
                found += [
                    _Mention(path=path, what=what, runs=found is run, certain=certain)
                    for path in _inside(repository, paths)
                ]
    yield from named
    yield from run


def _inside(repository: Repository, paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        parts = PurePosixPath(path).parts
        if parts and not {"/", "..", ".git"} & set(parts) and os.path.lexists(repository.top / path):
            yield str(PurePosixPath(path))


def _absent(repository: Repository, base: str, paths: tuple[str, ...], settings: Settings) -> dict[str, str]:
    """Return the paths that neither the base nor the preparation of a worktree has, each with what to do."""
    if not paths:
        return {}
    top = repository.top
    listed = repository.run("ls-tree", "-z", "--name-only", base, "--", *paths, cwd=top, check=False).fields()
    linked = [PurePosixPath(each) for each in settings.symlink_directories]
    left = [
        path
        for path in paths
        if path not in listed and not any(PurePosixPath(path).is_relative_to(each) for each in linked)
    ]
    if not left:
        return {}
    ignored = _ignored(repository, left)
    copied: set[str] = set()
    if (top / INCLUDE_FILE).is_file():
        listing = ("ls-files", "-z", "--others", "--ignored", f"--exclude-from={top / INCLUDE_FILE}")
        copied = set(repository.run(*listing, "--", *left, cwd=top, check=False).fields())
    return {
        path: _hint(path, ignored=path in ignored)
        for path in left
        if path not in ignored or path not in copied
    }


def _ignored(repository: Repository, paths: Sequence[str]) -> list[str]:
    """Return those of these paths that git ignores."""
    names = "".join(f"{path}\0" for path in paths).encode(errors="surrogateescape")
    asked = repository.run("check-ignore", "-z", "--stdin", cwd=repository.top, check=False, stdin=names)
    return list(asked.fields())


def _hint(path: str, *, ignored: bool) -> str:
    if not ignored:
        return f"commit {path} (if it is in a submodule, fill that with the hook after_create)"
    return f"git ignores {path}; bring it into worktrees with {INCLUDE_FILE} or symlink-directories"


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more
