"""What a project says about itself: its test command and the folders that its tests need.

Only files at the top of the repository are read; no program is started. A file that cannot be read or parsed
says nothing.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_NO_TEST = "no test specified"
"""What `npm init` writes as the test script of a project that has none."""
_NODE_LOCKS = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun run",
    "bun.lockb": "bun run",
}
_PYTHON_LOCKS = {"uv.lock": "uv run pytest -q", "poetry.lock": "poetry run pytest -q"}
_ENVIRONMENTS = (".venv", "venv")


class FoundCommand(Struct, frozen=True, kw_only=True):
    """A command that tests the project, where it was found, and the ignored folder that it needs.

    `not_ignored` is the folder that it would use if git ignored it.
    """

    command: str
    found: str
    folder: str = ""
    not_ignored: str = ""


def find_test_commands(top: Path, is_ignored: Callable[[str], bool]) -> tuple[FoundCommand, ...]:
    """Return every test command that the files at the top of a project name, the project's own first.

    A folder that git does not ignore cannot be linked into worktrees, so no command needs it.
    """
    return (*_make(top), *_python(top, is_ignored), *_node(top, is_ignored), *_cargo(top), *_go(top))


def _make(top: Path) -> Iterator[FoundCommand]:
    # make itself reads only the first of them that exists.
    name = next((name for name in _MAKEFILES if (top / name).is_file()), "")
    if name and any(_makes_test(line) for line in _text(top / name).splitlines()):
        yield FoundCommand(command="make test", found=f"{name} has a target `test`")


def _makes_test(line: str) -> bool:
    targets, colon, rest = line.partition(":")
    is_rule = bool(colon) and not rest.lstrip(":").startswith("=") and not line.startswith(("\t", " ", "#"))
    return is_rule and "test" in targets.split()


def _python(top: Path, is_ignored: Callable[[str], bool]) -> Iterator[FoundCommand]:
    found = _pytest(top)
    if not found:
        return
    lock = next((name for name in _PYTHON_LOCKS if (top / name).is_file()), "")
    if lock:
        yield FoundCommand(command=_PYTHON_LOCKS[lock], found=f"{found}, and there is a {lock}")
        return
    present = [name for name in _ENVIRONMENTS if (top / name / "bin" / "python").exists()]
    folder = next(filter(is_ignored, present), "")
    program = f"{folder}/bin/python" if folder else "python3"
    not_ignored = present[0] if present and not folder else ""
    yield FoundCommand(command=f"{program} -m pytest -q", found=found, folder=folder, not_ignored=not_ignored)


def _pytest(top: Path) -> str:
    """Return where a project says that it uses pytest; empty if it does not."""
    for name in ("pytest.ini", ".pytest.ini"):
        if (top / name).is_file():
            return f"there is a {name}"
    tool = _table(_toml(top / "pyproject.toml"), "tool")
    if "pytest" in tool:
        return "pyproject.toml configures pytest"
    for name, section in (("tox.ini", "[pytest]"), ("setup.cfg", "[tool:pytest]")):
        if section in _text(top / name):
            return f"{name} configures pytest"
    for name in ("tests", "test"):
        if any((top / name).glob("test_*.py")) or any((top / name).glob("*/test_*.py")):
            return f"the folder {name} has files test_*.py"
    return ""


def _node(top: Path, is_ignored: Callable[[str], bool]) -> Iterator[FoundCommand]:
    script = _table(_json(top / "package.json"), "scripts").get("test")
    if not isinstance(script, str) or not script.strip() or _NO_TEST in script:
        return
    lock = next((name for name in _NODE_LOCKS if (top / name).is_file()), "")
    found = 'package.json has a script "test"'
    present = (top / "node_modules").is_dir()
    linked = present and is_ignored("node_modules")
    yield FoundCommand(
        command=f"{_NODE_LOCKS.get(lock, 'npm')} test",
        found=f"{found}, and there is a {lock}" if lock else found,
        folder="node_modules" if linked else "",
        not_ignored="node_modules" if present and not linked else "",
    )


def _cargo(top: Path) -> Iterator[FoundCommand]:
    if (top / "Cargo.toml").is_file():
        yield FoundCommand(command="cargo test --quiet", found="there is a Cargo.toml")


def _go(top: Path) -> Iterator[FoundCommand]:
    name = next((name for name in ("go.mod", "go.work") if (top / name).is_file()), "")
    if name:
        yield FoundCommand(command="go test ./...", found=f"there is a {name}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(path))
    except (ValueError, RecursionError):
        return {}


def _json(path: Path) -> Mapping[str, Any]:
    try:
        loaded = json.loads(_text(path))
    except (ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _table(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}
