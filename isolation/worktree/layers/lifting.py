"""The end of a layer: taken off its checkout, or made a worktree with files of its own.

Both are one rename, before which it is whole as a layer and after which it is none.
"""

import os
from contextlib import suppress
from pathlib import Path

from isolation.errors import IsolationError
from isolation.files.deletion import delete_tree
from isolation.files.disk import sync_disk
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository
from isolation.keeper.unconfined import run_unconfined
from isolation.kernel.layers import cover, is_covered, uncover
from isolation.worktree.layers.records import Layer, drop_layer, empty, layer_at, locked, prepare_place

_COPY = ("cp", "--archive", "--reflink=auto", "--no-target-directory", "--")


def lift(common_dir: Path, layer: Layer, aside: Path) -> None:
    """Move away what was written, and free the path. Raises OSError."""
    with locked(common_dir):
        if is_covered(layer.place):
            uncover(layer.place)
        layer.upper.rename(aside)
        empty(layer)
        layer.place.rmdir()


def put_down(layer: Layer, aside: Path) -> None:
    """Undo a `lift`. Raises OSError."""
    prepare_place(layer)
    aside.rename(layer.upper)
    cover(layer.place, Path(layer.bottom), layer.upper, layer.work, trusted=layer.trusted)


def make_plain(repository: Repository, path: Path) -> str:
    """Copy all files of a layer, so that it is a worktree that everybody sees; return why if it stays one.

    Nothing may be at work in it. Blocks for as long as a checkout takes.
    """
    layer = layer_at(repository.common_dir, path)
    if layer is None:
        return ""
    whole = Path(layer.scratch) / "whole"
    delete_tree(whole)  # of a process that was killed
    try:
        if not is_covered(path):
            return "it is not visible to this process"
        copied = run_unconfined([*_COPY, str(path), str(whole)], env={"PATH": os.environ.get("PATH", "")})
        if copied.returncode:
            delete_tree(whole)
            return copied.stderr.decode(errors="replace").strip().splitlines()[-1]
        sync_disk(whole)
        with metadata_lock(repository.common_dir), locked(repository.common_dir):
            uncover(path)
            empty(layer)
            whole.rename(path)  # in the place of the empty folder
        drop_layer(repository.common_dir, layer)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    except IsolationError as error:
        return error.message
    with suppress(IsolationError):  # otherwise the next command of git looks into every file
        repository.run("update-index", "-q", "--refresh", cwd=path, check=False)
    return ""
