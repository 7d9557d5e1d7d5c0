"""Random branches of one repository, and what a real `git merge` says about each two of them."""

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path

from tests.conftest import git

Tree = dict[str, tuple[str, str]]
"""Paths with mode and text; that of a submodule is a commit id."""

FILE, PROGRAM, LINK, MODULE = "100644", "100755", "120000", "160000"
FOLDERS = ("", "src/", "src/core/", "src/core/deep/", "src/web/", "docs/", "docs/old/", "lib/")


def base_tree(chance: random.Random) -> Tree:
    """Return some forty files in nested folders, a link and a submodule."""
    tree: Tree = {}
    for folder in FOLDERS:
        for name in "abcde":
            lines = [f"{folder}{name} line {number} {chance.random()}" for number in range(30)]
            tree[f"{folder}{name}"] = (FILE, "\n".join(lines) + "\n")
    tree["current"] = (LINK, "src/a")
    tree["vendor/module"] = (MODULE, "1" * 40)
    return tree


def changed(tree: Tree, chance: random.Random) -> Tree:
    """Return the tree after some random changes."""
    new = dict(tree)
    for _ in range(chance.randint(1, 3)):
        before = dict(new)
        chance.choices(_WAYS, weights=_WEIGHTS)[0](new, chance)
        if not new:
            new = before
    return new


def _any(tree: Tree, chance: random.Random) -> str:
    return chance.choice(sorted(tree))


def _text(tree: Tree, chance: random.Random) -> str:
    return chance.choice(sorted(path for path, (mode, _) in tree.items() if mode in {FILE, PROGRAM}) or ["a"])


def _folder(tree: Tree, chance: random.Random) -> str:
    return chance.choice(sorted({path.rpartition("/")[0] for path in tree if "/" in path}) or ["src"])


def _put(tree: Tree, path: str, entry: tuple[str, str]) -> None:
    """Set a path, and remove what cannot be beside it."""
    for other in list(tree):
        if path.startswith(f"{other}/") or other.startswith(f"{path}/"):
            del tree[other]
    tree[path] = entry


def _edit(tree: Tree, chance: random.Random) -> None:
    path = _text(tree, chance)
    mode, text = tree.get(path, (FILE, "x\n"))
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    lines[at : at + chance.randint(0, 1)] = [f"changed {chance.random()}"]
    _put(tree, path, (mode, "\n".join(lines)))


def _add(tree: Tree, chance: random.Random) -> None:
    folder = chance.choice([*FOLDERS, "new/", "src/new/", f"{_folder(tree, chance)}/"])
    _put(tree, f"{folder}{chance.choice('vwxyz')}", (FILE, f"new {chance.random()}\n"))


def _delete(tree: Tree, chance: random.Random) -> None:
    del tree[_any(tree, chance)]


def _rename(tree: Tree, chance: random.Random) -> None:
    path = _any(tree, chance)
    target = f"{chance.choice([*FOLDERS, 'moved/'])}{chance.choice(['r', 's', 't', 'a', 'v'])}"
    if target != path:
        _put(tree, target, tree.pop(path))
        if chance.random() < 0.5:
            _edit(tree, chance)


def _rename_folder(tree: Tree, chance: random.Random) -> None:
    old = _folder(tree, chance)
    new = chance.choice(["renamed", "src/renamed", "docs/renamed", "src", "lib/in", ""])
    inside = [path for path in tree if path.startswith(f"{old}/")]
    kept = set(inside[:1]) if chance.random() < 0.2 else set()
    for path in inside:
        if path not in kept:
            target = f"{new}{path.removeprefix(old)}".lstrip("/")
            if path in tree and target != path:
                _put(tree, target, tree.pop(path))


def _split_folder(tree: Tree, chance: random.Random) -> None:
    old = _folder(tree, chance)
    for path in [path for path in tree if path.startswith(f"{old}/")]:
        if path in tree:
            _put(tree, f"{chance.choice(['one', 'two'])}{path.removeprefix(old)}", tree.pop(path))


def _file_for_folder(tree: Tree, chance: random.Random) -> None:
    _put(tree, _folder(tree, chance), (FILE, f"was a folder {chance.random()}\n"))


def _folder_for_file(tree: Tree, chance: random.Random) -> None:
    path = _any(tree, chance)
    entry = tree.pop(path)
    _put(tree, f"{path}/inside", entry if chance.random() < 0.5 else (FILE, f"inside {chance.random()}\n"))


def _mode(tree: Tree, chance: random.Random) -> None:
    path = _text(tree, chance)
    mode, text = tree.get(path, (FILE, "x\n"))
    _put(tree, path, (PROGRAM if mode == FILE else FILE, text))


def _link(tree: Tree, chance: random.Random) -> None:
    path = chance.choice(["current", _any(tree, chance)])
    _put(tree, path, (LINK, chance.choice(["src/a", "src/b", "docs"])))


def _submodule(tree: Tree, chance: random.Random) -> None:
    path = chance.choice(["vendor/module", "vendor/module", "vendor/other", "lib"])
    _put(tree, path, (MODULE, chance.choice("2345") * 40))


_WAYS: tuple[Callable[[Tree, random.Random], None], ...] = (
    *(_edit, _add, _delete, _rename, _rename_folder, _split_folder),
    *(_file_for_folder, _folder_for_file, _mode, _link, _submodule),
)
_WEIGHTS = (8, 4, 3, 5, 3, 1, 1, 1, 1, 1, 1)


def make_branches(repo: Path, count: int, seed: int) -> dict[str, str]:
    """Make random branches and return their commits; some start from another branch, some hold two."""
    chance = random.Random(seed)  # noqa: S311  a seed, so that a failure can be repeated
    trees = {"base": base_tree(chance)}
    git(repo.parent, "init", "-q", "-b", "main", str(repo))
    text = [_commit("base", trees["base"], ())]
    for number in range(count):
        name = f"s{number}"
        older = [each for each in trees if each != "base"]
        start = chance.choice(older) if older and chance.random() < 0.15 else "base"
        parents = (start, chance.choice(older)) if older and chance.random() < 0.05 else (start,)
        trees[name] = changed(trees[start], chance)
        text.append(_commit(name, trees[name], parents))
    subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=repo, input="".join(text).encode(), check=True, timeout=60
    )
    listed = git(repo, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads/s*")
    return dict(line.split() for line in listed.splitlines())


def _commit(name: str, tree: Tree, parents: tuple[str, ...]) -> str:
    lines = [f"commit refs/heads/{name}\ncommitter t <t@localhost> 1 +0000\ndata 1\nx\n"]
    for word, parent in zip(("from", "merge"), dict.fromkeys(parents), strict=False):
        lines.append(f"{word} refs/heads/{parent}\n")
    lines.append("deleteall\n")
    for path, (mode, text) in tree.items():
        if mode == MODULE:
            lines.append(f"M {mode} {text} {path}\n")
        else:
            lines.append(f"M {mode} inline {path}\ndata {len(text.encode())}\n{text}\n")
    return "".join(lines)


def pairs_of(tips: Mapping[str, str], count: int, seed: int) -> list[tuple[str, str]]:
    """Return random pairs of branches, no pair twice."""
    every = list(combinations(sorted(tips), 2))
    random.Random(seed).shuffle(every)  # noqa: S311  a seed, so that a failure can be repeated
    return every[:count]


def really_conflict(repo: Path, pairs: list[tuple[str, str]]) -> Iterator[bool]:
    """Merge each pair with `git merge` in a checkout, and yield whether that fails."""
    work = repo.parent / "work"
    git(repo, "worktree", "add", "-q", "--detach", str(work), "base")
    git_dir = Path(git(work, "rev-parse", "--absolute-git-dir").strip())
    for one, other in pairs:
        git(work, "checkout", "-q", "--force", "--detach", one)
        asked = ["git", "merge", "-q", "--no-edit", other]
        merged = subprocess.run(asked, cwd=work, capture_output=True, check=False)
        yield merged.returncode != 0
        # By hand, since `reset --hard` stumbles over submodules in conflict.
        for entry in work.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != ".git":
                entry.unlink()
        for name in ("index", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE"):
            (git_dir / name).unlink(missing_ok=True)
