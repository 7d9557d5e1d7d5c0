"""The house's laws that no linter knows: one spawner, one door to git, one printer, small files."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import yaml

from tests.conftest import git

ROOT = Path(__file__).parent.parent
SPAWNERS = {
    "isolation/keeper/confined.py",
    "isolation/keeper/foreground.py",
    "isolation/keeper/fork_server.py",
    "isolation/keeper/trying.py",
    "isolation/keeper/server.py",
    "isolation/keeper/spawn.py",
    "isolation/keeper/unconfined.py",
    "isolation/kernel/process_tree.py",
    "runner/agents/acp/driver.py",  # a program of its own, which runs below a keeper
}
GUIDES = ("CONTRIBUTING.md", "docs/explanation/architecture.md")
MOST_LAYERS = 9
GIT_DOORS = {"isolation/git/repository.py"}
SPAWNING = {
    "subprocess",
    "trio.run_process",
    "trio.lowlevel.open_process",
    "os.fork",
    "os.posix_spawn",
    "os.system",
}


@cache
def _sources() -> dict[str, ast.Module]:
    files = [path for package in ("runner", "isolation") for path in (ROOT / package).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in files}


def _mentioning(*words: str) -> list[str]:
    """Return the files with any of these words: to look at every name of every file takes long."""
    return [path for path in _sources() if any(word in (ROOT / path).read_text() for word in words)]


@cache
def _names(path: str) -> frozenset[str]:
    """Name every imported module and every dotted name that is used."""
    names: set[str] = set()
    for node in ast.walk(_sources()[path]):
        match node:
            case ast.Import():
                names.update(alias.name for alias in node.names)
            case ast.ImportFrom():
                names.add(node.module or "")
            case ast.Attribute():
                names.add(_dotted(node))
            case _:
                pass
    return frozenset(names)


def _dotted(node: ast.expr) -> str:
    """Return a name with its dots; what is an attribute of something else begins with a dot."""
    match node:
        case ast.Attribute():
            return f"{_dotted(node.value)}.{node.attr}"
        case ast.Name():
            return node.id
        case _:
            return ""


def test_only_the_keeper_spawns() -> None:
    """Processes start in the keeper and behind the door to git, nowhere else."""
    words = {name.rpartition(".")[2] for name in SPAWNING}
    guilty = {path for path in _mentioning(*words) if _names(path) & SPAWNING}
    assert guilty <= SPAWNERS
    assert guilty, "the search itself must find the spawners"


def test_the_fork_server_loads_no_library() -> None:
    """It runs under `python -I -S`, so all that it may import is the standard library and our own code."""
    sources, seen, waiting = _sources(), set[str](), ["isolation/keeper/server.py"]
    while waiting:
        path = waiting.pop()
        seen.add(path)
        for node in ast.walk(sources[path]):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                found = module.replace(".", "/") + ".py"
                assert found in sources or module.partition(".")[0] in sys.stdlib_module_names, (path, module)
                waiting += [found] if found in sources and found not in seen else []
    assert len(seen) > 1, "the search itself must follow imports"


def test_only_the_door_knows_gitpython() -> None:
    """GitPython is imported in one place."""
    guilty = {
        path
        for path in _mentioning("import git", "from git")
        if any(name == "git" or name.startswith("git.") for name in _names(path))
    }
    assert guilty == GIT_DOORS


def test_data_become_objects_in_one_place() -> None:
    """What msgspec finds out of a class is found out by one thread at a time, or the process crashes."""
    words = {"convert", "decode", "Decoder"}
    guilty = set[str]()
    for path in _mentioning("msgspec"):
        for node in ast.walk(_sources()[path]):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msgspec"):
                guilty |= {path for alias in node.names if alias.name in words}
            if isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] in words:
                of_msgspec = {"msgspec", "msgpack", "json"} & set(_dotted(node.func).split("."))
                typed = any(word.arg == "type" for word in node.keywords) or "Decoder" in _dotted(node.func)
                is_known = any(
                    isinstance(each, ast.Call) and _dotted(each.func) == "known" for each in node.args
                )
                guilty |= {path} if of_msgspec and typed and not is_known else set()
    assert guilty == {"isolation/decoding.py"}


def test_only_the_command_line_prints() -> None:
    """Nothing but the command line writes to the user's streams."""
    guilty = {
        path
        for path in _mentioning("print", "stdout", "stderr")
        if {"sys.stdout.write", "sys.stderr.write"} & _names(path)
        or any(isinstance(node, ast.Name) and node.id == "print" for node in ast.walk(_sources()[path]))
    }
    assert all(path.startswith("runner/cli/") for path in guilty), guilty


def test_files_stay_small() -> None:
    """A file of more than 500 lines holds two things; tests are read by people, too."""
    for package in ("runner", "isolation", "tests"):
        for path in (ROOT / package).rglob("*.py"):
            assert len(path.read_text().splitlines()) <= 500, path


def test_rooms_stay_small() -> None:
    """A folder holds at most 12 modules, and the two packages show at most 16 entries."""
    for package in ("runner", "isolation"):
        for folder in [ROOT / package, *(path for path in (ROOT / package).rglob("*") if path.is_dir())]:
            assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= 12, folder
        assert len([path for path in (ROOT / package).iterdir() if path.name != "__pycache__"]) <= 16


def test_functions_stay_small() -> None:
    """A function of more than 60 lines has a seam to be found."""
    for path, tree in _sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{path}:{node.name}"


def test_every_room_says_what_may_live_there() -> None:
    """A newcomer finds a few lines in each room, and the code of a room is not in its `__init__.py`."""
    for package in ("runner", "isolation"):
        rooms = [path for path in (ROOT / package).iterdir() if path.is_dir() and path.name != "__pycache__"]
        assert rooms, "the search itself must find the rooms"
        for room in rooms:
            text = (room / "README.md").read_text()
            assert "**May live here:**" in text, room
            assert "**May not:**" in text, room
            assert len(text.splitlines()) <= 20, f"{room}: a few lines, not a page"
            for name in re.findall(r"`([\w/]+(?:/|\.py))`", text):
                assert (room / name).exists() or (room.parent / name).exists(), f"{room}: {name}"
    for path in [
        path for package in ("runner", "isolation") for path in (ROOT / package).rglob("__init__.py")
    ]:
        assert not path.read_text(), path


def test_nothing_strays_to_the_top_level() -> None:
    """Who opens the repository sees its parts, and nothing that was left lying there."""
    entries = {name.partition("/")[0] for name in git(ROOT, "ls-files", "-z").split("\0") if name}
    files = {".gitignore", ".pre-commit-config.yaml", "Makefile", "pyproject.toml", "requirements-dev.txt"}
    pages = {"CONTRIBUTING.md", "LICENSE", "README.md"}
    assert entries == {".ci", "docs", "examples", "isolation", "runner", "tests", *files, *pages}


def test_the_grep_hooks_pass() -> None:
    """The laws that a commit is searched for hold in what is committed; each hook searches something."""
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = [hook for hook in local["hooks"] if hook["language"] == "pygrep"]
    assert hooks
    files = [path for package in ("runner", "isolation") for path in (ROOT / package).rglob("*.py")]
    for hook in hooks:
        named = {path: path.relative_to(ROOT).as_posix() for path in files}
        searched = [path for path, name in named.items() if re.search(hook["files"], name)]
        assert searched, hook["id"]
        guilty = [path for path in searched if re.search(hook["entry"], path.read_text(), re.MULTILINE)]
        if "exclude" in hook:
            assert guilty, f"{hook['id']}: the search itself must find what it leaves out"
        assert [path for path in guilty if not re.search(hook.get("exclude", "^$"), named[path])] == [], hook[
            "id"
        ]


def test_the_guides_name_what_exists() -> None:
    """Every path in the guides is a file or a folder, so that a rename is not forgotten there."""
    for guide in GUIDES:
        named = re.findall(r"`((?:runner|isolation|tests|docs)/[^`\s]*)`", (ROOT / guide).read_text())
        assert named, guide
        for path in named:
            assert re.search("NAME|GROUP", path) or (ROOT / path).exists(), f"{guide}: {path}"


def test_the_walk_on_the_architecture_page_is_the_one_in_the_code() -> None:
    """Every method that the sketch of a story's walk names exists in the pipeline."""
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    walk = page.partition("## The walk of one story")[2].partition("## ")[0]
    defined = {
        node.name
        for node in ast.walk(ast.parse((ROOT / "runner/story/pipeline.py").read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    named = set(re.findall(r"(?<!\w)_[a-z]\w+", walk))
    assert len(named) > 5
    assert named <= defined


def test_the_architecture_page_has_the_contracts_layers() -> None:
    """The list of layers that people read is the one that is checked."""
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = [contract for contract in contracts if contract["type"] == "layers"]
    assert layered
    for contract in layered:
        written = "\n".join([*contract["containers"], *(f"  {layer}" for layer in contract["layers"])])
        assert written in page, written
        assert len(contract["layers"]) <= MOST_LAYERS, "more of them is a sorted list, not an order"
