"""What is known about worktrees that are layers, in the program's own folder, which no session can write to.

A layer is a worktree whose files are those of a pristine checkout, with what was written over them in a
folder of its own. It lies in three places:

- its path, an empty folder, on which processes that see layers have an overlay;
- `.layers/<name>` beside the worktrees: `upper`, with its `.git` file and all that was written, and `work`;
- `<name>.layer` in the program's folder: where these are, and over which checkout.

It is a layer from the moment at which its `.git` file is in `upper` until a `.git` file is at its path again.
The record is written before the first and deleted after the second, so a kill at any moment leaves one or
the other.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from isolation.decoding import from_json
from isolation.errors import WorkspaceError
from isolation.files.deletion import delete_tree
from isolation.files.disk import LockFile, replace_file
from isolation.kernel.layers import is_covered
from isolation.paths import autopilot_dir, layers_dir

_LOCK_SECONDS = 30.0
_POLL = 0.02

FOLDER = ".layers"
"""The folder below a worktree root with what is written over checkouts."""

NOTE = "READ-ME-FIRST.txt"
"""What is at the path of a layer for those who do not see it."""

BOTTOM_PREFIX = "_base-"
"""How the names of checkouts begin that layers lie over."""


class Layer(Struct, frozen=True, kw_only=True):
    """A worktree that is a layer, by the name of its part of the git directory.

    `bottom` is the checkout below it. `trusted` says how the overlay stores what it must know.
    """

    name: str
    path: str
    scratch: str
    bottom: str
    trusted: bool

    @property
    def place(self) -> Path:
        """Where its overlay is mounted."""
        return Path(self.path)

    @property
    def upper(self) -> Path:
        """What was written over the checkout."""
        return Path(self.scratch) / "upper"

    @property
    def work(self) -> Path:
        """The kernel's own folder."""
        return Path(self.scratch) / "work"

    @property
    def exists(self) -> bool:
        """Whether it has become a layer, and is still one."""
        if not os.path.lexists(self.upper / ".git"):
            return False
        return is_covered(self.place) or not os.path.lexists(self.place / ".git")


def load_layers(common_dir: Path) -> tuple[Layer, ...]:
    """Return every layer that is recorded."""
    return tuple(sorted(_load_all(common_dir), key=lambda layer: layer.name))


def _load_all(common_dir: Path) -> Iterator[Layer]:
    folder = layers_dir(common_dir)
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # it may be another user's
        for name in os.listdir(folder):  # noqa: PTH208  asked for each worktree, and as a rule there are none
            with suppress(OSError, ValueError):
                path = folder / name
                layer = from_json(path.read_bytes(), Layer) if path.suffix == ".layer" else None
                if layer is not None and layer.name == path.stem:
                    yield layer


def layer_at(common_dir: Path, path: Path) -> Layer | None:
    """Return the layer at a path; None if what is there is not one."""
    found = (layer for layer in _load_all(common_dir) if layer.path == str(path))
    return next((layer for layer in found if layer.exists), None)


def is_hidden(common_dir: Path, path: Path) -> bool:
    """Whether a worktree is a layer that this process does not see: its path has an empty folder, or none."""
    return layer_at(common_dir, path) is not None and not is_covered(path)


def write_layer(common_dir: Path, layer: Layer) -> None:
    """Record a layer that is about to be made."""
    layers_dir(common_dir).mkdir(parents=True, exist_ok=True)
    replace_file(_file(common_dir, layer.name), msgspec.json.encode(layer))


def drop_layer(common_dir: Path, layer: Layer) -> None:
    """Delete what is left of a worktree that is no layer any more, the record last. Blocks."""
    scratch = Path(layer.scratch)
    delete_tree(scratch)
    if not scratch.exists():
        _file(common_dir, layer.name).unlink(missing_ok=True)
    with suppress(OSError):
        scratch.parent.rmdir()
    with suppress(OSError):
        layers_dir(common_dir).rmdir()


def clear_dead(common_dir: Path) -> None:
    """Delete what a kill left of layers that were begun, removed or made plain. Needs the lease."""
    for layer in load_layers(common_dir):
        if layer.exists:
            continue
        if not os.path.lexists(layer.place / ".git"):
            with suppress(OSError):  # an empty folder would look like a worktree without files
                empty(layer)
                layer.place.rmdir()
        drop_layer(common_dir, layer)


def make_scratch(layer: Layer) -> None:
    """Make the folders of a layer; its files get the mode that the folder at its path has."""
    layer.upper.mkdir(parents=True)
    layer.work.mkdir()
    shutil.copymode(layer.place, layer.upper)


def locked(common_dir: Path) -> LockFile:
    """Wait for the lock under which layers are mounted and taken off; processes that join look for all."""
    deadline = time.monotonic() + _LOCK_SECONDS
    autopilot_dir(common_dir).mkdir(exist_ok=True)
    while (lock := LockFile.attempt(autopilot_dir(common_dir) / "layers.lock")) is None:
        if time.monotonic() > deadline:
            raise WorkspaceError(
                "another process is busy with the worktrees of this repository", hint="try again in a moment"
            )
        time.sleep(_POLL)
    return lock


def prepare_place(layer: Layer) -> None:
    """Make the folder at a layer's path, with a note for those who see nothing else there."""
    layer.place.mkdir(exist_ok=True)
    note = (
        "The files of this worktree are a layer over another checkout, which only autopilot-multi and\n"
        f"what it starts see. `autopilot-multi open {layer.place.name}` makes it an ordinary worktree once\n"
        f"no run is active; with --shell it starts a shell that sees it. What was changed is in\n"
        f"{layer.upper}.\n"
    )
    with suppress(OSError):
        (layer.place / NOTE).write_text(note)


def empty(layer: Layer) -> None:
    """Remove the note from the folder at a layer's path; the overlay is not mounted there any more."""
    (layer.place / NOTE).unlink(missing_ok=True)


def _file(common_dir: Path, name: str) -> Path:
    return layers_dir(common_dir) / f"{name}.layer"
