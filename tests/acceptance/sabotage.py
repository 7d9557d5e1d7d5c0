"""Projects in which something holds the absolute path of the checkout, and a story that breaks the code.

In each of them a verify command that tests the checkout passes, whatever the story did. So each has two
stories: one breaks the code and must fail, one changes nothing that matters and must be done. The second
shows that the verify command works where it runs, so that the first does not fail for another reason.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.acceptance.people import Ground, Person, somebody
from tests.acceptance.program import Ran

Prepare = Callable[[Person, Path], None]
BROKEN, FINE = "broken", "fine"
NETWORK_LIMIT = 300.0
OWNED = {FINE: "notes/**", BROKEN: "src/**,lib/**,packages/**"}
MADE = ("build/**", "**/node_modules/**", "**/__pycache__/**")
"""In one shared tree: what each story owns, and what tools write, which belongs to none."""

PACKAGE = {"src/demo/__init__.py": "def answer():\n    return 42\n"}
"""In a folder of its own, so that the working directory alone does not lead Python to it."""

CHECK = {"tests/check.py": "import demo\n\nassert demo.answer() == 42\nprint('tested', demo.__file__)\n"}
BREAK = "echo 'raise SystemExit(1)' > src/demo/__init__.py"
_PROJECT = '[project]\nname = "demo"\nversion = "0.1"\ndescription = "x"\nrequires-python = ">=3.11"\n'
_SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One project: its files, what is prepared in the checkout, and its way out by its name in JSON."""

    way_out: str
    files: Mapping[str, str]
    prepare: Prepare
    sabotage: str = BREAK
    verify: str = "python tests/check.py"
    active: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    shared: Sequence[str] = ()
    needs: Sequence[str] = ()

    def require(self) -> None:
        """Skip what this machine lacks."""
        for program in self.needs:
            if shutil.which(program) is None:
                pytest.skip(f"this machine has no {program}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A project that a person has prepared, with both stories."""

    project: Project
    person: Person
    root: Path

    def run(self, *args: str, landlocks: int = 0) -> Ran:
        """Run the program as the project's owner would, from the shell in which it was prepared."""
        return replace(self.person, landlocks=landlocks).run(self.root, *args, "--json")

    def run_in_one_tree(self, ground: Ground) -> Ran:
        """Run both stories in the checkout itself, at one level of enforcement."""
        flags = [
            word for story, globs in OWNED.items() for word in ("--deconflict-paths", f"{story}={globs}")
        ]
        isolation = ("--bg-isolation", "none", "--enforce", str(ground.level))
        return self.run("run", *isolation, *flags, landlocks=ground.landlocks)

    def lies(self) -> bool:
        """Whether the verify command passes for broken code, in a worktree that is made by hand."""
        tree = self.person.folder / "by-hand"
        self.person.git(self.root, "worktree", "add", "-q", "--detach", str(tree))
        for name in self.project.shared:
            (tree / name).symlink_to(self.root / name)
        done = self.person.call("sh", "-c", f"{self.project.sabotage} && {self.project.verify}", cwd=tree)
        self.person.git(self.root, "worktree", "remove", "--force", str(tree))
        return done.returncode == 0


@contextmanager
def prepared(project: Project, user: str) -> Iterator[Scene]:
    """Prepare a project for somebody, where each level of the guard can be tried."""
    project.require()
    # Landlock is not used for a repository among the temporary files; one of its own tells so.
    with somebody(user, landlocks=1) as anybody:
        person = replace(anybody, landlocks=0)
        root = person.repository({**project.files, ".gitignore": "/.venv/\n/build/\n/node_modules/\n*.pyc\n"})
        project.prepare(person, root)
        settings = f"max-stories = 1\nmax-attempts = 1\nsymlink-directories = {json.dumps(project.shared)}\n"
        settings += f"shared-writable = {json.dumps(MADE)}\n"
        (root / "autopilot-multi.toml").write_text(settings)
        person.hand_over(root)
        # The code is broken after it was fine: a build that is shared must see the newer file.
        person.story(root, FINE, "mkdir -p notes && echo more > notes/more.txt", verify=[project.verify])
        person.story(root, BROKEN, project.sabotage, verify=[project.verify], depends_on=[FINE])
        person.git(root, "add", "-A")
        person.git(root, "commit", "-q", "-m", "stories")
        variables = {name: value.replace("{root}", str(root)) for name, value in project.environment.items()}
        if project.active:
            variables |= {
                "VIRTUAL_ENV": f"{root}/.venv",
                "PATH": f"{root}/.venv/bin{os.pathsep}{os.environ['PATH']}",
            }
        environment = {**person.environment, **variables}
        if "PYTHONPATH" in variables and "PYTHONPATH" in person.environment:
            environment["PYTHONPATH"] = f"{variables['PYTHONPATH']}:{person.environment['PYTHONPATH']}"
        yield Scene(project=project, person=replace(person, environment=environment), root=root)


def empty_environment(person: Person, root: Path) -> Path:
    """Make a virtual environment without anything in it; return its folder of packages."""
    done = replace(person, uid=None).call(person.python, "-m", "venv", "--without-pip", ".venv", cwd=root)
    assert done.returncode == 0, done.stderr
    return root / ".venv" / _SITE


def written(files: Mapping[str, str]) -> Prepare:
    """Return a preparation that writes files into an environment, with the checkout's path for `{root}`."""

    def prepare(person: Person, root: Path) -> None:
        site = empty_environment(person, root)
        for name, text in files.items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_text(text.replace("{root}", str(root)))

    return prepare


def installed(*argv: str) -> Prepare:
    """Return a preparation that makes an environment and has a real tool install the project into it.

    `{uv}` is the program uv, `{python}` the interpreter of the person.
    """

    def prepare(person: Person, root: Path) -> None:
        caller = replace(person, uid=None, environment={})
        made = caller.call(person.python, "-m", "venv", ".venv", cwd=root)
        assert made.returncode == 0, made.stderr
        words = [uv() if word == "{uv}" else word.replace("{python}", person.python) for word in argv]
        done = caller.call(*words, cwd=root, limit=NETWORK_LIMIT)
        if done.returncode != 0:
            pytest.skip(f"{argv[0]} cannot install here: {done.stderr[-300:]}")

    return prepare


def uv() -> str:
    """Return the program uv: that of the tests' environment, or of this machine."""
    found = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip("uv is not installed")
    return found


def ran(*argv: str) -> Prepare:
    """Return a preparation that runs one program in the checkout, as its owner."""

    def prepare(person: Person, root: Path) -> None:
        done = person.call(*argv, cwd=root, limit=NETWORK_LIMIT)
        assert done.returncode == 0, done.stderr

    return prepare


def _python(backend: str, requires: str, more: str = "") -> dict[str, str]:
    build = f'[build-system]\nrequires = ["{requires}"]\nbuild-backend = "{backend}"\n'
    return {**PACKAGE, **CHECK, "pyproject.toml": build + _PROJECT + more}


_FINDER = """import sys
from importlib.util import spec_from_file_location

MAPPING: dict[str, str] = {'demo': '{root}/src/demo'}


class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return spec_from_file_location(fullname, f"{MAPPING[fullname]}/__init__.py")
        return None


def install():
    sys.meta_path.append(_EditableFinder)
"""
_CONFIGURE = """mkdir -p build && cat > build/Makefile <<END
check: app
	./app
app: $PWD/lib/code.sh
	cp $PWD/lib/code.sh app && chmod +x app
END
make -C build check
"""

SAMPLE = {
    "setuptools": Project(
        way_out="editable-install",
        files=_python("setuptools.build_meta", "setuptools"),
        active=True,
        prepare=written({"__editable__.demo-0.1.pth": "{root}/src"}),
    ),
    "a finder of setuptools": Project(
        way_out="editable-install",
        files=_python("setuptools.build_meta", "setuptools"),
        active=True,
        prepare=written(
            {
                "__editable__.demo-0.1.pth": "import __editable___demo_0_1_finder; "
                "__editable___demo_0_1_finder.install()",
                "__editable___demo_0_1_finder.py": _FINDER,
            }
        ),
    ),
    "a linked environment": Project(
        way_out="editable-install",
        files=_python("hatchling.build", "hatchling"),
        shared=[".venv"],
        verify=".venv/bin/python tests/check.py",
        prepare=written({"_editable_impl_demo.pth": "{root}/src"}),
    ),
    "PYTHONPATH": Project(
        way_out="variable",
        files={**PACKAGE, **CHECK},
        environment={"PYTHONPATH": "{root}/src"},
        verify="python3 tests/check.py",
        prepare=lambda _person, _root: None,
    ),
    "an entry of sys.path": Project(
        way_out="python-path",
        files={**PACKAGE, **CHECK},
        active=True,
        prepare=written({"mine.pth": "{root}/src\n"}),
    ),
    "a build folder of Make": Project(
        way_out="build-folder",
        files={"lib/code.sh": "#!/bin/sh\nexit 0\n", "configure": _CONFIGURE},
        sabotage="echo exit 1 > lib/code.sh",
        shared=["build"],
        verify="make -C build check",
        prepare=ran("sh", "./configure"),
        needs=["make"],
    ),
}
"""What needs nothing but Python and make: files exactly as the tools write them."""

_EDITABLE = (".venv/bin/python", "-m", "pip", "install", "-q", "-e", ".")
_CMAKE = "cmake_minimum_required(VERSION 3.10)\nproject(demo C)\nadd_executable(app lib/main.c)\n"
_WORKSPACE = '{"name": "root", "version": "1.0.0", "private": true, "workspaces": ["packages/*"]}\n'

REAL = {
    "pip with setuptools": Project(
        way_out="editable-install",
        files=_python("setuptools.build_meta", "setuptools"),
        active=True,
        prepare=installed(*_EDITABLE),
    ),
    "pip with setuptools, by a finder": Project(
        way_out="editable-install",
        files=_python(
            "setuptools.build_meta",
            "setuptools",
            '[tool.setuptools]\npackages = ["demo"]\npackage-dir = {"demo" = "src/demo"}\n',
        ),
        active=True,
        prepare=installed(*_EDITABLE),
    ),
    "pip with hatchling": Project(
        way_out="editable-install",
        files=_python("hatchling.build", "hatchling"),
        active=True,
        prepare=installed(*_EDITABLE),
    ),
    "uv pip install -e": Project(
        way_out="editable-install",
        files=_python("hatchling.build", "hatchling"),
        active=True,
        prepare=installed("{uv}", "pip", "install", "-q", "--python", ".venv/bin/python", "-e", "."),
    ),
    "uv sync": Project(
        way_out="editable-install",
        files=_python("setuptools.build_meta", "setuptools"),
        active=True,
        prepare=installed("{uv}", "sync", "-q", "--no-managed-python", "--python", "{python}"),
    ),
    "pip, and the environment linked": Project(
        way_out="editable-install",
        files=_python("setuptools.build_meta", "setuptools"),
        shared=[".venv"],
        verify=".venv/bin/python tests/check.py",
        prepare=installed(*_EDITABLE),
    ),
    "npm workspaces": Project(
        way_out="link",
        files={
            "package.json": _WORKSPACE,
            "packages/lib/package.json": '{"name": "@demo/lib", "version": "1.0.0", "main": "index.js"}\n',
            "packages/lib/index.js": "exports.answer = () => 42;\n",
            "packages/app/package.json": '{"name": "app", "version": "1.0.0", '
            '"dependencies": {"@demo/lib": "1.0.0"}}\n',
            "packages/app/check.js": "if (require('@demo/lib').answer() !== 42) process.exit(1);\n",
        },
        sabotage="echo 'process.exit(1);' > packages/lib/index.js",
        shared=["node_modules"],
        verify="node packages/app/check.js",
        prepare=ran("npm", "install", "--offline", "--no-audit", "--no-fund", "--silent"),
        needs=["node", "npm"],
    ),
    "a build folder of CMake": Project(
        way_out="build-folder",
        files={"CMakeLists.txt": _CMAKE, "lib/main.c": "int main(void) { return 0; }\n"},
        sabotage="echo 'int main(void) { return 1; }' > lib/main.c",
        shared=["build"],
        verify="cmake --build build && build/app",
        prepare=ran("sh", "-c", "cmake -S . -B build && cmake --build build && build/app"),
        needs=["cmake", "cc"],
    ),
}
"""The same by the real tools, from their registries where they need one."""
