"""What the files of a shared tree held before anybody worked there, so that they can be put back.

Tracked files that nobody had changed are in git already. Others are stored as they are, byte by byte,
up to a limit: a file beyond it is still watched, but cannot be put back.
"""

import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isolation.git.repository import Repository
from isolation.shared_tree.snapshot import Picture, Sign, sign_of

MOST_FILES = 5000
MOST_BYTES = 256 << 20
LARGEST = 8 << 20
_GITLINK = "160000"
_AT_ONCE = 16 << 20
"""How many bytes one process reads for us at most, unless a single blob is larger."""


@dataclass(slots=True, kw_only=True)
class Contents:
    """What is known of every path's content: a blob of git's, taken through its filters, or one of our own.

    `index` is a file of the program's own that makes the next look at the tracked files cheap. Blocking.
    """

    repository: Repository
    top: Path
    index: Path
    _tracked: dict[str, str] = field(default_factory=dict, init=False)
    _kept: dict[str, str] = field(default_factory=dict, init=False)
    _links: dict[str, str] = field(default_factory=dict, init=False)
    _left: tuple[int, int] = field(default=(MOST_FILES, MOST_BYTES), init=False)

    def begin(self, picture: Picture) -> None:
        """Learn what the tree holds now; small files that git does not have are stored."""
        tracked = self._unchanged()
        self._tracked = {
            path: blob for path, blob in tracked.items() if path in picture and picture[path].is_file
        }
        others = picture.keys() - self._tracked.keys()
        self.learn(sorted(others, key=lambda path: picture[path].size), picture)

    def learn(self, paths: Iterable[str], picture: Picture) -> None:
        """Take what stands at these paths now for what belongs there."""
        files: list[str] = []
        for path in paths:
            for known in (self._tracked, self._kept, self._links):
                known.pop(path, None)
            sign = picture.get(path)
            if sign is None or sign.is_folder:
                continue
            if sign.is_link:
                self._links[path] = str((self.top / path).readlink())
            elif sign.is_file and sign.size <= LARGEST:
                files.append(path)
        affordable = [path for path in files if self._affords(picture[path])]
        self._kept.update(store(self.repository, self.top, affordable))

    def originals(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Give the bytes that belong at paths, of links their targets; None when they are not known."""
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
        yield from read_blobs(self.repository, tracked, filtered=True)

    def _affords(self, sign: Sign) -> bool:
        count, size = self._left
        if count == 0 or sign.size > size:
            return False
        self._left = (count - 1, size - sign.size)
        return True

    def _unchanged(self) -> dict[str, str]:
        """Give the blobs of tracked files that stand in the tree as they were committed."""
        env = {"GIT_INDEX_FILE": str(self.index)}
        self.index.parent.mkdir(exist_ok=True)
        self.index.with_name(f"{self.index.name}.lock").unlink(missing_ok=True)
        anew = ("read-tree", "--reset", "HEAD")
        if self.repository.run(*anew, cwd=self.top, env=env, check=False).returncode != 0:
            self.index.unlink(missing_ok=True)  # an index that was torn is worth nothing
            self.repository.run(*anew, cwd=self.top, env=env)
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
    """Put files below `top` into git's store as they are, past all filters; what cannot be read stays out."""
    before = {path: sign_of(top / path) for path in paths if os.access(top / path, os.R_OK)}
    plain = [path for path in before if "\n" not in path]
    stdin = "".join(f"{top / path}\n" for path in plain).encode(errors="surrogateescape")
    hashing = ("hash-object", "-w", "--no-filters")
    blobs = {}
    if plain:
        answer = repository.run(*hashing, "--stdin-paths", stdin=stdin)
        blobs = dict(zip(plain, answer.stdout.split(), strict=True))
    for path in before.keys() - blobs.keys():
        blobs[path] = repository.run(*hashing, "--", str(top / path)).stdout.strip()
    return {path: blob for path, blob in blobs.items() if sign_of(top / path) == before[path]}


def store_texts(repository: Repository, texts: Mapping[str, bytes]) -> dict[str, str]:
    """Put bytes into git's store, however many with one process."""
    if not texts:
        return {}
    with tempfile.TemporaryDirectory() as made:
        names = {key: str(number) for number, key in enumerate(texts)}
        for key, name in names.items():
            Path(made, name).write_bytes(texts[key])
        blobs = store(repository, Path(made), names.values())
    return {key: blobs[name] for key, name in names.items()}


def read_blobs(
    repository: Repository, blobs: Mapping[str, str], *, filtered: bool = False
) -> Iterator[tuple[str, bytes | None]]:
    """Read the blob of each path, many with one process, and not too much at a time.

    With `filtered` it is what git would check out at that path. What cannot be read is None.
    """
    for batch in _batches(repository, blobs):
        # With filters git tells no true sizes, so a mark that nothing can hold parts the contents.
        mark = uuid.uuid4().hex
        together = () if any("\n" in path for path in batch) else batch.items()
        asked = "".join(f"{blob} {path}\n" if filtered else f"{blob}\n" for path, blob in together)
        reading = ("cat-file", f"--batch={mark}", *(("--filters",) if filtered else ()))
        stdin = asked.encode(errors="surrogateescape")
        output = repository.run(*reading, cwd=repository.top, stdin=stdin, check=False)
        parts = output.stdout.split(f"{mark}\n")[1:]
        if output.returncode == 0 and len(parts) == len(batch):
            for path, part in zip(batch, parts, strict=True):
                yield path, part[:-1].encode(errors="surrogateescape")
        else:  # one of them cannot be filtered, or asked for in a line
            for path, blob in batch.items():
                yield path, _read_alone(repository, path, blob, filtered=filtered)


def _batches(repository: Repository, blobs: Mapping[str, str]) -> Iterator[dict[str, str]]:
    stdin = "".join(f"{blob}\n" for blob in blobs.values()).encode()
    answer = repository.run("cat-file", "--batch-check=%(objectsize)", stdin=stdin).stdout if blobs else ""
    batch: dict[str, str] = {}
    size = 0
    for (path, blob), words in zip(blobs.items(), answer.splitlines(), strict=True):
        more = int(words) if words.isdigit() else _AT_ONCE  # a missing one is asked for alone
        if batch and size + more > _AT_ONCE:
            yield batch
            batch, size = {}, 0
        batch[path] = blob
        size += more
    if batch:
        yield batch


def _read_alone(repository: Repository, path: str, blob: str, *, filtered: bool) -> bytes | None:
    how = ("--filters", f"--path={path}") if filtered else ("blob",)
    output = repository.run("cat-file", *how, blob, cwd=repository.top, check=False)
    return output.stdout.encode(errors="surrogateescape") if output.returncode == 0 else None
