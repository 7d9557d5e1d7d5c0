"""What a story owns in the shared tree, as a git tree: built in a private index.

The user's index is neither read nor written, so what is staged there, hidden there or half-merged
there stays as it is, and nothing of it gets into a story's commit. A few small files that git takes as they
are need no git process; whatever is unusual is left to git.
"""

import os
import stat
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.claims.globs import Claim
from isolation.claims.owners import ancestors, roots
from isolation.errors import WorkspaceError
from isolation.git.commits import commit_tree, named, signature_of
from isolation.git.direct.index_file import has_short_names, is_plain
from isolation.git.plain.commit import MOST, add_commit, look_at
from isolation.git.plain.objects import NewObjects, object_id
from isolation.git.plain.trees import IndexTrees, LeftToGitError
from isolation.git.repository import Repository
from isolation.paths import own_git_dir

_GITLINK = b"160000"
_GIT = ".git"
_SHA1 = 40
_MOST_LOOKED = 1000
"""How many entries are looked at before it costs less to ask git."""


class ClaimTree(Struct, frozen=True, kw_only=True):
    """A commit's tree with the claim's paths as in the working tree; `changed` are those that differ.

    `tip` is a commit of it on top of that, if one was asked for; else, and if nothing differs, that commit.
    Unless it is `suspect`, none of these files holds conflict markers.
    """

    tree: str
    changed: tuple[str, ...]
    tip: str
    suspect: bool = True


class NewCommit(Struct, frozen=True, kw_only=True):
    """The message and the date of a commit to be made."""

    message: str
    date: float


def fresh_index(index: Path) -> dict[str, str]:
    """Return the variables for commands with a private index, which is empty at first."""
    index.parent.mkdir(parents=True, exist_ok=True)
    # A killed command may have left both. The file belongs to one story's branch; no other process uses it.
    for left in (index, index.with_name(f"{index.name}.lock")):
        left.unlink(missing_ok=True)
    return {"GIT_INDEX_FILE": str(index)}


def claim_tree(
    repository: Repository,
    cwd: Path,
    *,
    index: Path,
    tip: str,
    claim: Claim,
    commit: NewCommit | None = None,
) -> ClaimTree:
    """Build the tree of `tip` with everything that the claim owns taken from the working tree.

    Ignored files stay out, unless they are tracked. With `commit`, one is made of it; no branch moves.
    `index` is a file for this call alone.
    """
    committed = _committed(repository, cwd, index, tip)
    found = _found(cwd, claim, committed)
    if not (found.present or found.gone or found.others or found.others is None):
        return committed.unchanged  # the usual case at the start of a story that makes new files
    with suppress(LeftToGitError, OSError, ValueError):
        return _built_plainly(repository, cwd, found, committed=committed, commit=commit)
    with repository.visiting(cwd, index):
        built = _built(repository, cwd, fresh_index(index), found, claim=claim, committed=committed)
    index.unlink(missing_ok=True)
    if not commit or not built.changed:
        return built
    made = commit_tree(repository, built.tree, (tip,), commit.message, commit.date)
    return replace(built, tip=made)


def _built_plainly(
    repository: Repository, cwd: Path, found: "_Found", *, committed: "_Committed", commit: NewCommit | None
) -> ClaimTree:
    """Build a tree without git; raises an error of which nothing is left if git has to do it."""
    trees, others, tip = committed.trees, found.others, committed.unchanged.tip
    if trees is None or others is None:
        raise LeftToGitError("an unusual commit or tree")
    names = [os.fsencode(path) for path in (*found.gone, *found.present, *others)]
    if len(names) > MOST:
        raise LeftToGitError("many files")
    with NewObjects(repository.common_dir / "objects") as new:
        files = look_at(repository, cwd, trees, names, new)
        changed = files.changed
        if not changed:
            return committed.unchanged
        tree = trees.changed(changed, new.add)
        if commit is not None:
            signature = signature_of(repository, commit.date)
            tip = add_commit(tree, (tip,), signature, commit.message, new)
        new.appear()
    paths = tuple(map(os.fsdecode, sorted(changed)))
    return ClaimTree(tree=tree.hex(), changed=paths, tip=tip, suspect=bool(files.suspect))


def _built(
    repository: Repository,
    cwd: Path,
    env: dict[str, str],
    found: "_Found",
    *,
    claim: Claim,
    committed: "_Committed",
) -> ClaimTree:
    committed.write(Path(env["GIT_INDEX_FILE"]))
    present, gone, before = found.present, found.gone, committed.unchanged
    if found.others is None or found.others:
        present = [*present, *_untracked(repository, cwd, env, claim)]
    # Removals first, so that a folder can take the place of a file.
    if gone:
        _update(repository, cwd, env, ("--force-remove",), gone)
    if present:
        _update(repository, cwd, env, ("--add", "--remove", "--replace"), present)
    if any(map(committed.has, present)):
        comparing = ("diff-index", "--cached", "-z", "--name-only", "--no-renames", before.tip, "--")
        changed = repository.run(*comparing, cwd=cwd, env=env).fields()
    else:  # all of it is new or gone, so all of it differs
        changed = tuple(sorted((*present, *gone), key=os.fsencode))
    tree = repository.run("write-tree", cwd=cwd, env=env).stdout.strip() if changed else before.tree
    # What was new may have vanished before git read it.
    return before if tree == before.tree else ClaimTree(tree=tree, changed=changed, tip=before.tip)


class _Committed(Struct, frozen=True, kw_only=True):
    """The files of a commit: their paths in the order of bytes, with their modes, and as an index file.

    It is kept in memory: a program that git starts for a story can write to the folder of private indexes.
    `unchanged` is its tree. `trees` are those of its folders; None if only git can tell.
    """

    key: tuple[object, ...]
    unchanged: ClaimTree
    paths: list[bytes]
    modes: list[bytes]
    content: bytes
    trees: IndexTrees | None

    def write(self, index: Path) -> None:
        """Write it as a private index file that git has not seen yet."""
        index.write_bytes(self.content)

    def has(self, path: str) -> bool:
        """Return whether a path is one of its files."""
        name = os.fsencode(path)
        here = bisect_left(self.paths, name)
        return self.paths[here : here + 1] == [name]

    def below(self, folders: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield path and mode of the files at or below these folders, of all files without any."""
        spans = [self._span(os.fsencode(each)) for each in folders] or [range(len(self.paths))]
        for number in sorted({number for span in spans for number in span}):
            yield os.fsdecode(self.paths[number]), self.modes[number]

    def _span(self, folder: bytes) -> Iterable[int]:
        here = bisect_left(self.paths, folder)
        first = bisect_left(self.paths, folder + b"/")
        found = range(first, bisect_left(self.paths, folder + b"0"))  # the byte after the slash
        return (here, *found) if self.paths[here : here + 1] == [folder] else found


_kept: list[_Committed] = []
_MOST_KEPT = 2


def _committed(repository: Repository, cwd: Path, index: Path, tip: str) -> _Committed:
    """Return the files of a commit; those of the last commits, on which most stories begin, are kept."""
    key = (cwd, tip, *_sparse_settings(repository, cwd))
    known = next((each for each in tuple(_kept) if each.key == key), None)
    found = known or _load_committed(repository, cwd, index, key, tip)
    # The one that was asked for last goes last.
    _kept[:] = [found, *(each for each in tuple(_kept) if each is not found)][:_MOST_KEPT]
    return found


def _load_committed(
    repository: Repository, cwd: Path, index: Path, key: tuple[object, ...], tip: str
) -> _Committed:
    env = fresh_index(index)
    repository.run("read-tree", tip, cwd=cwd, env=env)
    content = index.read_bytes()
    index.unlink()
    trees = _trees(content, tip)
    if trees:
        tree, paths = trees.changed({}, object_id).hex(), trees.paths
        modes = [blob.mode for blob in trees.blobs]
    else:
        paths, modes = [], []
        for entry in repository.run("ls-files", "-z", "--stage", cwd=cwd, env=env).fields():
            words, _, path = entry.partition("\t")
            paths.append(os.fsencode(path))
            modes.append(words.partition(" ")[0].encode())
        (tree,) = repository.trees((tip,))
    unchanged = ClaimTree(tree=tree, changed=(), tip=tip, suspect=False)
    return _Committed(key=key, unchanged=unchanged, paths=paths, modes=modes, content=content, trees=trees)


def _trees(index: bytes, tip: str) -> IndexTrees | None:
    """Return the trees of a commit from an index of it; None for an index that only git should read."""
    if len(tip) != _SHA1 or not is_plain(index, submodules=True) or has_short_names(index):
        return None
    try:
        return IndexTrees(index)
    except ValueError:
        return None


def _sparse_settings(repository: Repository, cwd: Path) -> Iterator[object]:
    """Yield what tells whether git would now leave out other files of a commit than before."""
    common = repository.common_dir
    git_dir = own_git_dir(cwd) or common
    for place in (f"{common}/config", f"{git_dir}/config.worktree", f"{git_dir}/info/sparse-checkout"):
        try:
            found = os.stat(place)  # noqa: PTH116  for each look at a claim, without pathlib
            yield (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            yield None


def differing(
    repository: Repository, cwd: Path, *, index: Path, tip: str, paths: Sequence[str]
) -> tuple[str, ...]:
    """Return those paths that differ between the working tree and a commit."""
    env = fresh_index(index)
    repository.run("read-tree", "--reset", tip, cwd=cwd, env=env)
    comparing = ("--literal-pathspecs", "diff", "-z", "--name-only", "--no-ext-diff", "--no-renames")
    found = repository.run(*comparing, "--", *paths, cwd=cwd, env=env).fields()
    index.unlink(missing_ok=True)
    return found


class _Found(Struct, frozen=True, kw_only=True):
    """Of a claim, the tracked paths that exist and that do not, and the `others`; None if only git can tell.

    These are not tracked, and may be ignored.
    """

    present: list[str]
    gone: list[str]
    others: list[str] | None


def _found(cwd: Path, claim: Claim, committed: _Committed) -> _Found:
    """Return what the working tree has of a claim, without a process."""
    specs = roots(claim)
    present: list[str] = []
    gone: list[str] = []
    tracked = set()
    for path, mode in committed.below(specs):
        tracked.add(path)
        if not claim.owns(path):
            continue
        if mode == _GITLINK:
            # A submodule that is not checked out has an empty folder; its recorded commit stays.
            present += [path] if (cwd / path / _GIT).exists() else []
        else:
            (present if _is_entry(cwd, path) else gone).append(path)
    others = _others(cwd, specs, tracked)
    if others is not None:
        others = [path for path in others if claim.owns(path)]
    return _Found(present=present, gone=gone, others=others)


def _untracked(repository: Repository, cwd: Path, env: dict[str, str], claim: Claim) -> list[str]:
    """Return the claim's paths that are neither tracked nor ignored."""
    listing = ("--literal-pathspecs", "ls-files", "-z", "--others", "--exclude-standard", "--", *roots(claim))
    others = repository.run(*listing, cwd=cwd, env=env).fields()
    nested = [path for path in others if path.endswith("/") and claim.owns(path.rstrip("/"))]
    if nested:
        raise WorkspaceError(
            f"its claim holds other git repositories, which cannot be committed: {named(nested)}",
            hint="remove them, or have git ignore them, then run again",
        )
    return [path for path in others if claim.owns(path)]


def _others(cwd: Path, folders: Sequence[str], tracked: Collection[str]) -> list[str] | None:
    """Return, without a process, the entries that are not tracked; None if only git can tell.

    Those of a repository inside the tree are its own.
    """
    above = {folder for each in folders for folder in ancestors(each)}
    if not folders or any(os.path.lexists(f"{cwd}/{folder}/{_GIT}") for folder in above):
        return None
    found: list[str] = []
    pending, looked = list(folders), 0
    while pending:
        path = pending.pop()
        place, looked = f"{cwd}/{path}", looked + 1
        if looked > _MOST_LOOKED or path.rpartition("/")[2] == _GIT:
            return None
        try:
            if stat.S_ISDIR(os.lstat(place).st_mode):
                pending += [f"{path}/{name}" for name in os.listdir(place)]  # noqa: PTH208  names are enough
            elif path not in tracked:
                found.append(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
    return found


def _is_entry(cwd: Path, path: str) -> bool:
    """Return whether a path is a file or link that is reached through real folders only."""
    place = f"{cwd}/{path}"
    try:
        if stat.S_ISDIR(os.lstat(place).st_mode):
            return False
    except OSError:
        return False
    folder = place.rpartition("/")[0]
    return "/" not in path or os.path.realpath(folder) == folder


def _update(
    repository: Repository, cwd: Path, env: dict[str, str], how: tuple[str, ...], paths: list[str]
) -> None:
    stdin = "".join(f"{path}\0" for path in paths).encode(errors="surrogateescape")
    repository.run("update-index", *how, "-z", "--stdin", cwd=cwd, env=env, stdin=stdin)
