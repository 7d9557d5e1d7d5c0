"""What is known about the trees of the pool, in the program's own folder, which no session can write to.

For each tree, by the name of its part of the git directory:

- `<name>.origin` and `<name>.index`: the commit and the index of its checkout, as they were before anything
  ran in it. Stories have them, too, since their trees may become spares.
- `<name>.folders`: the times of its folders, if it is a spare.
- `<name>.seal`: it is a spare, ready for a story. A tree of the pool without a seal is half made.

To remove the seal is to claim the spare: of two processes that try, one fails. A crash between two steps
leaves a tree without a seal, which is never used.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from isolation.decoding import from_json
from isolation.files.disk import replace_file
from isolation.git.checkout import admin_dir
from isolation.git.repository import Repository
from isolation.paths import pool_dir

PREFIX = "_spare-"
REASON = "autopilot-multi: a spare worktree, ready for a story; `autopilot-multi gc --apply` removes it"
ADMIN_FILES = {"HEAD", "commondir", "gitdir", "index", "locked"}
"""What git keeps about a worktree in which nothing has happened, without the log of its HEAD."""

_ATTRIBUTES = ("/etc/gitattributes",)


class Seal(Struct, frozen=True, kw_only=True):
    """A spare: where it is, what is checked out, and by what one can tell that it is as it was left.

    `index` is what the file system says about its index. `guarded` says that no session could write to it
    while the run that made it was active. `prepared` stands for the command that has run in it, if any, and
    `ignored` for the files that it left. `recent` is that of its `IndexSummary`.
    """

    name: str
    path: str
    commit: str
    run_id: str
    surroundings: str
    index: tuple[int, ...]
    guarded: bool
    prepared: str = ""
    ignored: str = ""
    recent: tuple[int, ...] | None = None


class Surroundings(Struct, frozen=True, kw_only=True):
    """A hash of all that decides what a checkout writes besides the commit; whether hooks lie elsewhere.

    `programs` says that the configuration names filters, or leaves files out.
    """

    digest: str
    hooks: bool
    programs: bool = False


class Origin(Struct, frozen=True, kw_only=True):
    """The checkout that a tree began with; `recent` is that of the `IndexSummary` of its index."""

    commit: str
    surroundings: str
    recent: tuple[int, ...] | None = None


def load_seals(common_dir: Path) -> tuple[Seal, ...]:
    """Return all spares that are ready, without a git process."""
    return tuple(sorted(_load_all(common_dir), key=lambda seal: seal.name))


def _load_all(common_dir: Path) -> Iterator[Seal]:
    with suppress(FileNotFoundError):
        for path in pool_dir(common_dir).iterdir():
            if path.suffix != ".seal":
                continue
            with suppress(OSError, ValueError):
                seal = from_json(path.read_bytes(), Seal)
                if seal.name == path.stem:
                    yield seal


def by_usefulness(seals: Iterable[Seal], base: str, run_id: str = "") -> list[Seal]:
    """Return spares in the order in which stories at a commit take them: the least work first."""
    return sorted(
        seals, key=lambda each: (each.commit != base, not each.prepared, each.run_id != run_id, each.name)
    )


def count_seals(common_dir: Path) -> int:
    """Return how many spares are ready, without a look at them."""
    try:
        names = os.listdir(pool_dir(common_dir))  # noqa: PTH208  names are enough
    except FileNotFoundError:
        return 0
    return sum(name.endswith(".seal") and not name.startswith(".") for name in names)


def write_seal(common_dir: Path, seal: Seal) -> None:
    """Make a spare available."""
    replace_file(_file(common_dir, seal.name, "seal"), msgspec.json.encode(seal), durable=False)


def claim_seal(common_dir: Path, name: str) -> bool:
    """Take a spare; False if another process was first."""
    try:
        _file(common_dir, name, "seal").unlink()
    except FileNotFoundError:
        return False
    return True


def remember_origin(
    repository: Repository,
    path: Path,
    commit: str,
    surroundings: str,
    recent: tuple[int, ...] | None = None,
) -> None:
    """Remember a tree as it was checked out, before anything runs in it. Blocks."""
    git_dir, common = admin_dir(repository, path), repository.common_dir
    if git_dir is None:
        return
    pool_dir(common).mkdir(parents=True, exist_ok=True)
    index, copy = git_dir / "index", _file(common, git_dir.name, "index")
    before = index.stat()
    replace_file(copy, index.read_bytes(), durable=False)
    # Git tells by this time which entries are too new to be trusted.
    os.utime(copy, ns=(before.st_mtime_ns, before.st_mtime_ns))
    origin = Origin(commit=commit, surroundings=surroundings, recent=recent)
    replace_file(_file(common, git_dir.name, "origin"), msgspec.json.encode(origin), durable=False)


def load_origin(common_dir: Path, name: str) -> Origin | None:
    """Return how a tree began; None if that is not known."""
    try:
        return from_json(_file(common_dir, name, "origin").read_bytes(), Origin)
    except (OSError, ValueError):
        return None


def original_index(common_dir: Path, name: str) -> Path:
    """Return the index that a tree began with."""
    return _file(common_dir, name, "index")


def folder_times(common_dir: Path, name: str) -> Path:
    """Return the file with the times of a spare's folders."""
    return _file(common_dir, name, "folders")


def forget(common_dir: Path, name: str) -> None:
    """Drop all that is known about a tree, the seal first."""
    for kind in ("seal", "origin", "index", "folders"):
        _file(common_dir, name, kind).unlink(missing_ok=True)


def forget_gone(common_dir: Path) -> None:
    """Drop what is known about trees that are gone."""
    with suppress(FileNotFoundError):
        for name in {path.stem for path in pool_dir(common_dir).iterdir() if not path.name.startswith(".")}:
            if not (common_dir / "worktrees" / name).is_dir():
                forget(common_dir, name)


def surroundings_of(repository: Repository) -> Surroundings:
    """Read git's configuration and attributes as they are now. Blocks."""
    listed = repository.run("config", "--list", "-z", check=False).stdout
    common = repository.common_dir
    values = [line.partition("\n") for line in listed.split("\0")]
    configured = [value for name, _, value in values if name.lower() == "core.attributesfile"]
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111  as git does
    files = (
        common / "info" / "attributes",
        common / "info" / "sparse-checkout",
        common / "config.worktree",
        *(Path(each).expanduser() for each in (*_ATTRIBUTES, *configured, f"{home}/git/attributes")),
    )
    digest = hashlib.sha256(f"{umask()} {repository.version} {listed}".encode(errors="surrogateescape"))
    for file in files:
        with suppress(OSError):
            digest.update(b"\0" + file.read_bytes())
        digest.update(b"\0\0")
    names = {name.lower() for name, _, _ in values}
    programs = any(name.startswith(("filter.", "core.sparsecheckout")) for name in names)
    return Surroundings(digest=digest.hexdigest(), hooks="core.hookspath" in names, programs=programs)


@cache
def umask() -> int | None:
    """Return the mode bits that new files do not get; None where that cannot be read without setting it.

    Only a process itself can change its own, and this program never does, so it is read once.
    """
    try:
        found = re.search(rb"^Umask:\s*([0-7]+)", Path("/proc/self/status").read_bytes(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1], 8) if found else None


def _file(common_dir: Path, name: str, kind: str) -> Path:
    return pool_dir(common_dir) / f"{name}.{kind}"
