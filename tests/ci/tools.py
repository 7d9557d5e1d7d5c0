"""The programs of others with which the pipelines are tried; `make ci-tools` installs them."""

import shutil
import sys
from pathlib import Path

import pytest

TOOLS = Path(sys.prefix) / "ci-tools"


def require_tool(name: str) -> str:
    """Return the path of an installed tool, or skip the test and say what is missing."""
    for folder in (TOOLS / "node_modules" / ".bin", TOOLS / "bin"):
        if (folder / name).exists():
            return str(folder / name)
    missing = "npm is not installed" if shutil.which("npm") is None else "run `make ci-tools`"
    pytest.skip(f"{name} is not there: {missing}")


def require_package(name: str) -> Path:
    """Return the folder of an installed npm package, or skip the test."""
    folder = TOOLS / "node_modules" / name
    if not folder.is_dir():
        pytest.skip(f"the npm package {name} is not there: run `make ci-tools`")
    return folder
