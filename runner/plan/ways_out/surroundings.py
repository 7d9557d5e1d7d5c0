"""What around a command leads into the checkout: variables, the command itself, project files, workspaces."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from isolation.patterns import pattern
from runner.plan.ways_out.checkout import Checkout, head_of
from runner.plan.ways_out.folders import shared_links
from runner.plan.ways_out.way_out import Kind, WayOut

_SEARCHED = frozenset(
    {
        *("PYTHONPATH", "MYPYPATH", "PYTHONHOME", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"),
        *("NODE_PATH", "NODE_OPTIONS", "PERL5LIB", "RUBYLIB", "RUBYOPT", "BUNDLE_GEMFILE", "CLASSPATH"),
        *("GOFLAGS", "GOWORK", "GOPATH", "LUA_PATH", "LUA_CPATH", "JULIA_LOAD_PATH", "JULIA_PROJECT"),
        *("MAKEFLAGS", "MAKEFILES", "VPATH", "CPATH", "LIBRARY_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"),
        *("DYLD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "CMAKE_MODULE_PATH"),
    }
)
"""Variables by which languages and build tools find files, whatever the command says."""

_HARMLESS = pattern(
    r"PWD|OLDPWD|INIT_CWD|_|HOME|SHELL|TMPDIR|TMP|TEMP|VIRTUAL_ENV\w*|CONDA_\w+|AUTOPILOT\w*|GIT_\w+"
    r"|DIRENV_\w+|VSCODE_\w+|npm_\w+|GITHUB_\w+|RUNNER_\w+|CI_\w+|XDG_\w+|TERM\w*|TMUX\w*|SSH_\w+|HIST\w+"
    r"|CLAUDE\w*|CODEX\w*|CURSOR\w*|PYENV_\w+|PYTEST_CURRENT_TEST|UV_\w+"
)
"""Variables that say where somebody is or what is active; no tool looks for a story's files by them."""

_PROJECT_FILES = (
    *("pyproject.toml", "setup.cfg", "setup.py", "pytest.ini", "tox.ini", "noxfile.py", "conftest.py"),
    *(
        "requirements.txt",
        "requirements-dev.txt",
        "package.json",
        ".npmrc",
        "tsconfig.json",
        "jest.config.js",
    ),
    *("Cargo.toml", ".cargo/config.toml", "go.mod", "go.work", "Makefile", "GNUmakefile", "makefile"),
    *("justfile", "Justfile", "CMakeLists.txt", "CMakePresets.json", "CMakeUserPresets.json", "Gemfile"),
    *("composer.json", "build.gradle", "settings.gradle", "pom.xml", ".env", ".envrc", ".mise.toml"),
)
_WORKSPACE_PATH = pattern(rb"(?:^|\s)(\.{0,2}/[^\s()]+|\.{1,2})(?=\s|$|\))")


def variables(environ: Mapping[str, str], commands: Iterable[str], checkout: Checkout) -> Iterator[WayOut]:
    """Yield the environment variables that name the checkout; those that no tool searches by, as one."""
    used = {name for command in commands for name in re.findall(r"\$\{?(\w+)", command)}
    unclear: list[tuple[str, Path]] = []
    for name, value in sorted(environ.items()):
        target = _in_value(name, value, checkout)
        if target is None:
            continue
        if name in _SEARCHED or name in used - {"PWD"}:
            yield WayOut(kind=Kind.VARIABLE, where=name, leads_to=target)
        elif not _HARMLESS.fullmatch(name):
            unclear.append((name, target))
    if unclear:
        names = ", ".join(name for name, _ in unclear)
        yield WayOut(kind=Kind.VARIABLE, where=names, leads_to=unclear[0][1], certain=False)


def named_commands(commands: Mapping[str, str], checkout: Checkout) -> Iterator[WayOut]:
    """Yield the commands that name the checkout; the keys say whose they are."""
    for whose, command in commands.items():
        if target := checkout.named_in(os.fsencode(command)):
            yield WayOut(kind=Kind.COMMAND, where=f"{whose} `{command}`", leads_to=target)


def project_files(top: Path, checkout: Checkout) -> Iterator[WayOut]:
    """Yield the project files at the top that name the checkout; worktrees have the same files."""
    for name in _PROJECT_FILES:
        if target := checkout.named_in(head_of(top / name, 1 << 18)):
            yield WayOut(kind=Kind.PROJECT_FILE, where=str(top / name), leads_to=target)


def around(root: Path, environ: Mapping[str, str], checkout: Checkout) -> Iterator[WayOut]:
    """Yield what tools find in the folders above the worktrees and that leads into the checkout."""
    for folder in (root, *root.parents):
        yield from shared_links(folder / "node_modules", "found from every worktree", checkout)
    if environ.get("GOWORK") == "off":
        return
    nearest = next((folder / "go.work" for folder in root.parents if (folder / "go.work").is_file()), None)
    if nearest is not None:
        for match in _WORKSPACE_PATH.finditer(head_of(nearest)):
            if target := checkout.contains(nearest.parent / os.fsdecode(match[1])):
                yield WayOut(kind=Kind.WORKSPACE, where=str(nearest), leads_to=target)
                return


def _in_value(name: str, value: str, checkout: Checkout) -> Path | None:
    """Return the path of the checkout that a variable names; entries of a list may be spelled in any way."""
    if name == "PATH" or name in _SEARCHED:
        for entry in value.split(os.pathsep):
            if entry.startswith("/") and (target := checkout.contains(Path(entry))):
                return target
    return checkout.named_in(os.fsencode(value))
