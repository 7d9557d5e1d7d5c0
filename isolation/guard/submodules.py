"""The submodules of a worktree work at both of its paths: at the real one, and at that in a session's view.

Git links a submodule to its git directory by relative paths, both ways: the `.git` file in its folder, and
`core.worktree` in its configuration. What a session writes there is right in its view alone. Outside, where
this program and the user work, `.git` would lead nowhere, and `core.worktree` into the main checkout. So
after each session both are given a form that is right at either path:

- `.git` names the git directory by the absolute path of its place in the view. Outside, links in the empty
  folder at that place lead from there to the real git directory.
- `core.worktree` is removed. Git then takes the folder in which it found `.git`. It sets the key again when
  it updates the submodule, and the end of that session removes it again.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from isolation.errors import GuardError
from isolation.files.disk import replace_file
from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.git.checkout import admin_dir
from isolation.git.repository import Repository

DOT_GIT, POINTER = "autopilot-view-git", "autopilot-view-gitdir"
"""Files in the git directory of a worktree, so that they go with it: where its view shows this, and the tree.
"""

_MODULES = "modules"
_LINKED = ("worktrees", _MODULES, "objects")
_CONFIGURATIONS = ("config", "config.worktree")


def settle_submodules(repository: Repository, tree: Path, git_dir: Path | None = None) -> None:
    """Rewrite the links of a worktree's submodules so that they are right at both of its paths. Blocks.

    Does nothing in a worktree that no view has shown. No session may be running there. `git_dir` is the git
    directory of the worktree, if it is known.
    """
    git_dir = git_dir or admin_dir(repository, tree)
    if git_dir is None or not (git_dir / _MODULES).is_dir():
        return
    seen, place = _first_line(git_dir / DOT_GIT), _first_line(git_dir / POINTER)
    if not seen or not place:
        return
    seen_dir = Path(seen.removeprefix("gitdir: "))
    places = [each for each in (Path(place).parent, repository.main_checkout, tree) if each]
    try:
        _lead_back(repository.common_dir, seen_dir.parent.parent)
        for module in _git_dirs(git_dir / _MODULES):
            _settle(repository, module, seen_dir / module.relative_to(git_dir), tree, places)
    except OSError as error:
        raise GuardError(
            f"the submodules of {tree} cannot be linked to their git directories: {error}",
            hint="fix this and run again; everything in it is kept",
        ) from error


def remove_links(folder: Path) -> None:
    """Remove what leads from the git directory's place in the view to the real one."""
    for name in _LINKED:
        if (folder / name).is_symlink():
            (folder / name).unlink()


def _lead_back(common: Path, place: Path) -> None:
    if place == common:
        return
    for name in _LINKED:
        with suppress(FileExistsError):
            (place / name).symlink_to(common / name)


def _git_dirs(folder: Path) -> Iterator[Path]:
    """Yield the git directories of submodules, also of those inside submodules; links are not followed."""
    for found, folders, files in os.walk(folder):
        if "HEAD" in files and "objects" in folders:
            yield Path(found)
            folders[:] = [_MODULES] if _MODULES in folders else []


def _settle(repository: Repository, module: Path, seen: Path, tree: Path, places: list[Path]) -> None:
    for name in _CONFIGURATIONS:
        config = module / name
        # A session may have replaced it by a link, which git would follow to a file that is not its own.
        if config.is_symlink() or not config.is_file() or b"worktree" not in config.read_bytes():
            continue
        asked = repository.run("config", "--file", str(config), "--get", "core.worktree", check=False)
        worktree = asked.stdout.removesuffix("\n")
        if not worktree:
            continue
        folder = _folder_of(worktree, module, seen, tree, places)
        if folder is not None:
            _link(folder, seen)
            repository.run("config", "--file", str(config), "--unset-all", "core.worktree")


def _folder_of(worktree: str, module: Path, seen: Path, tree: Path, places: list[Path]) -> Path | None:
    """Return the submodule's folder in the tree, by what `core.worktree` means outside or in the view."""
    for start, tops in ((module, [tree]), (seen, places)):
        named = Path(os.path.normpath(start / worktree))
        for top in tops:
            if named != top and named.is_relative_to(top):
                folder = tree / named.relative_to(top)
                return folder if os.path.realpath(folder) == str(folder) else None
    return None


def _link(folder: Path, git_dir: Path) -> None:
    dot_git, text = folder / ".git", os.fsencode(f"gitdir: {git_dir}\n")
    if dot_git.is_file() and not dot_git.is_symlink() and dot_git.read_bytes() != text:
        replace_file(dot_git, text, durable=False)


def _first_line(path: Path) -> str:
    try:
        return os.fsdecode(read_plain(path, LONGEST_POINTER)).partition("\n")[0]
    except OSError:
        return ""
