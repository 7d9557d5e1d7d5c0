"""The program starts wherever it is called: beside foreign modules that have the names of its own."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, write_story

ROOT = Path(__file__).parents[2]
FOREIGN = ("runner.py", "isolation/__init__.py", "trio.py", "rich/__init__.py", "pydantic.py", "msgspec.py")
"""The names of both packages, and of some that the program depends on."""


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the program by pip into an environment of its own, and return the folder of its programs."""
    pytest.importorskip("hatchling", reason="a wheel is built by hatchling")
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder / "venv", symlinks=True)
    programs = folder / "venv" / "bin"
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # What the program depends on comes from the environment of the tests: no network is needed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    what = ["-e", str(ROOT)]
    if request.param == "wheel":
        _call([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], ROOT)
        what = [str(path) for path in folder.glob("*.whl")]
    options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", *options]
    _call([*pip, *what], folder)
    return programs


def _call(argv: list[str], cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        argv, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def test_foreign_modules_of_the_same_names_hide_nothing(installed: Path, repo: Path) -> None:
    """With foreign modules in the current folder and in PYTHONPATH, a whole run ends verified."""
    for name in FOREIGN:
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("raise SystemExit('a foreign module was loaded')\n")
    write_story(
        repo,
        "a",
        command='autopilot-multi --version > a.txt && echo "$PYTHONPATH" >> a.txt && autopilot-multi status',
        verify=["test -s a.txt"],
    )
    commit_stories(repo)
    path = f".{os.pathsep}{repo}"
    environment = {"PYTHONPATH": path, "PATH": f"{installed}:{os.environ['PATH']}"}
    assert "usage:" in _call(["autopilot-multi", "--help"], repo, **environment)
    assert "a" in _call(["autopilot-multi", "plan"], repo, **environment)
    assert "usage:" in _call([str(installed / "python"), "-m", "autopilot_multi", "--help"], repo)
    _call(["autopilot-multi"], repo, **environment)
    seen = _call(["git", "show", "autopilot/a:a.txt"], repo).splitlines()
    assert seen[0].startswith("autopilot-multi ")
    assert seen[1] == path, "a session's own PYTHONPATH is the user's"


def test_a_checkout_starts_beside_foreign_modules(repo: Path) -> None:
    """`python -m runner` in a checkout needs no install, whatever PYTHONPATH holds."""
    for name in FOREIGN:
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("raise SystemExit('a foreign module was loaded')\n")
    command = [sys.executable, "-m", "runner", "-C", str(repo), "config"]
    assert "max-stories" in _call(command, ROOT, PYTHONPATH=str(repo))
