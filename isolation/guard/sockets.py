"""Sockets in the file system: doors to programs outside, which no network namespace closes.

A process that can open such a file talks to the program behind it: a container engine, the machine's
resolver, a terminal multiplexer, a database. All that exist when a session starts are hidden from it at the
seal `full`. Folders in which well-known services keep theirs are hidden as a whole, since a service that
starts again makes a new file.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from isolation.guard.private import Store

WHAT = "sockets of other programs"
_LISTED = "/proc/net/unix"
_PATH_COLUMN = 7

_FOLDERS = (
    *(
        f"/run/{name}"
        for name in (
            "avahi-daemon",
            "containerd",
            "crio",
            "cups",
            "dbus",
            "docker",
            "docker.sock",
            "libvirt",
            "lxd",
            "mysqld",
            "nscd",
            "pcscd",
            "podman",
            "postgresql",
            "redis",
            "snapd.socket",
            "systemd/private",
            "systemd/resolve/io.systemd.Resolve",
            "systemd/userdb",
            "tailscale",
        )
    ),
    *(f"/run/user/*/{name}" for name in ("bus", "docker*", "podman", "pulse", "pipewire*", "wayland*")),
    # Exact names: a pattern would read the whole folder, which can be large.
    *(f"/tmp/{name}" for name in (".X11-unix", ".ICE-unix", f"tmux-{os.getuid()}")),  # noqa: S108
)


def doors() -> tuple[Store, ...]:
    """Return what is hidden so that a session reaches no program through a socket. Blocks."""
    return (Store(what=WHAT, paths=_FOLDERS), Store(what=WHAT, paths=tuple(dict.fromkeys(_bound()))))


SIGNING = frozenset({"SSH_AUTH_SOCK", "GPG_AGENT_INFO"})
"""The variables that lead git to the programs that sign commits."""


def signing(environ: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return the places of the programs by which git signs commits, and of the key if it is a file."""
    named = (environ.get("SSH_AUTH_SOCK", ""), environ.get("GNUPGHOME", ""), f"/run/user/{os.getuid()}/gnupg")
    file = key if key.startswith(("/", "~")) else ""
    return ("~/.gnupg", *filter(None, (*named, file)))


def _bound() -> Iterator[str]:
    """Yield the sockets that are bound to a file now."""
    try:
        lines = os.fsdecode(Path(_LISTED).read_bytes()).splitlines()[1:]
    except OSError:
        return
    for line in lines:
        words = line.split(maxsplit=_PATH_COLUMN)
        path = words[_PATH_COLUMN] if len(words) > _PATH_COLUMN else ""
        if path.startswith("/") and "*" not in path and _is_socket(path):
            yield path


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116  many, for each session
    except OSError:
        return False
