"""Check that only pyproject.toml describes a package, and that its tests pass: `check.py PACKAGE`."""

import sys
import tomllib
import unittest
from pathlib import Path

package = Path(sys.argv[1])
project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
if project["name"] != f"shop-{package.name}" or (package / "setup.cfg").exists():
    sys.exit(f"{package}: only pyproject.toml should describe the package")
sys.path.insert(0, str(package))
found = unittest.defaultTestLoader.discover(str(package))
sys.exit(not unittest.TextTestRunner().run(found).wasSuccessful())
