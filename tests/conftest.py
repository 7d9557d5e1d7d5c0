"""Real git repositories in temporary folders, cut off from the user's own configuration."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, settings

# Compiled files are kept, also by the programs that tests start: to compile all modules again takes longer
# than most of what they do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What is loaded and collected lives as long as the process: to search it for garbage again and again takes a
# tenth of the time.
gc.disable()

# A shell lets what it starts in the background ignore Ctrl-C, and `nohup` a closed terminal. The programs
# that tests start would ignore them, too.
for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored is signal.SIGINT else signal.SIG_DFL)

# Machines are slow and shared: how long an example takes says nothing about the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

GIT_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.com",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.com",
    "GIT_ALLOW_PROTOCOL": "file",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let one run have the long tests, too: to collect all tests twice takes a minute of processor time."""
    parser.addoption("--with-long", action="store_true", help="also run the tests of the suite `long`")


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, and there only."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of `suites.toml` with the name of their suite, before pytest looks at the marks.

    What is long is only left out of the whole suite: with a file or a folder named, it is wanted.
    """
    suites = tomllib.loads((Path(__file__).parent / "suites.toml").read_text())
    suite_of = {name: suite for suite, names in suites.items() for name in names}
    whole = config.args == config.getini("testpaths")
    wanted = {"long"} if config.getoption("--with-long") else set()
    for item in items:
        suite = suite_of.get(item.nodeid)
        if suite == "slow" or (suite and whole and suite not in wanted):
            item.add_marker(suite)
    unknown = suite_of.keys() - {item.nodeid for item in items}
    if unknown and whole:
        raise pytest.UsageError(f"suites.toml names what is no test: {', '.join(sorted(unknown))}")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Deny the machine's git configuration and the user's settings to every test."""
    _enter_environment(monkeypatch, tmp_path / "home")


def _enter_environment(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("GIT_", "AUTOPILOT")):
            monkeypatch.delenv(name)
    for name, value in GIT_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / ".local/share"))
    monkeypatch.setenv("NO_COLOR", "1")
    # As in CI; what happens without it is shown by tests of its own.
    monkeypatch.setenv("AUTOPILOT_MULTI_TRUST", "always")
    home.mkdir()


def git(cwd: Path, *args: str) -> str:
    """Run git for a test's own looks and preparations."""
    try:
        done = subprocess.run(["git", *args], cwd=cwd, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr)
        raise
    return done.stdout


class Templates:
    """Repositories that are made once for a test process; each test works on a copy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[object, Path] = {}

    def copy(self, target: Path, key: object, make: Callable[[Path], None]) -> Path:
        """Copy the repository of this key to `target`; at first, `make` makes it at the path it is given."""
        if key not in self._made:
            place = self._folder / str(len(self._made))
            place.mkdir()
            with pytest.MonkeyPatch.context() as patch:
                _enter_environment(patch, place / "home")
                make(place / "repo")
            self._made[key] = place / "repo"
        shutil.copytree(self._made[key], target, symlinks=True)
        git(target, "update-index", "-q", "--refresh")  # a copy has other inodes than the index says
        return target


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """Return the repositories that this test process has made so far."""
    return Templates(tmp_path_factory.mktemp("templates"))


def begin_repository(root: Path, files: Mapping[str, str] = MappingProxyType({})) -> None:
    """Make a repository with one commit."""
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for sample in (root / ".git" / "hooks").iterdir():
        sample.unlink()  # half of what would be copied
    for path, text in {"README.md": "hello\n", **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")


@pytest.fixture
def make_repository(tmp_path: Path, templates: Templates) -> Callable[..., Path]:
    """Make a repository with one commit; more files by keyword arguments of `files`."""

    def make(name: str = "repo", files: dict[str, str] | None = None) -> Path:
        more = files or {}
        return templates.copy(
            tmp_path / name, frozenset(more.items()), lambda root: begin_repository(root, more)
        )

    return make


@pytest.fixture
def repo(make_repository: Callable[..., Path]) -> Path:
    """Return a repository with one commit on `main`."""
    return make_repository()


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder in which the stand-in agent of flows remembers what it did."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setenv("FLOW_AGENT_MEMORY", str(folder))
    return folder
