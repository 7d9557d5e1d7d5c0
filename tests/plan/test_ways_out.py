"""The search for ways out: what each tool really leaves on a disk is found, and what leads nowhere is not."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from isolation.git.repository import Repository
from runner.core.errors import RunnerError
from runner.core.model import Story, StoryId
from runner.core.settings import Settings
from runner.core.work_settings import HookSettings
from runner.plan.shared_tree import require_enforcement
from runner.plan.ways_out.search import find_ways_out
from runner.plan.ways_out.way_out import WayOut
from tests.conftest import git

FINDER = """import sys
MAPPING: dict[str, str] = {{'demo': '{checkout}/demo'}}
NAMESPACES: dict[str, list[str]] = {{}}
"""


def files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files with what they hold."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def environment(folder: Path) -> Path:
    """Make the skeleton of a virtual environment; return its folder of packages."""
    site = folder / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    files(folder, {"pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.7\n"})
    (folder / "lib64").symlink_to("lib")
    return site


def find(repo: Path, environ: Mapping[str, str] | None = None, **settings: Any) -> tuple[WayOut, ...]:
    """Search as a run would, with an environment of the test's own."""
    return find_ways_out(
        Repository.open(repo),
        Settings(**settings),
        repo.parent / f"{repo.name}.worktrees",
        environ={"PATH": "/nowhere", "HOME": str(repo.parent / "home"), **(environ or {})},
    )


def kinds(found: tuple[WayOut, ...]) -> list[str]:
    """Return the kinds of what was found, those that are not certain with a question mark."""
    return [way.kind.key + ("" if way.certain else "?") for way in found]


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ({"__editable__.demo-0.1.pth": "{checkout}/src"}, "editable-install"),
        (
            {
                "__editable__.demo-0.1.pth": "import __editable___demo_0_1_finder; "
                "__editable___demo_0_1_finder.install()",
                "__editable___demo_0_1_finder.py": FINDER,
            },
            "editable-install",
        ),
        ({"_editable_impl_demo.pth": "{checkout}/src"}, "editable-install"),
        ({"demo.pth": "{checkout}/src", "demo-0.1.dist-info/RECORD": ""}, "editable-install"),
        ({"easy-install.pth": "# old\n{checkout}\n"}, "editable-install"),
        ({"demo.egg-link": "{checkout}/src\n../\n"}, "editable-install"),
        ({"mine.pth": "{checkout}/src\n"}, "python-path"),
        ({"mine.pth": "import sys; sys.path.insert(0, '{checkout}/src')\n"}, "python-path"),
        ({"sitecustomize.py": "import sys\nsys.path.insert(0, '{checkout}')\n"}, "python-path"),
    ],
    ids=["setuptools", "finder", "hatchling", "uv", "develop", "egg-link", "pth", "code", "customize"],
)
def test_what_installers_leave_is_found(repo: Path, written: dict[str, str], kind: str) -> None:
    """The active environment leads into the checkout by a file that a real tool writes in this way."""
    site = environment(repo / ".venv")
    files(
        site,
        {name: text.replace("{checkout}", str(repo)).replace("{{", "{") for name, text in written.items()},
    )
    (found,) = find(repo, {"VIRTUAL_ENV": str(repo / ".venv")})
    assert (found.kind.key, found.certain) == (kind, True)
    assert found.where in {str(site / name) for name in written}
    assert found.leads_to.is_relative_to(repo)
    assert "VIRTUAL_ENV" in found.line


def test_a_record_of_an_editable_install_is_found_once(repo: Path) -> None:
    """The installer's record counts alone, and adds nothing to the file that it goes with."""
    site = environment(repo / ".venv")
    record = {"url": f"file://{repo}", "dir_info": {"editable": True}}
    files(site, {"demo-0.1.dist-info/direct_url.json": json.dumps(record)})
    active = {"VIRTUAL_ENV": str(repo / ".venv")}
    (found,) = find(repo, active)
    assert found.where.endswith("direct_url.json")
    plain = json.dumps({"url": f"file://{repo}", "dir_info": {}})
    files(site, {"demo-0.1.dist-info/direct_url.json": plain})
    assert kinds(find(repo, active)) == ["installed-copy?"]
    files(site, {"__editable__.demo-0.1.pth": f"{repo}/src"})
    (found,) = find(repo, active)
    assert found.where.endswith(".pth")


@pytest.mark.parametrize("how", ["on PATH", "script", "linked", "command", "system", "user"])
def test_every_environment_that_commands_use_is_read(repo: Path, tmp_path: Path, how: str) -> None:
    """Whether it is active, found by a program's name, linked, named, or the system's own."""
    prefix = repo / ".venv" if how == "linked" else tmp_path / "env"
    if how in {"system", "user"}:
        home = tmp_path / "home" / ".local" if how == "user" else prefix
        site = home / "lib" / "python3.11" / "site-packages"
        site.mkdir(parents=True)
        files(home / "lib" / "python3.9" / "site-packages", {"other.pth": str(repo)})
    else:
        site = environment(prefix)
    files(site, {"demo.pth": str(repo)})
    python = "python3.11" if how in {"system", "user"} else "python"
    files(prefix / "bin", {python: "", "check": f"#!{prefix}/bin/{python}\n"})
    (prefix / "bin" / "python3").symlink_to(python)
    for program in (prefix / "bin").iterdir():
        program.chmod(0o755)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "check").symlink_to(prefix / "bin" / "check")
    path = {"PATH": str(prefix / "bin")} if how in {"on PATH", "system", "user"} else {"PATH": str(tools)}
    commands = {"script": "cd . && check -q", "command": f"{prefix}/bin/python -m demo"}
    shared = (".venv",) if how == "linked" else ()
    (found,) = find(repo, path, verify=(commands.get(how, "true"),), symlink_directories=shared)
    assert found.where == str(site / "demo.pth")


def test_links_of_npm_workspaces_are_found(repo: Path) -> None:
    """Shared packages that are links into the checkout are named; those of a package store are not."""
    modules = repo / "node_modules"
    files(repo, {"packages/a/index.js": "", "packages/b/index.js": "", "libs/c/index.js": ""})
    files(modules, {"plain/index.js": "", ".pnpm/d/index.js": "", "@mine/x/index.js": "", ".bin/x": ""})
    (modules / "d").symlink_to(".pnpm/d")
    assert find(repo, symlink_directories=("node_modules",)) == ()
    (modules / "a").symlink_to("../packages/a")
    (found,) = find(repo, symlink_directories=("node_modules",))
    assert (found.kind.key, found.where) == ("link", f"{modules}/a")
    for name, target in {"@mine/b": "../../packages/b", "c": "../libs/c"}.items():
        (modules / name).symlink_to(target)
    (found,) = find(repo, symlink_directories=("node_modules",))
    assert found.where == f"{modules}: @mine/b, a, c"
    assert find(repo) == ()  # not shared, so worktrees do not have it


def test_a_build_folder_of_the_checkout_is_found(repo: Path) -> None:
    """What CMake and Make write names the sources that it was made for; a link and a copy both count."""
    files(repo, {".git/info/exclude": "/build*/\n", "main.c": ""})
    files(repo / "build" / "debug", {"CMakeCache.txt": f"CMAKE_HOME_DIRECTORY:INTERNAL={repo}\n"})
    files(repo / "build-make", {"Makefile": f"app: {repo}/main.c\n", "notes.txt": str(repo)})
    assert find(repo) == ()
    found = find(repo, symlink_directories=("build", "build-make"))
    assert kinds(found) == ["build-folder", "build-folder"]
    assert [Path(way.where).name for way in found] == ["CMakeCache.txt", "Makefile"]
    files(repo, {".worktreeinclude": "/build-make/\n"})
    found = find(repo)
    assert kinds(found) == ["build-folder", "copied-file?"]
    files(repo / "build-make", {"Makefile": f"app: {repo}/build-make/main.o\n", "notes.txt": ""})
    assert find(repo, symlink_directories=("build-make",)) == ()


def test_variables_that_name_the_checkout_are_found(repo: Path) -> None:
    """A search path is certain, another variable is not, and one that a command uses is."""
    assert kinds(find(repo, {"PYTHONPATH": f"src:{repo}/src"})) == ["variable"]
    assert kinds(find(repo, {"NODE_PATH": f"{repo}"})) == ["variable"]
    assert kinds(find(repo, {"GOFLAGS": f"-modfile={repo}/go.mod"})) == ["variable"]
    assert kinds(find(repo, {"PROJECT": str(repo), "PATH": f"{repo}/bin:/bin"})) == ["variable?"]
    assert kinds(find(repo, {"PROJECT": str(repo)}, verify=("cd $PROJECT && make",))) == ["variable"]
    harmless = {
        "PYTHONPATH": f"src:{repo}.worktrees/a:{repo}-old/src",
        "PWD": str(repo),
        "GITHUB_WORKSPACE": str(repo),
        "PATH": f"{repo}/node_modules/.bin",
    }
    assert find(repo, harmless) == ()


def test_a_path_through_a_link_is_the_checkout_too(repo: Path, tmp_path: Path) -> None:
    """Users who work under another spelling of the path have that one in their variables."""
    (tmp_path / "alias").symlink_to(repo)
    assert kinds(find(repo, {"PYTHONPATH": f"{tmp_path}/alias/src"})) == ["variable"]
    named = {"NODE_OPTIONS": f"--require={tmp_path}/alias/setup.js"}
    assert kinds(find(repo, {**named, "PWD": f"{tmp_path}/alias"})) == ["variable"]


def test_commands_and_project_files_with_the_path_are_found(repo: Path) -> None:
    """A committed file counts, one that no worktree has does not."""
    found = find(
        repo, verify=(f"make -C {repo} test",), hooks=HookSettings(after_create=f"ln -s {repo}/data data")
    )
    assert kinds(found) == ["command", "command"]
    files(repo, {"pyproject.toml": f'[tool.pytest.ini_options]\npythonpath = ["{repo}/src"]\n'})
    assert find(repo) == ()
    git(repo, "add", "pyproject.toml")
    assert kinds(find(repo)) == ["project-file"]


def test_what_tools_find_above_the_worktrees_is_found(repo: Path, tmp_path: Path) -> None:
    """Go and Node look for workspaces and packages in all folders above."""
    files(tmp_path, {"go.work": f"go 1.22\n\nuse (\n\t./other\n\t./{repo.name}\n)\n"})
    assert kinds(find(repo)) == ["go-workspace"]
    assert find(repo, {"GOWORK": "off"}) == ()
    (tmp_path / "go.work").unlink()
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "mine").symlink_to(repo)
    assert kinds(find(repo)) == ["link"]


def test_what_no_story_could_change_does_not_count(repo: Path) -> None:
    """Packages in the environment, another repository inside, and ignored folders are no story's files."""
    site = environment(repo / ".venv")
    files(
        repo, {"nested/.git/HEAD": "", "nested/src/x.py": "", ".git/info/exclude": "/out/\n", "out/x.py": ""}
    )
    lines = ("", "# comment", f"{repo}/.venv/src/cloned", f"{repo}/nested/src", "../../../../../gone/..x")
    files(site, {"some.pth": "\n".join(lines), "distutils-precedence.pth": "import os; var = 'SETUPTOOLS'"})
    active = {"VIRTUAL_ENV": str(repo / ".venv")}
    assert find(repo, active) == ()
    files(site, {"some.pth": f"{repo}/out"})
    assert kinds(find(repo, active)) == ["python-path?"]


def test_files_that_cannot_be_read_stop_nothing(repo: Path) -> None:
    """Damaged or odd files in an environment are passed over."""
    site = environment(repo / ".venv")
    (site / "bytes.pth").write_bytes(b"\xff\xfe\0/nowhere\n\x00")
    (site / "gone.pth").symlink_to("nowhere")
    (site / "folder.pth").mkdir()
    os.mkfifo(site / "pipe.pth")
    for number, text in enumerate(("{", "[]", '{"url": 3, "dir_info": {"editable": true}}')):
        files(site, {f"demo-{number}.dist-info/direct_url.json": text})
    assert find(repo, {"VIRTUAL_ENV": str(repo / ".venv")}) == ()


def test_the_setting_decides(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused by default; warned of on demand, and where nothing is verified; never silent."""
    monkeypatch.setenv("PYTHONPATH", str(repo))
    root, repository = repo.parent / "trees", Repository.open(repo)

    def told(how: str, *verify: str) -> str:
        settings = Settings(guard=False, ways_out=how, verify=verify)
        stories = [Story(id=StoryId("a"), title="a", prompt="")]
        return "\n".join(require_enforcement(repository, settings, root, stories).warnings)

    with pytest.raises(RunnerError, match="PYTHONPATH: an environment variable") as refused:
        told("refuse", "true")
    assert "--ways-out warn" in refused.value.hint
    assert "PYTHONPATH: an environment variable that names the checkout" in told("warn", "true")
    assert "PYTHONPATH" in told("refuse")
    assert "PYTHONPATH" not in told("ignore", "true")
    assert "does not look for such ways out" in told("ignore", "true")
