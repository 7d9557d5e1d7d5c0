"""Folders and files that worktrees share with the checkout or copy from it, and what in them leads back."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from runner.plan.ways_out.checkout import Checkout, entries_of, head_of, is_environment
from runner.plan.ways_out.way_out import Kind, WayOut

_BUILD_NAMES = {
    "CMakeCache.txt",
    "cmake_install.cmake",
    "build.ninja",
    "Makefile",
    "makefile",
    "GNUmakefile",
    "config.status",
    "config.mk",
    "compile_commands.json",
}
_BUILD_ENDINGS = (".mk", ".ninja", ".d", ".cmake", ".make")
_DEEPEST, _MOST_FOLDERS, _MOST_FILES = 3, 300, 200
_SHORT = 1 << 16
_EXAMPLES = 3


def shared_links(folder: Path, origin: str, checkout: Checkout) -> Iterator[WayOut]:
    """Yield the links in a folder of packages that lead into the checkout, as one finding."""
    found = [
        (str(path.relative_to(folder)), target)
        for path in _packages(folder)
        if (target := checkout.contains(path))
    ]
    if found:
        names = [name for name, _ in found[:_EXAMPLES]]
        more = f" and {len(found) - _EXAMPLES} more" if len(found) > _EXAMPLES else ""
        where = f"{folder}/{names[0]}" if len(found) == 1 else f"{folder}: {', '.join(names)}{more}"
        yield WayOut(kind=Kind.LINK, where=where, leads_to=found[0][1], origin=origin)


def build_files(folder: Path, origin: str, checkout: Checkout) -> Iterator[WayOut]:
    """Yield the first build file in a shared folder that names the checkout."""
    if folder.name == "node_modules" or is_environment(folder):
        return
    left = _MOST_FILES
    for path in _files(folder):
        if not _of_build(path.name):
            continue
        if target := checkout.named_in(head_of(path)):
            yield WayOut(kind=Kind.BUILD, where=str(path), leads_to=target, origin=origin)
            return
        left -= 1
        if not left:
            return


def copied_files(main: Path, names: Iterable[str], checkout: Checkout) -> Iterator[WayOut]:
    """Yield the files that worktrees get as copies and that name the checkout: one of builds, all others."""
    built = False
    for number, name in enumerate(names):
        if number == _MOST_FILES * 10:
            return
        build = _of_build(name)
        if build and built:
            continue
        # What says nothing in its first part is data, not configuration.
        if target := checkout.named_in(head_of(main / name, 1 << 20 if build else _SHORT)):
            built |= build
            kind = Kind.BUILD if build else Kind.COPY
            where, origin = str(main / name), "copied by .worktreeinclude"
            yield WayOut(kind=kind, where=where, leads_to=target, origin=origin, certain=build)


def _packages(folder: Path) -> Iterator[Path]:
    """Yield the links in a folder of packages, and in its folders of one more level."""
    nested = folder.name != "node_modules" and not is_environment(folder)
    left = _MOST_FOLDERS
    for entry in entries_of(folder):
        if entry.is_symlink():
            yield folder / entry.name
        elif entry.name.startswith("@") or (nested and left and not entry.name.startswith(".")):
            left -= 1
            inside = entries_of(folder / entry.name)
            yield from (Path(inner.path) for inner in inside if inner.is_symlink())


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, down to a few levels; links are not followed."""
    top = str(folder).count(os.sep)
    for _, (place, folders, files) in zip(range(_MOST_FOLDERS), os.walk(folder), strict=False):
        yield from (Path(place, name) for name in sorted(files))
        deep = place.count(os.sep) - top >= _DEEPEST
        folders[:] = [] if deep else sorted({*folders} - {"node_modules", "site-packages", ".git"})


def _of_build(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last in _BUILD_NAMES or last.endswith(_BUILD_ENDINGS)
