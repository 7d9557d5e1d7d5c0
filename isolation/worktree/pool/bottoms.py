"""The checkouts that stories lie over as layers: as a rule one, at the commit that stories start from.

Nothing is ever written to them while a layer needs them. A run that begins looks at every file once; the
sessions of a run cannot write to them, since a run that has no write guard gets no layers. They outlive the
run. One at another commit is brought to the new one if no layer needs it any more, else it stays until then.
"""

import os
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from isolation.decoding import from_json
from isolation.errors import IsolationError, WorkspaceError
from isolation.files.disk import replace_file, sync_disk
from isolation.git.checkout import admin_dir
from isolation.git.repository import Repository
from isolation.kernel.layers import cover, is_trusted
from isolation.model import WorkspaceRequest
from isolation.paths import layers_dir
from isolation.worktree.checkout_files import BEHIND
from isolation.worktree.layers.records import (
    BOTTOM_PREFIX,
    FOLDER,
    Layer,
    drop_layer,
    empty,
    load_layers,
    locked,
    make_scratch,
    prepare_place,
    write_layer,
)
from isolation.worktree.pool.claim import Spare, is_intact, is_unchanged
from isolation.worktree.pool.making import changes_attributes, check_out, rebuild, retire
from isolation.worktree.pool.seals import Seal, original_index, surroundings_of

REASON = (
    "autopilot-multi: the checkout below the worktrees of stories; `autopilot-multi gc --apply` removes it"
)
_HINT = "set `workspace` to `worktree`"


@dataclass(kw_only=True, eq=False)
class Bottoms:
    """The checkouts below layers, as the run that holds the lease uses them."""

    repository: Repository
    root: Path
    run_id: str
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Remove checkouts that were left half made. Blocks."""
        known = {Path(seal.path) for seal in load_bottoms(self.repository.common_dir)}
        for path in self.root.glob(f"{BOTTOM_PREFIX}*"):
            if path not in known and not path.is_symlink() and path.is_dir():
                retire(self.repository, path)

    def find(self, request: WorkspaceRequest) -> Spare | None:
        """Return the checkout that a story's worktree is laid over, made now if there is none. Blocks.

        None for a story that has a worktree.
        """
        if os.path.lexists(request.path):
            return None
        commit, surroundings = request.parents[0], surroundings_of(self.repository)
        hooked = surroundings.hooks or (self.repository.common_dir / "hooks" / "post-checkout").exists()
        with self._lock:  # all stories that begin want the same one
            seal = self._known(commit, surroundings.digest) or self._made(commit, surroundings.digest)
            self._drop_others()
        return Spare(seal=seal, hooked=hooked)

    def _known(self, commit: str, surroundings: str) -> Seal | None:
        needed = {layer.bottom for layer in load_layers(self.repository.common_dir)}
        found = sorted(load_bottoms(self.repository.common_dir), key=lambda each: each.commit != commit)
        for seal in found:
            if Path(seal.path).parent != self.root:
                continue
            good = is_intact(self.repository, seal, surroundings)
            if good and seal.run_id != self.run_id:
                good = _looked_at(self.repository, seal)
            if good and seal.commit == commit:
                return self._ours(seal)
            if good and self._serves(seal, commit):
                return seal
            if seal.path in needed or seal.run_id == self.run_id:
                continue
            moved = self._moved(seal, commit) if good else None
            if moved is not None:
                return moved
            drop_bottom(self.repository, seal)
        return None

    def _drop_others(self) -> None:
        """Remove what earlier runs have left and no layer needs, once this run has a checkout."""
        needed = {layer.bottom for layer in load_layers(self.repository.common_dir)}
        for seal in load_bottoms(self.repository.common_dir):
            if seal.run_id != self.run_id and seal.path not in needed:
                drop_bottom(self.repository, seal)

    def _serves(self, seal: Seal, commit: str) -> bool:
        """Whether a checkout of this run can be used for a commit that differs, like that of a dependency."""
        return seal.run_id == self.run_id and not changes_attributes(self.repository, seal.commit, commit)

    def _ours(self, seal: Seal) -> Seal:
        if seal.run_id == self.run_id:
            return seal
        ours = replace(seal, run_id=self.run_id, guarded=True)
        _write(self.repository.common_dir, ours)
        return ours

    def _moved(self, seal: Seal, commit: str) -> Seal | None:
        """Bring a checkout that nothing needs to another commit."""
        _file(self.repository.common_dir, seal.name).unlink(missing_ok=True)
        found = rebuild(self.repository, Path(seal.path), commit, self.run_id, guarded=True)
        if isinstance(found, str):
            retire(self.repository, Path(seal.path))
            return None
        sync_disk(Path(seal.path))
        _write(self.repository.common_dir, found)
        return found

    def _made(self, commit: str, surroundings: str) -> Seal:
        path = self.root / f"{BOTTOM_PREFIX}{secrets.token_hex(4)}"
        found = check_out(
            self.repository, path, commit, self.run_id, surroundings, reason=REASON, guarded=True
        )
        if isinstance(found, str):
            raise WorkspaceError(f"no checkout can be made for stories to lie over: {found}", hint=_HINT)
        sync_disk(path)
        _write(self.repository.common_dir, found)
        return found

    def lay(self, spare: Spare, path: Path, tip: str) -> None:
        """Lay a worktree that was just registered, and has no files, over a checkout. Blocks.

        The order is that of `layers/records.py`.
        """
        common, git_dir = self.repository.common_dir, admin_dir(self.repository, path)
        if git_dir is None:
            raise WorkspaceError(f"{path} is not a worktree any more", hint="run again")
        scratch = self.root / FOLDER / f"{git_dir.name}-{secrets.token_hex(4)}"
        layer = Layer(
            name=git_dir.name,
            path=str(path),
            scratch=str(scratch),
            bottom=spare.seal.path,
            trusted=is_trusted(),
        )
        with locked(common):
            self._cover(spare, layer)
        if not spare.is_ready_at(tip):
            (git_dir / BEHIND).touch()
        _place_index(original_index(common, spare.seal.name), git_dir)

    def _cover(self, spare: Spare, layer: Layer) -> None:
        common, path = self.repository.common_dir, layer.place
        make_scratch(layer)
        write_layer(common, layer)
        (path / ".git").rename(layer.upper / ".git")
        prepare_place(layer)
        try:
            cover(path, spare.path, layer.upper, layer.work, trusted=layer.trusted)
        except OSError as error:
            empty(layer)
            (layer.upper / ".git").rename(path / ".git")
            drop_layer(common, layer)
            raise WorkspaceError(
                f"no overlay can be mounted at {path}: {error.strerror}",
                hint=f"{_HINT}, or `worktree-root` to a folder on another file system",
            ) from error


_ahead: dict[Seal, "Future[bool]"] = {}
"""What was looked at ahead, or still is."""


def look_ahead(repository: Repository) -> None:
    """Begin to look at every file of the checkouts below, while the program still loads."""
    seals = load_bottoms(repository.common_dir)
    if not seals:
        return
    threads = ThreadPoolExecutor(len(seals))
    for seal in seals:
        _ahead[seal] = threads.submit(is_unchanged, repository, seal, thorough=not seal.guarded)
    threads.shutdown(wait=False)


def _looked_at(repository: Repository, seal: Seal) -> bool:
    """Whether nothing in a checkout has changed since it was made."""
    ahead = _ahead.pop(seal, None)
    try:
        if ahead is not None:
            return ahead.result()
    except (IsolationError, OSError):
        pass  # said again by the second try
    return is_unchanged(repository, seal, thorough=not seal.guarded)


def load_bottoms(common_dir: Path) -> tuple[Seal, ...]:
    """Return every checkout that layers may lie over."""
    return tuple(sorted(_load_all(common_dir), key=lambda seal: seal.name))


def forget_bottom(common_dir: Path, path: Path) -> None:
    """Let no more layers lie over a checkout."""
    for seal in load_bottoms(common_dir):
        if seal.path == str(path):
            _file(common_dir, seal.name).unlink(missing_ok=True)


def drop_bottom(repository: Repository, seal: Seal) -> None:
    """Remove a checkout that no layer lies over. Blocks."""
    _file(repository.common_dir, seal.name).unlink(missing_ok=True)
    retire(repository, Path(seal.path))


def _load_all(common_dir: Path) -> Iterator[Seal]:
    with suppress(FileNotFoundError):
        for path in layers_dir(common_dir).glob("*.base"):
            with suppress(OSError, ValueError):
                seal = from_json(path.read_bytes(), Seal)
                if seal.name == path.stem:
                    yield seal


def _write(common_dir: Path, seal: Seal) -> None:
    layers_dir(common_dir).mkdir(parents=True, exist_ok=True)
    replace_file(_file(common_dir, seal.name), msgspec.json.encode(seal))


def _file(common_dir: Path, name: str) -> Path:
    return layers_dir(common_dir) / f"{name}.base"


def _place_index(source: Path, git_dir: Path) -> None:
    """Copy the index of the checkout: through an overlay every file has the number and the times it names.

    Git tells by its modification time which entries are too new to be trusted.
    """
    at, temporary = source.stat().st_mtime_ns, git_dir / "autopilot-index"
    temporary.write_bytes(source.read_bytes())
    os.utime(temporary, ns=(at, at))
    temporary.replace(git_dir / "index")
