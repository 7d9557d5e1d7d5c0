"""A session's own tree under the repository's path: what stands where in its mounts.

Editable installs, links, caches and settings hold the absolute path of the checkout. In the view of a session
its worktree stands at that path, so all of them lead into the story's tree, and the real checkout cannot be
reached. The git directory, which often lies in the checkout, stands at a place beside the worktrees. Only
mounts can do this.

Invariants:

- A `.git` file of the view's own leads to the git directory's place; the worktree's real one never changes.
- Where git has registered the worktree, it finds and writes the view's own path, in a file of the view's own.
  So `git worktree list` names the path that the session is in, and the real registration stays as it is.
- The worktree stays at its real path, too: an agent may remember it.
- Submodules work at both paths, see `submodules.py`.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations, product
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import GuardError
from isolation.files.disk import replace_file
from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.git.repository import Repository
from isolation.guard.submodules import DOT_GIT, POINTER, settle_submodules
from isolation.model import Confinement
from isolation.paths import RepositoryPaths, as_path, git_place

_EXCLUDE = "autopilot-view-exclude"
"""A file in the git directory of a worktree, so that it goes with it."""

_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")


class View(Struct, frozen=True, kw_only=True):
    """Where a run's sessions see their tree and the git directory.

    `places` are the checkouts that a story's tree stands in for; sessions start in the first. `borrowed` are
    environments inside them that the user's shell has activated: they are not part of a worktree, and what
    runs in a session would miss them.
    """

    places: tuple[Path, ...]
    git_dir: Path
    git_place: Path
    borrowed: tuple[Path, ...] = ()

    @property
    def lent(self) -> tuple[str, ...]:
        """The environments that are borrowed, by their paths in a tree."""
        return tuple(str(self.in_tree(folder)) for folder in self.borrowed)

    def in_tree(self, folder: Path) -> Path:
        """Return the path in a tree of a folder of the checkouts; if one lies in the other, by the inner."""
        inner_first = sorted(self.places, key=lambda place: len(place.parts), reverse=True)
        return next(folder.relative_to(place) for place in inner_first if folder.is_relative_to(place))

    @property
    def nested(self) -> tuple[Path, ...]:
        """Where in a tree a checkout lies inside the other one."""
        pairs = permutations(self.places, 2)
        return tuple(inner.relative_to(outer) for inner, outer in pairs if inner.is_relative_to(outer))

    def for_command(self, command: str) -> "View":
        """Return the view without the environments that a command names: it makes its own there."""
        named = {folder for folder, name in zip(self.borrowed, self.lent, strict=True) if name in command}
        return replace(self, borrowed=tuple(each for each in self.borrowed if each not in named))

    def inside(self, path: Path, tree: Path) -> Path:
        """Return where a session whose worktree is `tree` sees a path."""
        for real, seen in ((tree, self.places[0]), (self.git_dir, self.git_place)):
            if path.is_relative_to(real):
                return seen / path.relative_to(real)
        return path


def view_of(paths: RepositoryPaths, root: Path, environ: Mapping[str, str]) -> View | str:
    """Return the view of stories whose worktrees are in `root`; words if there can be none, and why."""
    main, common = paths.main_checkout, paths.common_dir
    places = tuple(dict.fromkeys(each for each in (paths.top, main) if each not in {None, common}))
    if not places:
        return "a bare repository has no checkout"
    for place in places:
        if root.is_relative_to(place) or place.is_relative_to(root):
            return f"the worktrees in {root} and the checkout {place} lie one inside the other"
    inside = any(common.is_relative_to(place) for place in places)
    return View(
        places=places,
        git_dir=common,
        git_place=git_place(root) if inside else common,
        borrowed=_activated(places, environ),
    )


def through(
    view: View,
    confinement: Confinement,
    repository: Repository,
    tree: Path,
    *,
    git_dir: Path,
    shared: Sequence[str],
) -> Confinement:
    """Return a worktree's confinement as seen through the view; makes the folders to mount on. Blocks."""
    if view.git_place != view.git_dir:
        _make_mount_point(view.git_place)

    seen = _moved(view)
    place_texts = tuple(map(str, view.places))
    place_folders = tuple(f"{place}/" for place in place_texts)

    def hidden(path: Path) -> bool:
        text = str(path)
        return (text in place_texts or text.startswith(place_folders)) and path == at[path]

    at = {path: seen(path) for path in (*confinement.read_only, *confinement.writable)}
    read_only = {at[path]: what for path, what in confinement.read_only.items() if not hidden(path)}
    writable = [at[path] for path in confinement.writable if not hidden(path)]
    sources = {place: confinement.sources.get(path, path) for path, place in at.items()}
    own = seen(git_dir)
    dot_git, pointer = _own_files(view, git_dir, own)
    settle_submodules(repository, tree, git_dir)
    registered = own / "gitdir"
    writable.append(registered)
    sources[registered] = pointer
    for inner in view.nested:
        exclude = view.git_place / "info" / "exclude"
        sources[exclude] = _without_inner(view, git_dir, tree, inner)
        read_only[exclude] = "what git ignores here"
    standing = (tree, *view.places)
    writable += view.places
    for place in standing:
        link = as_path(f"{place}/.git")
        sources[place], sources[link] = tree, dot_git
        read_only[link] = "the link to the git directory"
    brought = [each for each in _brought(view, repository, shared) if _can_take(tree, each[1])]
    lent = {place / relative: folder for place, (folder, relative) in product(standing, brought)}
    sources |= lent
    closed = {place for place, folder in lent.items() if folder in view.borrowed}
    read_only |= dict.fromkeys(closed, "an environment of the main checkout")
    writable += [place for place in lent if place not in closed]
    return replace(
        confinement,
        tree=tree,
        read_only=read_only,
        writable=tuple(dict.fromkeys(writable)),
        sources={path: source for path, source in sources.items() if str(path) != str(source)},
    )


def _moved(view: View) -> Callable[[Path], Path]:
    """Return what tells where sessions see a path that may be in the git directory.

    It is asked for some twenty paths a session, so it goes by text, which is cheap.
    """
    git_text, git_folder, place_text = f"{view.git_dir}", f"{view.git_dir}/", f"{view.git_place}"

    def seen(path: Path) -> Path:
        text = str(path)
        if text == git_text:
            return view.git_place
        if text.startswith(git_folder):
            return as_path(f"{place_text}{text[len(git_text) :]}")
        return path

    return seen


def _brought(view: View, repository: Repository, shared: Sequence[str]) -> list[tuple[Path, Path]]:
    """Return the folders of the checkouts that stay where they are, each with its path in the tree."""
    main = repository.main_checkout
    found = [(main / name, Path(name)) for name in shared if main and (main / name).is_dir()]
    return found + [(folder, view.in_tree(folder)) for folder in view.borrowed]


def _can_take(tree: Path, relative: Path) -> bool:
    """Make the folder that something is mounted on; false if the story has something of its own there."""
    target = tree / relative
    if os.path.realpath(target.parent) != str(target.parent):
        return False
    try:
        target.mkdir(parents=True, exist_ok=True)
        return not target.is_symlink() and not any(target.iterdir())
    except OSError:
        return False


def _own_files(view: View, git_dir: Path, place: Path) -> tuple[Path, Path]:
    """Write what stands in for `.git` and for the registration, which a session may have changed.

    `place` is where the view shows this git directory of a worktree.
    """
    dot_git, pointer = git_dir / DOT_GIT, git_dir / POINTER
    for file, text in ((dot_git, f"gitdir: {place}\n"), (pointer, f"{view.places[0]}/.git\n")):
        if not _is_text(file, os.fsencode(text)):
            replace_file(file, os.fsencode(text), durable=False)
    return dot_git, pointer


def _is_text(file: Path, text: bytes) -> bool:
    try:
        return read_plain(file, LONGEST_POINTER, follow=False) == text
    except OSError:
        return False


def _without_inner(view: View, git_dir: Path, tree: Path, inner: Path) -> Path:
    """Make the folder for the inner of two checkouts; write what hides it from git in the outer one."""
    if not _can_take(tree, inner):
        raise GuardError(
            f"{tree} has files at {inner}, where the checkout that this run was started in lies",
            hint=f"start the run in {view.places[-1]}",
        )
    common, own = view.git_dir / "info" / "exclude", git_dir / _EXCLUDE
    common.parent.mkdir(exist_ok=True)
    common.touch()
    pattern = re.sub(r"([\\*?\[])", r"\\\1", str(inner))
    replace_file(own, common.read_bytes() + os.fsencode(f"\n/{pattern}/\n"), durable=False)
    return own


def _make_mount_point(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GuardError(
            f"the folder {folder}, where sessions see the git directory, cannot be made: {error.strerror}"
        ) from error


def _activated(places: Sequence[Path], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the environments inside the checkouts that these variables lead to."""
    named = [environ.get(name, "") for name in _ENVIRONMENTS]
    named += environ.get("PATH", "").split(os.pathsep)
    found: dict[Path, None] = {}
    for path in (Path(os.path.realpath(text)) for text in named if text.startswith("/")):
        for place in places:
            if not path.is_relative_to(place):
                continue
            for folder in (path, *path.parents):
                if folder == place:
                    break
                if any((folder / mark).exists() for mark in _ENVIRONMENT_MARKS):
                    found[folder] = None
                    break
    return tuple(found)
