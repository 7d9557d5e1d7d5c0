"""A copy of the project in which a recipe of CONTRIBUTING.md is followed by touching only what it names."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.program import LIMIT, Ran

ROOT = Path(__file__).parent.parent.parent
GUIDE = ROOT / "CONTRIBUTING.md"
COPIED = ("runner", "isolation", "docs", "examples", "README.md", "CONTRIBUTING.md")
GENERATED = ("docs/reference/cli.md", "docs/reference/settings.md")
_RECIPE = re.compile(r"^### (.+?)\n\nTouch: (.+?)\n\n", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"`([^`]+)`")


def recipes() -> dict[str, tuple[str, ...]]:
    """Read from the guide which files each recipe touches; a new file has a placeholder in its name."""
    return {title: tuple(_PATH.findall(files)) for title, files in _RECIPE.findall(GUIDE.read_text())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """The copy, and the files that its recipe allows to touch."""

    root: Path
    touchable: tuple[str, ...]

    def create(self, path: str, text: str) -> None:
        """Write a new file."""
        target = self._require(path)
        assert not target.exists(), f"{path} is not new"
        target.write_text(text)

    def insert(self, path: str, text: str, *, before: str) -> None:
        """Insert `text` before the first line that begins with `before`."""
        target = self._require(path)
        lines = target.read_text().splitlines(keepends=True)
        found = next((number for number, line in enumerate(lines) if line.startswith(before)), None)
        assert found is not None, f"no line of {path} begins with {before!r}"
        target.write_text("".join([*lines[:found], text, *lines[found:]]))

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace a text that is there once."""
        target = self._require(path)
        text = target.read_text()
        assert text.count(old) == 1, f"{path} has {old!r} {text.count(old)} times"
        target.write_text(text.replace(old, new))

    def run(self, cwd: Path, *args: str, path: Path | None = None) -> Ran:
        """Run the copied program; `path` comes first where programs are looked for."""
        return self._python(cwd, "-m", "runner", *args, path=path)

    def changed(self) -> set[str]:
        """Name the files that differ from the project's, without those that are generated."""
        files = {file.relative_to(self.root).as_posix() for file in self.root.rglob("*") if file.is_file()}
        return {
            name
            for name in files
            if "__pycache__" not in name and name not in GENERATED and not self._same(name)
        }

    def write_docs(self) -> str:
        """Write the generated pages again; return them."""
        done = self._python(self.root, "docs/generate.py")
        assert done.code == 0, done.err
        return "\n".join((self.root / name).read_text() for name in GENERATED)

    def _python(self, cwd: Path, *args: str, path: Path | None = None) -> Ran:
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        if path is not None:
            environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(
            [sys.executable, *args],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

    def _same(self, name: str) -> bool:
        original = ROOT / name
        return original.exists() and original.read_bytes() == (self.root / name).read_bytes()

    def _require(self, path: str) -> Path:
        """Return where `path` is in the copy, if the recipe names it."""
        patterns = [re.sub(r"NAME|GROUP", r"[a-z_]+", re.escape(name)) for name in self.touchable]
        assert any(re.fullmatch(pattern, path) for pattern in patterns), f"the recipe does not name {path}"
        return self.root / path


def copy_project(root: Path, recipe: str) -> Scratch:
    """Copy what is installed and its pages, compiled files included: their times stay, so they stay valid."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name)
        else:
            root.mkdir(exist_ok=True)
            shutil.copy2(source, root / name)
    return Scratch(root=root, touchable=recipes()[recipe])
