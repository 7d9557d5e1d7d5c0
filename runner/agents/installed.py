"""What can be known about installed agents without starting them: version and sign-in, from files alone.

No program is run and no service is contacted, so nothing here costs money or time.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from isolation.patterns import pattern
from runner.agents.catalog import KNOWN
from runner.agents.known_agent import SignIn

_VERSION = pattern(r"^v?(\d+\.\d+\.\d+)")
_PARENTS = 4


class Installed(Struct, frozen=True, kw_only=True):
    """One agent on PATH; an empty version or sign-in is unknown, which is not the same as none."""

    name: str
    path: str
    version: str
    sign_in: str

    @property
    def description(self) -> str:
        """The agent in one phrase."""
        named = f"{self.name} {self.version}".rstrip()
        return f"{named} ({self.path}; {self.sign_in or 'no sign-in found'}{self._untried})"

    @property
    def _untried(self) -> str:
        """What to know about a version that was never tried; nothing if it is unknown."""
        tried = KNOWN[self.name].tried
        if not self.version or not tried or self.version in tried:
            return ""
        return f"; this version was never tried, tried: {', '.join(tried)}"


def find_installed(environ: Mapping[str, str]) -> Iterator[Installed]:
    """Yield every known agent that is on PATH."""
    for name, agent in KNOWN.items():
        where = shutil.which(name, path=environ.get("PATH"))
        if where:
            version = _version(Path(where), agent.package, agent.distribution)
            sign_in = _sign_in(agent.sign_in, environ)
            yield Installed(name=name, path=where, version=version, sign_in=sign_in)


def _version(program: Path, package: str, distribution: str = "") -> str:
    """Read the version from the package that the program belongs to, or from a folder named after it."""
    # npm and version managers put a link on PATH; the package is where it points to.
    real = program.resolve()
    for folder in real.parents[:_PARENTS]:
        try:
            manifest = json.loads((folder / "package.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(manifest, dict) and manifest.get("name") == package:
            return str(manifest.get("version", ""))
    if distribution:
        kept = real.parent.parent.glob(f"lib/python3*/site-packages/{distribution}-*.dist-info")
        return next((folder.name.split("-")[1].removesuffix(".dist") for folder in kept), "")
    found = next((match for part in reversed(real.parts) if (match := _VERSION.match(part))), None)
    return found[1] if found else ""


def _sign_in(ways: SignIn, environ: Mapping[str, str]) -> str:
    named = next((variable for variable in ways.variables if environ.get(variable)), "")
    if named:
        return f"signed in with {named}"
    home = Path(environ.get("HOME") or "/")
    kept = next((file for file in ways.files if (home / file).is_file()), "")
    return f"signed in with ~/{kept}" if kept else ""
