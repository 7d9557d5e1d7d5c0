"""Which forge, and which repository there, a remote's address or a setting names."""

import re
from collections.abc import Mapping

from msgspec import Struct

from isolation.patterns import pattern
from runner.core.errors import SettingsError

_SETTING = pattern(r"(github|gitlab):([^/\s:?#]+(?:/[^/\s:?#]+)+)")
_URL = pattern(r"[a-z+]+://(?:[^/@]*@)?([^/]+)/(.+?)(?:\.git)?/?", re.IGNORECASE)
_SCP = pattern(r"(?:[^/@:]+@)?([^/:]+):(?!//)(.+?)(?:\.git)?/?")
_KNOWN = {"github.com": "github", "gitlab.com": "gitlab"}


class Address(Struct, frozen=True, kw_only=True):
    """A repository on a forge: `kind` is github or gitlab; an empty `host` is what the program takes."""

    kind: str
    name: str
    host: str = ""


def address_of(setting: str, url: str, environ: Mapping[str, str], *, remote: str) -> Address:
    """Return the repository that a setting names, else the one at the address of a remote."""
    if setting:
        named = _SETTING.fullmatch(setting)
        if named is None or (named[1] == "github" and named[2].count("/") != 1):
            raise SettingsError(
                f"forge: '{setting}' names no repository on a forge",
                hint="write github:OWNER/NAME or gitlab:GROUP/NAME.",
            )
        return Address(kind=named[1], name=named[2])
    found = _URL.fullmatch(url) or _SCP.fullmatch(url)
    kind = _kind(found[1], environ) if found else ""
    if found is None or not kind:
        raise SettingsError(
            f"the remote {remote} is on no forge that is known" if url else f"there is no remote '{remote}'",
            hint='name the repository with the setting forge = "github:OWNER/NAME" or "gitlab:GROUP/NAME", '
            "or another remote with draft-remote.",
        )
    host = "" if found[1].lower() in _KNOWN else found[1]
    return Address(kind=kind, name=found[2], host=host)


def _kind(host: str, environ: Mapping[str, str]) -> str:
    host = host.lower()
    own = {"GH_HOST": "github", "GITHUB_HOST": "github", "GITLAB_HOST": "gitlab", "GL_HOST": "gitlab"}
    for name, kind in own.items():
        if environ.get(name, "").lower().rpartition("://")[2] == host:
            return kind
    return _KNOWN.get(host, "gitlab" if host.startswith("gitlab.") else "")
