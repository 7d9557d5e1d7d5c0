"""Real git repositories in temporary folders, cut off from the user's own configuration."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Deny the machine's git configuration and the user's settings to every test."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "AUTOPILOT")):
            monkeypatch.delenv(name)
    for name, value in GIT_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / ".config"))
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "home").mkdir()


def git(cwd: Path, *args: str) -> str:
    """Run git for a test's own looks and preparations."""
    done = subprocess.run(["git", *args], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture(scope="session")
def first_commit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the repository that most tests begin with, once; each test gets a copy."""
    root = tmp_path_factory.mktemp("template") / "repo"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in GIT_ENVIRONMENT.items():
            patch.setenv(name, value)
        _begin(root, {})
    return root


def _begin(root: Path, files: dict[str, str]) -> None:
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    for path, text in {"README.md": "hello\n", **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")


@pytest.fixture
def make_repository(tmp_path: Path, first_commit: Path) -> Callable[..., Path]:
    """Make a repository with one commit; more files by keyword arguments of `files`."""

    def make(name: str = "repo", files: dict[str, str] | None = None) -> Path:
        root = tmp_path / name
        if files:
            _begin(root, files)
        else:
            shutil.copytree(first_commit, root, symlinks=True)
            git(root, "update-index", "-q", "--refresh")  # a copy has other inodes than the index says
        return root

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
