"""Move the metadata of a package from setup.cfg to pyproject.toml: `to_pyproject.py PACKAGE`."""

import json
import sys
from configparser import ConfigParser
from pathlib import Path

package = Path(sys.argv[1])
old = ConfigParser()
old.read_string((package / "setup.cfg").read_text())
needs = [line for line in old.get("options", "install_requires", fallback="").splitlines() if line]
new = f"""\
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = {json.dumps(old["metadata"]["name"])}
version = {json.dumps(old["metadata"]["version"])}
description = {json.dumps(old["metadata"]["description"])}
requires-python = {json.dumps(old["options"]["python_requires"])}
dependencies = {json.dumps(needs)}

[tool.setuptools]
py-modules = {json.dumps(old["options"]["py_modules"].split())}
"""
(package / "pyproject.toml").write_text(new)
(package / "setup.cfg").unlink()
