"""Work that git takes as it is, and work of which it makes something else, in files as `fill` makes them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from isolation.git.plain.commit import MOST
from isolation.git.plain.content import LARGEST
from isolation.git.repository import Repository
from tests.conftest import git

Edit = Callable[[Path], object]


def fill(folder: Path) -> None:
    """Make files, folders and a link."""
    for name in ("kept", "edited", "gone", "folder/one", "folder/deep/two", "folder.txt", "folder-too/three"):
        write(name, f"{name}\n")(folder)
    (folder / "link").symlink_to("kept")


def write(name: str, text: str = "new\n") -> Edit:
    """Return what writes a file."""

    def act(tree: Path) -> None:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)

    return act


def many(number: int) -> Edit:
    """Return what writes so many files."""

    def write(tree: Path) -> None:
        for each in range(number):
            (tree / f"new-{each}").write_text(f"{each}\n")

    return write


def _folder_for_file(tree: Path) -> None:
    (tree / "edited").unlink()
    write("edited/inside")(tree)


def _empty_folder_for_file(tree: Path) -> None:
    (tree / "edited").unlink()
    (tree / "edited").mkdir()


def _file_for_folder(tree: Path) -> None:
    shutil.rmtree(tree / "folder")
    write("folder")(tree)


def _changed_link(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").symlink_to("gone")


def _file_for_link(tree: Path) -> None:
    (tree / "link").unlink()
    write("link")(tree)


USUAL: dict[str, Edit] = {
    "a new file": write("new"),
    "a new file in new folders": write("a/b/c/new"),
    "a new file in a folder": write("folder/deep/new"),
    "an edited file": write("edited", "another text\n"),
    "an empty file": write("edited", ""),
    "a file as large as can be": write("edited", "x" * LARGEST),
    "a deleted file": lambda tree: (tree / "gone").unlink(),
    "a deleted folder": lambda tree: shutil.rmtree(tree / "folder"),
    "an executable file": lambda tree: (tree / "kept").chmod(0o755),
    "a file written with the same text": write("edited", "edited\n"),
    "as many files as can be": many(MOST),
    "names that sort unlike folders": lambda tree: [
        write(n)(tree) for n in ("folder0", "folder-", "folder!")
    ],
    "names with spaces and signs": lambda tree: [write(n)(tree) for n in ("a b", "[x]", "-n", "#x")],
}

UNUSUAL: dict[str, Edit] = {
    "a link": lambda tree: (tree / "new").symlink_to("kept"),
    "a changed link": _changed_link,
    "a file for a link": _file_for_link,
    "a folder for a file": _folder_for_file,
    "an empty folder for a file": _empty_folder_for_file,
    "a file for a folder": _file_for_folder,
    "a large file": write("new", "x" * (LARGEST + 1)),
    "many files": many(MOST + 1),
    "carriage returns": lambda tree: (tree / "new").write_bytes(b"one\r\ntwo\r\n"),
    "a name with letters of other alphabets": write("é"),
    "a name that is no text": lambda tree: (tree / os.fsdecode(b"\xff")).write_text("new"),
    "a name that other systems read as another": write("a\\b"),
    "attributes": lambda tree: (write(".gitattributes", "*.x text\n")(tree), write("new")(tree)),
    "rules that leave it out": lambda tree: (write(".gitignore", "new*\n")(tree), write("newest")(tree)),
}


UPPER = "tr a-z A-Z"
CONFIGURED = {
    "a filter": (("filter.up.clean", UPPER), "*.x filter=up\n"),
    "a filter by a macro": (("filter.up.clean", UPPER), "[attr]mine filter=up\n*.x mine\n"),
    "another encoding": (("core.filemode", "true"), "*.x working-tree-encoding=UTF-16LE\n"),
    "expanded ids": (("core.filemode", "true"), "*.x ident\n"),
    "modes that mean nothing": (("core.filemode", "false"), ""),
    "names of any case": (("core.ignorecase", "true"), ""),
    "attributes elsewhere": (("core.attributesfile", "ELSEWHERE"), ""),
    "an included file": (("include.path", "ELSEWHERE"), ""),
}


def configure(repository: Repository, how: str, folder: Path) -> None:
    """Configure something of which only git knows what it means; an empty folder is for files elsewhere."""
    (key, value), attributes = CONFIGURED[how]
    elsewhere = folder / "elsewhere"
    elsewhere.write_text("[core]\n" if key == "include.path" else "* filter=none\n")
    git(repository.top, "config", key, value.replace("ELSEWHERE", str(elsewhere)))
    if attributes:
        write(".gitattributes", attributes)(repository.top)
        git(repository.top, "add", "-A")
        git(repository.top, "commit", "-qm", "attributes")


NAMES = st.sampled_from(
    ["a", "b", "a.b", "a-b", "a/x", "a/y", "b/c/d", "b/c-d", "b.c/d", "kept", "folder/one"]
)
CHANGES = st.tuples(NAMES, st.sampled_from(["", "one\n", "two\n", None]), st.booleans())


def apply(tree: Path, name: str, text: str | None, executable: bool) -> None:  # noqa: FBT001  as drawn
    """Write or delete a file of a history, unless another one is in its way."""
    path = tree / name
    if any(parent.is_file() for parent in path.parents) or path.is_dir():
        return
    if text is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)
