"""Where the real programs of forges are: on PATH, or where `make forge-tools` puts them."""

import os
import shutil
import sys
from pathlib import Path

import pytest

TOOLS = Path(sys.prefix, "forge-tools")


def with_glab() -> dict[str, str]:
    """Return an environment in which the real `glab` is found; skips without it."""
    found = shutil.which("glab", path=f"{os.environ['PATH']}{os.pathsep}{TOOLS / 'bin'}")
    if found is None:
        pytest.skip("glab is not installed (apt install glab)")
    return dict(os.environ) | {"PATH": f"{Path(found).parent}{os.pathsep}{os.environ['PATH']}"}


def azure_folder() -> Path:
    """Return the folder of the real `az` with its extension for Azure DevOps; skips without both."""
    folder = TOOLS / "azure"
    if not (folder / "bin/az").exists() or not (folder / "extensions/azure-devops").exists():
        pytest.skip("az is not installed with its extension azure-devops (make forge-azure)")
    return folder


def without_glab() -> dict[str, str]:
    """Return an environment in which no `glab` is found; everything else is."""
    folders = os.environ["PATH"].split(os.pathsep)
    kept = [folder for folder in folders if not Path(folder, "glab").exists()]
    return dict(os.environ) | {"PATH": os.pathsep.join(kept)}
