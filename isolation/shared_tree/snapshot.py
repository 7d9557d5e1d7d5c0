"""What a working tree looks like, and what its files held before any story worked there.

A snapshot has one fingerprint for every entry, so that it shows what git does not: ignored files, modes,
empty folders, the inside of nested repositories, and files that were edited and given their old times back,
since no program can set the time of an entry's last change (ctime). Folders have only their mode, since
their times change with what is in them.

`Contents` can restore files. Git already has those that are tracked and unchanged; others are stored byte by
byte, up to a limit: a file beyond it is still watched, but cannot be restored.
"""

import os
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from isolation.git.repository import Repository, failure
from isolation.paths import EXCHANGE

CLOCK = "clock"
RESERVED = frozenset({".git", EXCHANGE})
"""The names at the top that are not part of the tree: git's, and this program's own."""

MOST_FILES = 5000
MOST_BYTES = 256 << 20
LARGEST = 8 << 20
_GITLINK = "160000"
_BATCH_BYTES = 16 << 20
"""How many bytes one process reads for us at most, unless a single blob is larger."""


class Fingerprint(NamedTuple):
    """What one entry looked like. A tuple, since there is one for each file of the tree."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    nlink: int

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)


Snapshot = dict[str, Fingerprint]


class Difference(Struct, frozen=True, kw_only=True):
    """One path that looks different; None where it does not exist."""

    path: str
    before: Fingerprint | None
    after: Fingerprint | None


def take_snapshot(top: Path, *, open_to_all: Callable[[str], bool]) -> Snapshot:
    """Fingerprint every entry of a tree; folders that are open to all are left out with their content."""
    snapshot: Snapshot = {}
    pending = [""]
    while pending:
        prefix = pending.pop()
        try:
            with os.scandir(top / prefix if prefix else top) as entries:
                for entry in entries:
                    if not prefix and entry.name in RESERVED:
                        continue
                    path = prefix + entry.name
                    fingerprint = _fingerprint(entry.stat(follow_symlinks=False))
                    if not fingerprint.is_folder:
                        snapshot[path] = fingerprint
                    elif not open_to_all(path):
                        snapshot[path] = fingerprint
                        pending.append(f"{path}/")
        except OSError:
            continue  # it is being removed right now, or we may not read it
    return snapshot


def fingerprint_of(path: Path) -> Fingerprint | None:
    """Return the fingerprint of one entry; None if it does not exist."""
    try:
        return _fingerprint(path.lstat())
    except OSError:
        return None


def differences(before: Mapping[str, Fingerprint], after: Mapping[str, Fingerprint]) -> list[Difference]:
    """List what looks different, in the order of the paths."""
    paths = {path for path, fingerprint in after.items() if before.get(path) != fingerprint}
    paths |= before.keys() - after.keys()
    return [Difference(path=path, before=before.get(path), after=after.get(path)) for path in sorted(paths)]


def file_system_time(folder: Path) -> int:
    """Return the time that an entry changed now would get, by the clock of the file system itself."""
    clock = folder / CLOCK
    folder.mkdir(parents=True, exist_ok=True)
    # A network file system stamps entries by its server's clock, which may differ from ours.
    clock.touch()
    os.utime(clock)
    return clock.stat().st_ctime_ns


def _fingerprint(found: os.stat_result) -> Fingerprint:
    if stat.S_ISDIR(found.st_mode):
        return Fingerprint(found.st_mode, 0, 0, 0, 0, 0)
    return Fingerprint(
        found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_nlink
    )


class Contents(Struct, kw_only=True, eq=False):
    """What every path should hold: a blob of git's, read through its filters, or one of our own.

    `index` is a private index file that makes the next comparison of the tracked files cheap. Blocking.
    """

    repository: Repository
    top: Path
    index: Path
    _tracked: dict[str, str] = field(default_factory=dict)
    _kept: dict[str, str] = field(default_factory=dict)
    _links: dict[str, str] = field(default_factory=dict)
    _left: tuple[int, int] = (MOST_FILES, MOST_BYTES)

    def begin(self, snapshot: Snapshot) -> None:
        """Record what the tree holds now; small files that git does not have are stored."""
        tracked = self._unchanged()
        self._tracked = {
            path: blob for path, blob in tracked.items() if path in snapshot and snapshot[path].is_file
        }
        others = snapshot.keys() - self._tracked.keys()
        self.learn(sorted(others, key=lambda path: snapshot[path].size), snapshot)

    def learn(self, paths: Iterable[str], snapshot: Snapshot) -> None:
        """Accept what these paths hold now as what belongs there."""
        files: list[str] = []
        for path in paths:
            for known in (self._tracked, self._kept, self._links):
                known.pop(path, None)
            fingerprint = snapshot.get(path)
            if fingerprint is None or fingerprint.is_folder:
                continue
            if fingerprint.is_link:
                self._links[path] = str((self.top / path).readlink())
            elif fingerprint.is_file and fingerprint.size <= LARGEST:
                files.append(path)
        affordable = [path for path in files if self._has_room(snapshot[path])]
        self._kept.update(store(self.repository, self.top, affordable))

    def originals(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield the bytes that belong at paths, of links their targets; None if they are not known."""
        kept: dict[str, str] = {}
        tracked: dict[str, str] = {}
        for path in paths:
            if path in self._links:
                yield path, os.fsencode(self._links[path])
            elif path in self._kept:
                kept[path] = self._kept[path]
            elif path in self._tracked:
                tracked[path] = self._tracked[path]
            else:
                yield path, None
        yield from read_blobs(self.repository, kept)
        yield from read_blobs(self.repository, tracked, index=self.index)

    def _has_room(self, fingerprint: Fingerprint) -> bool:
        count, size = self._left
        if count == 0 or fingerprint.size > size:
            return False
        self._left = (count - 1, size - fingerprint.size)
        return True

    def _unchanged(self) -> dict[str, str]:
        """Return the blobs of tracked files that are in the tree as they were committed."""
        env = {"GIT_INDEX_FILE": str(self.index)}
        self.index.parent.mkdir(parents=True, exist_ok=True)
        self.index.with_name(f"{self.index.name}.lock").unlink(missing_ok=True)
        # Never the user's index: a private one, whose lock can only be a leftover of a killed run.
        reset = ("read-tree", "--reset", "HEAD")
        if self.repository.run(*reset, cwd=self.top, env=env, check=False).returncode != 0:
            self.index.unlink(missing_ok=True)  # a half-written index is rebuilt
            self.repository.run(*reset, cwd=self.top, env=env)
        self.repository.run("update-index", "-q", "--refresh", cwd=self.top, env=env, check=False)
        comparing = ("diff-files", "-z", "--name-only", "--no-renames")
        changed = set(self.repository.run(*comparing, cwd=self.top, env=env).fields())
        found = {}
        for entry in self.repository.run("ls-files", "-z", "--stage", cwd=self.top, env=env).fields():
            words, _, path = entry.partition("\t")
            mode, blob, _ = words.split(" ")
            if mode != _GITLINK and path not in changed:
                found[path] = blob
        return found


def store(repository: Repository, top: Path, paths: Iterable[str]) -> dict[str, str]:
    """Store files below `top` in git as they are, without filters; unreadable files are left out."""
    before = {path: fingerprint_of(top / path) for path in paths if os.access(top / path, os.R_OK)}
    plain = [path for path in before if "\n" not in path]
    stdin = "".join(f"{top / path}\n" for path in plain).encode(errors="surrogateescape")
    hashing = ("hash-object", "-w", "--no-filters")
    blobs = {}
    if plain:
        # It ends at the first file that is gone by now; what it has printed is stored.
        answer = repository.run(*hashing, "--stdin-paths", stdin=stdin, check=False)
        blobs = dict(zip(plain, answer.stdout.split(), strict=False))
    for path in before.keys() - blobs.keys():
        alone = repository.run(*hashing, "--", str(top / path), check=False)
        if alone.returncode == 0:
            blobs[path] = alone.stdout.strip()
        elif (top / path).is_file():
            raise failure(hashing, alone)
    # A file that changed while git read it is not kept: it is unknown which state was stored.
    return {path: blob for path, blob in blobs.items() if fingerprint_of(top / path) == before[path]}


def store_texts(repository: Repository, texts: Mapping[str, bytes]) -> dict[str, str]:
    """Store texts in git, any number of them with one process."""
    if not texts:
        return {}
    with tempfile.TemporaryDirectory() as made:
        names = {key: str(number) for number, key in enumerate(texts)}
        for key, name in names.items():
            Path(made, name).write_bytes(texts[key])
        blobs = store(repository, Path(made), names.values())
    return {key: blobs[name] for key, name in names.items()}


def read_blobs(
    repository: Repository, blobs: Mapping[str, str], *, index: Path | None = None
) -> Iterator[tuple[str, bytes | None]]:
    """Read the blob of each path, many with one process, and not too much at a time.

    With a private `index` it is what git would check out at that path, through its filters. None stands for
    what cannot be read.
    """
    filtered = index is not None
    env = {"GIT_INDEX_FILE": str(index)} if index else None
    for batch in _batches(repository, blobs):
        # With filters git reports wrong sizes, so a random mark separates the contents.
        mark = uuid.uuid4().hex
        together = () if any("\n" in path for path in batch) else batch.items()
        asked = "".join(f"{blob} {path}\n" if filtered else f"{blob}\n" for path, blob in together)
        reading = ("cat-file", f"--batch={mark}", *(("--filters",) if filtered else ()))
        stdin = asked.encode(errors="surrogateescape")
        output = repository.run(*reading, cwd=repository.top, env=env, stdin=stdin, check=False)
        parts = output.stdout.split(f"{mark}\n")[1:]
        if output.returncode == 0 and len(parts) == len(batch):
            for path, part in zip(batch, parts, strict=True):
                yield path, part[:-1].encode(errors="surrogateescape")
        else:  # one of them cannot be filtered, or has a newline in its path
            for path, blob in batch.items():
                yield path, _read_alone(repository, path, blob, env)


def _batches(repository: Repository, blobs: Mapping[str, str]) -> Iterator[dict[str, str]]:
    stdin = "".join(f"{blob}\n" for blob in blobs.values()).encode()
    answer = repository.run("cat-file", "--batch-check=%(objectsize)", stdin=stdin).stdout if blobs else ""
    batch: dict[str, str] = {}
    size = 0
    for (path, blob), words in zip(blobs.items(), answer.splitlines(), strict=True):
        more = int(words) if words.isdigit() else _BATCH_BYTES  # a missing one gets a batch of its own
        if batch and size + more > _BATCH_BYTES:
            yield batch
            batch, size = {}, 0
        batch[path] = blob
        size += more
    if batch:
        yield batch


def _read_alone(repository: Repository, path: str, blob: str, env: Mapping[str, str] | None) -> bytes | None:
    how = ("--filters", f"--path={path}") if env else ("blob",)
    output = repository.run("cat-file", *how, blob, cwd=repository.top, env=env, check=False)
    return output.stdout.encode(errors="surrogateescape") if output.returncode == 0 else None
