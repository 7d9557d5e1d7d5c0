"""Ports and a database name for each workspace, so that stories that run at the same time do not meet.

A port is leased by a lock on a file that all runs of the user on this machine know, so another run takes
other ports, and a killed run gives its own back. Whether somebody else listens there is tried out. Ports are
below those that the kernel hands out for connections.
"""

import errno
import hashlib
import os
import random
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from isolation.files.disk import LockFile
from isolation.patterns import pattern
from runner.core.errors import SystemFaultError

FIRST, LAST = 20_000, 32_767
_LONGEST_NAME = 40  # with its prefix and digest it fits into the 63 characters that PostgreSQL allows
_NO_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
_OTHER = pattern(r"[^a-z0-9]+")


class Lease(Struct, frozen=True, kw_only=True):
    """What one workspace has for itself."""

    ports: tuple[int, ...]
    database: str

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which programs find it."""
        numbered = {f"AUTOPILOT_PORT_{number}": str(port) for number, port in enumerate(self.ports, 1)}
        return {
            "AUTOPILOT_PORT": str(self.ports[0]),
            "AUTOPILOT_PORTS": " ".join(map(str, self.ports)),
            **numbered,
            "AUTOPILOT_DATABASE": self.database,
        }


class PortLeases:
    """The leases of one run, by workspace; stories that share a workspace name themselves."""

    def __init__(self) -> None:
        self._held: dict[tuple[Path, str], Lease] = {}

    @contextmanager
    def lent(
        self, workspace: Path, count: int, *, owner: str = "", before: Iterable[int] = ()
    ) -> Iterator[Lease | None]:
        """Hold a lease for as long as the block lasts; the ports that it had before are preferred. Blocks."""
        if not count:
            yield None
            return
        with ExitStack() as locks:
            ports = tuple(_take(count, before, locks))
            lease = Lease(ports=ports, database=_database(workspace, owner))
            self._held[workspace, owner] = lease
            try:
                yield lease
            finally:
                del self._held[workspace, owner]

    def variables(self, workspace: Path, owner: str) -> Mapping[str, str]:
        """Return the variables of a lease; none without one."""
        lease = self._held.get((workspace, owner)) or self._held.get((workspace, ""))
        return lease.variables if lease else {}


def _take(count: int, before: Iterable[int], locks: ExitStack) -> Iterator[int]:
    """Yield free ports, each locked until `locks` is closed."""
    folder = _folder()
    start = random.randrange(FIRST, LAST + 1)  # noqa: S311  so that two users rarely try the same ones
    found = 0
    for port in dict.fromkeys((*before, *range(start, LAST + 1), *range(FIRST, start))):
        path = folder / str(port)
        lock = LockFile.attempt(path)
        if lock is None:
            continue
        if not _is_free(port):
            lock.release()
            continue
        locks.callback(_give_back, path, lock)
        found += 1
        yield port
        if found == count:
            return
    raise SystemFaultError(
        f"fewer than {count} ports are free between {FIRST} and {LAST} on this machine",
        hint="end what listens there, or lower `ports`.",
    )


def _give_back(path: Path, lock: LockFile) -> None:
    with suppress(OSError):
        path.unlink()
    lock.release()


def _folder() -> Path:
    """Return the folder of the locks; it belongs to the user, or is not used."""
    folder = Path(tempfile.gettempdir()) / f"autopilot-multi-ports-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise SystemFaultError(
            f"cannot lease ports in {folder}: {error.strerror}", hint="can you write there?"
        ) from error
    if found.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
        raise SystemFaultError(
            f"{folder}, where ports are leased, does not belong to you", hint="remove it, or set TMPDIR."
        )
    return folder


def _is_free(port: int) -> bool:
    """Whether a program could listen on a port, on all addresses."""
    families = (socket.AF_INET, socket.AF_INET6) if socket.has_ipv6 else (socket.AF_INET,)
    for family in families:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as tried:
                # As servers do, so that a connection that was closed a moment ago does not count.
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(("", port))
        except OSError as error:
            if family == socket.AF_INET6 and error.errno in _NO_IPV6:
                continue
            return False
    return True


def _database(workspace: Path, owner: str) -> str:
    """Return a name that no other workspace on this machine has; the same for a workspace each time."""
    digest = hashlib.sha256(os.fsencode(workspace) + b"\0" + os.fsencode(owner)).hexdigest()[:8]
    words = _OTHER.sub("_", (owner or workspace.name).lower()).strip("_")[:_LONGEST_NAME]
    return f"autopilot_{words}_{digest}"
