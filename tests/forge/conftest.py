"""A scripted GitHub for each test, and the environment in which `gh` finds it."""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forge import gh_stand_in
from tests.forge.authority import Authority
from tests.forge.github_api import TOKEN, GitHubApi
from tests.forge.scripted_server import serving


@dataclass(frozen=True, kw_only=True)
class ScriptedGitHub:
    """The service, and the variables by which `gh` reaches it: `env` is a whole environment."""

    api: GitHubApi
    host: str
    env: dict[str, str]


def stand_in(folder: Path, name: str, script: str) -> Path:
    """Write a program that runs a script of the tests; return its folder, for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f'#!/bin/sh\nSTAND_IN={name} exec {sys.executable} -I -S {script} "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the certificate authority of this session."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def github(tmp_path: Path) -> Iterator[ScriptedGitHub]:
    """Serve a scripted GitHub over plain HTTP, with the stand-in for `gh` on PATH."""
    api = GitHubApi()
    programs = stand_in(tmp_path / "programs", "gh", gh_stand_in.__file__)
    with serving(api) as host:
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        yield ScriptedGitHub(api=api, host=host, env=_environment(tmp_path, host) | {"PATH": path})


@pytest.fixture
def real_github(tmp_path: Path, authority: Authority) -> Iterator[ScriptedGitHub]:
    """Serve a scripted GitHub over TLS, for the real `gh`; skips without it."""
    if shutil.which("gh") is None:
        pytest.skip("gh is not installed (apt install gh)")
    api = GitHubApi()
    with serving(api, authority) as host:
        env = _environment(tmp_path, host) | {"SSL_CERT_FILE": str(authority.ca)}
        yield ScriptedGitHub(api=api, host=host, env=env)


def _environment(folder: Path, host: str) -> dict[str, str]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GH_", "GITHUB_"))}
    # Loopback must be asked directly, whatever proxy this machine has.
    direct = {"NO_PROXY": "localhost,127.0.0.1", "no_proxy": "localhost,127.0.0.1"}
    return kept | direct | {"HOME": str(home), "GH_HOST": host, "GH_ENTERPRISE_TOKEN": TOKEN}
