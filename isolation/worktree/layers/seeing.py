"""The mounts in which a repository's layers are visible: one set for all processes that look at them.

The first process parts from the machine's mounts; every other one joins it, as long as one of them is alive.
So a command that looks into the tree of a running story sees what its sessions see, and no overlay is ever
mounted twice. Each process leaves a file with its pid and the name of its mounts, by which others find it.
"""

import atexit
import errno
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from isolation.errors import WorkspaceError
from isolation.files.deletion import delete_tree
from isolation.keeper.confined import forget_servers
from isolation.kernel.layers import (
    cover,
    is_covered,
    is_trusted,
    join,
    mounts_of,
    own_mounts,
    part_from_machine,
    uncover,
)
from isolation.paths import autopilot_dir
from isolation.worktree.layers.records import Layer, layer_at, load_layers, locked, prepare_place

_POLL = 0.02
_entered: dict[Path, str] = {}
"""The mounts that this process is in, by the git directory; a fork has them too."""

HINT = "set `workspace` to `worktree`, or to `auto` to use worktrees where overlays are not available"


def see_layers(common_dir: Path) -> None:
    """Let this process see the worktrees that are layers, if there are any; else do nothing.

    For commands that only look: whatever fails, they do without.
    """
    if not load_layers(common_dir):
        return
    with suppress(OSError, WorkspaceError):
        enter(common_dir)
        cover_all(common_dir)


def enter(common_dir: Path) -> None:
    """Move this process to the mounts in which the repository's layers are. Must be called with one thread.

    Raises WorkspaceError if the machine does not allow that.
    """
    if _entered.get(common_dir) == own_mounts():
        return
    if threading.active_count() > 1:
        raise WorkspaceError("a process with several threads cannot see overlays", hint=HINT)
    folder = _holders(common_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(common_dir):
        try:
            holder = next(_living(folder), None)
            if holder is not None:
                join(holder)
            else:
                part_from_machine()
        except OSError as error:
            raise WorkspaceError(
                f"overlays are not available on this machine: {error.filename}: {error.strerror}", hint=HINT
            ) from error
        own = folder / str(os.getpid())
        own.write_text(own_mounts())
    _entered[common_dir] = own_mounts()
    atexit.register(_leave, own, os.getpid())
    forget_servers()  # those were started in the machine's mounts


def trial(root: Path) -> str:
    """Mount an overlay below a worktree root and use it; return why that does not work, empty if it does.

    This process must have entered. Blocks.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".overlay-", dir=root))
    except OSError as error:
        return f"{root}: {error.strerror}"
    folders = tuple(folder / name for name in ("bottom", "upper", "work", "place", "second"))
    bottom, upper, work, place, second = folders
    try:
        for each in folders:
            each.mkdir()
        for name in ("kept", "doomed"):
            (bottom / name).write_text(name)
        cover(place, bottom, upper, work, trusted=is_trusted())
        try:
            (place / "kept").write_text("changed")
            (place / "doomed").unlink()
            seen = {each.name: each.read_text() for each in place.iterdir()}
            if not _refuses(second, bottom, upper, work):
                return "what is written over a checkout can be mounted twice"
        finally:
            uncover(place)
        below = {each.name: each.read_text() for each in bottom.iterdir()}
        if seen != {"kept": "changed"} or below != {"kept": "kept", "doomed": "doomed"}:
            return "an overlay does not hold what is written"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    finally:
        delete_tree(folder)
        with suppress(OSError):
            root.rmdir()
    return ""


def _refuses(place: Path, bottom: Path, upper: Path, work: Path) -> bool:
    """Whether the kernel refuses to mount an upper folder that is mounted already."""
    try:
        cover(place, bottom, upper, work, trusted=is_trusted())
    except OSError as error:
        return error.errno == errno.EBUSY
    uncover(place)
    return False


def is_entered(common_dir: Path) -> bool:
    """Whether this process sees the layers of a repository, and can make some."""
    return _entered.get(common_dir) == own_mounts()


def cover_all(common_dir: Path, *, patience: float = 0.0) -> None:
    """Mount every layer that is not mounted here; with patience also those of a killed run that is ending.

    One that cannot be mounted stays as it is: `require_visible` says why. Blocks.
    """
    deadline = time.monotonic() + patience
    with locked(common_dir):
        for layer in load_layers(common_dir):
            while layer.exists and not is_covered(layer.place):
                error = _covered(layer)
                if error is None or error.errno != errno.EBUSY or time.monotonic() > deadline:
                    break
                time.sleep(_POLL)


def require_visible(common_dir: Path, path: Path) -> None:
    """Refuse to work at the path of a layer that this process does not see: the folder there is empty."""
    layer = layer_at(common_dir, path)
    if layer is None or is_covered(path):
        return
    error = _covered(layer) if is_entered(common_dir) else OSError(errno.EPERM, "overlays are not available")
    if error is not None:
        why = "another process has it mounted" if error.errno == errno.EBUSY else error.strerror
        raise WorkspaceError(
            f"the files of {path} are a layer over {layer.bottom}, which cannot be shown: {why}",
            hint=f"what was written there is kept in {layer.upper}",
        )


def _covered(layer: Layer) -> OSError | None:
    """Mount a layer; return why not."""
    try:
        prepare_place(layer)
        cover(layer.place, Path(layer.bottom), layer.upper, layer.work, trusted=layer.trusted)
    except OSError as error:
        return error
    return None


def _living(folder: Path) -> Iterator[int]:
    """Yield processes that have the layers mounted; forget those that are gone."""
    for path in folder.iterdir():
        with suppress(OSError, ValueError):
            pid = int(path.name)
            if path.stat().st_uid != os.geteuid():
                continue
            if mounts_of(pid) == path.read_text() != "":
                yield pid
            else:
                path.unlink(missing_ok=True)


def _holders(common_dir: Path) -> Path:
    return autopilot_dir(common_dir) / "seeing"


def _leave(own: Path, pid: int) -> None:
    if pid == os.getpid():
        own.unlink(missing_ok=True)
