"""Python environments that commands would use, and what in them leads into the checkout.

Environments are read, never started: to start one would run what its `.pth` files say.
"""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from isolation.patterns import pattern
from runner.plan.ways_out.checkout import Checkout, entries_of, head_of, is_environment
from runner.plan.ways_out.way_out import Kind, WayOut

_USUAL = ("python", "python3", "pytest")
_WORD = pattern(r"[^\s'\"`;&|()<>]+")
_SITES = ("site-packages", "dist-packages")
_HOMES = ("lib", "lib64", "local/lib", "Lib")
_CUSTOM = {"sitecustomize.py", "usercustomize.py"}
_SHORT = 1 << 16
_MOST_WORDS = 200


class Environment(Struct, frozen=True, kw_only=True):
    """A folder with Python's packages, and how commands get there. `version` is empty if it has only one."""

    prefix: Path
    origin: str
    version: str = ""


def environments(
    commands: Iterable[str], environ: Mapping[str, str], shared: Iterable[Path], top: Path
) -> Iterator[Environment]:
    """Yield the environments that commands in a worktree would use, each once."""
    seen: set[tuple[Path, str]] = set()
    for found in _candidates(commands, environ, shared, top):
        key = (found.prefix.resolve(), found.version)
        if key not in seen:
            seen.add(key)
            yield found


def installs(environment: Environment, environ: Mapping[str, str], checkout: Checkout) -> Iterator[WayOut]:
    """Yield what in an environment leads into the checkout."""
    for site in _site_folders(environment, environ):
        yield from _in_site(site, environment.origin, checkout)


def _candidates(
    commands: Iterable[str], environ: Mapping[str, str], shared: Iterable[Path], top: Path
) -> Iterator[Environment]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if prefix := environ.get(variable):
            yield Environment(prefix=Path(prefix), origin=f"the active environment, {variable}")
    for folder in shared:
        if is_environment(folder):
            yield Environment(prefix=folder, origin="linked by symlink-directories")
    words = [word for command in commands for word in _WORD.findall(command)][:_MOST_WORDS]
    for word in dict.fromkeys((*_USUAL, *words)):
        program = shutil.which(word, path=environ.get("PATH")) if "/" not in word else word
        if program and program.startswith("/"):
            yield from _of_program(Path(program), f"`{word}`" if "/" in word else f"`{word}` on PATH", top)


def _of_program(program: Path, origin: str, top: Path) -> Iterator[Environment]:
    """Yield the environment of an interpreter, or of the one that a script names in its first line."""
    if not program.name.startswith(("python", "pypy")):
        first = head_of(program, 256).partition(b"\n")[0].decode(errors="replace")
        interpreter = first.removeprefix("#!").strip().split(" ")[0]
        if not first.startswith("#!/") or "python" not in Path(interpreter).name:
            return
        program = Path(interpreter)
    if not program.exists():
        return
    for folder in (program.parent, program.parent.parent):
        if is_environment(folder):
            yield Environment(prefix=folder, origin=origin)
            return
    if program.parent.name == "shims":  # pyenv chooses the interpreter by a file
        for version in _pyenv_versions(program.parent.parent, top):
            yield Environment(prefix=program.parent.parent / "versions" / version, origin=origin)
        return
    real = program.resolve()
    numbered = re.search(r"(\d\.\d+)$", real.name)
    yield Environment(prefix=real.parent.parent, origin=origin, version=numbered[1] if numbered else "")


def _pyenv_versions(root: Path, top: Path) -> list[str]:
    places = [folder / ".python-version" for folder in (top, *top.parents)]
    for place in (*places, root / "version"):
        if versions := head_of(place, _SHORT).decode(errors="replace").split():
            return [version for version in versions if "/" not in version]
    return []


def _site_folders(environment: Environment, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders from which an environment's Python reads `.pth` files, each once."""
    prefixes = [(environment.prefix, environment.version)]
    config = head_of(environment.prefix / "pyvenv.cfg", _SHORT).decode(errors="replace")
    values: dict[str, str] = dict(re.findall(r"^\s*([\w-]+)\s*=\s*(.*?)\s*$", config, re.MULTILINE))
    system = not config or values.get("include-system-site-packages", "").lower() == "true"
    exact = values.get("version") or values.get("version_info") or environment.version
    version = ".".join(exact.split(".")[:2])
    if config and system and "home" in values:
        prefixes.append((Path(values["home"]).parent, version))
    if system and not environ.get("PYTHONNOUSERSITE"):
        home = environ.get("PYTHONUSERBASE") or str(Path(environ.get("HOME") or "~").expanduser() / ".local")
        prefixes.append((Path(home), version))
    seen: set[Path] = set()
    for prefix, wanted in prefixes:
        for home in _HOMES:
            for site in _sites_in(prefix / home, wanted):
                if (real := site.resolve()) not in seen:
                    seen.add(real)
                    yield site


def _sites_in(folder: Path, version: str) -> Iterator[Path]:
    places = [folder]
    for entry in entries_of(folder, 5000):
        numbered = re.fullmatch(r"(?:python|pypy)(\d(?:\.\d+)?)t?", entry.name)
        if numbered and (not version or numbered[1] in {version, version.partition(".")[0]}):
            places.append(folder / entry.name)
    for place in places:
        yield from (place / name for name in _SITES if (place / name).is_dir())


def _in_site(site: Path, origin: str, checkout: Checkout) -> Iterator[WayOut]:
    entries = entries_of(site)
    found: list[WayOut] = []
    for entry in entries:
        path = site / entry.name
        for kind, target in _leading_out(path, entry.is_symlink(), checkout):
            found.append(WayOut(kind=kind, where=str(path), leads_to=target, origin=origin))
    yield from found
    # Most editable installs leave two traces; the record of one that was named already says nothing new.
    known = [way.leads_to for way in found]
    for entry in entries:
        if entry.name.endswith(".dist-info"):
            record = site / entry.name / "direct_url.json"
            editable, named = _recorded(record, checkout)
            if named is not None and not any(each.is_relative_to(named) for each in known):
                kind = Kind.EDITABLE if editable else Kind.INSTALLED
                # Which of the two Python imports depends on the working folder and on the test tool.
                yield WayOut(kind=kind, where=str(record), leads_to=named, origin=origin, certain=editable)


def _leading_out(path: Path, is_link: bool, checkout: Checkout) -> Iterator[tuple[Kind, Path]]:  # noqa: FBT001  a fact about the path
    """Yield where one entry of a folder of packages leads, if that is in the checkout."""
    if is_link:
        if target := checkout.contains(path):
            yield Kind.EDITABLE, target
    elif path.suffix == ".pth":
        for target in _in_pth(path, checkout):
            yield Kind.EDITABLE if _is_editable(path) else Kind.PYTHON_PATH, target
    elif path.suffix == ".egg-link":
        line = head_of(path, _SHORT).partition(b"\n")[0].decode(errors="surrogateescape").strip()
        if line and (target := checkout.contains(path.parent / line)):
            yield Kind.EDITABLE, target
    elif path.name in _CUSTOM and (target := checkout.named_in(head_of(path))):
        yield Kind.PYTHON_PATH, target


def _is_editable(path: Path) -> bool:
    """Whether an installer wrote a `.pth` file: its name says so, or a record lists it."""
    if "editable" in path.name or path.name == "easy-install.pth":
        return True
    name = path.stem.lower().lstrip("_").replace("-", "_")
    beside = (entry.name for entry in entries_of(path.parent) if entry.name.endswith(".dist-info"))
    return any(each.lower().replace("-", "_").startswith(f"{name}_") for each in beside)


def _in_pth(path: Path, checkout: Checkout) -> Iterator[Path]:
    """Yield where a `.pth` file leads: by a path on a line, or by code that it runs."""
    for raw in head_of(path).splitlines():
        line = raw.decode(errors="surrogateescape").rstrip()
        if line.startswith(("import ", "import\t")):
            texts = [raw, *(head_of(path.with_name(f"{name}.py")) for name in set(re.findall(r"\w+", line)))]
            found = next((target for text in texts if (target := checkout.named_in(text))), None)
        else:
            found = checkout.contains(path.parent / line) if line and not line.startswith("#") else None
        if found:
            yield found


def _recorded(record: Path, checkout: Checkout) -> tuple[bool, Path | None]:
    """Return whether an installer's record is of an editable install, and where that is in the checkout."""
    try:
        document = json.loads(head_of(record, _SHORT) or b"{}")
        url, editable = urlsplit(document["url"]), bool(document["dir_info"].get("editable"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False, None
    return editable, checkout.contains(Path(unquote(url.path))) if url.scheme == "file" else None
