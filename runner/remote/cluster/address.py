"""Where a cluster is, as the user writes it, and how its connections are secured.

TLS is the rule: only loopback, and an address that begins with `tcp://`, go without it.
"""

import ipaddress
import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from runner.core.errors import UsageError
from runner.machine.user_folders import data_folder
from runner.remote.cluster.wire.messages import ClusterError

if TYPE_CHECKING:
    from distributed import Security

LOCAL = "local:"
MOST_LOCAL = 64
MOST_PORT = (1 << 16) - 1
CA, CERTIFICATE, KEY = "ca.pem", "cluster.pem", "cluster-key.pem"


class MissingExtraError(UsageError):
    """The packages of the extra are not installed."""


class Where(Struct, frozen=True, kw_only=True):
    """A cluster: an address with its protocol, or a number of workers on this machine."""

    address: str = ""
    local: int = 0


def require_packages() -> None:
    """Raise with what to install if Dask is not there."""
    try:
        import dask.config

        # Dask writes its log to the terminal, which belongs to the dashboard. Errors arrive as values.
        dask.config.set({"logging": {"distributed": "critical"}})
        import distributed  # noqa: F401  whether it is there
    except ImportError as error:
        raise MissingExtraError(
            f"a cluster needs packages that are not installed: {error}",
            hint="pip install 'autopilot-multi[cluster]'",
        ) from error


def parse(text: str, top: Path) -> Where:
    """Read what the user wrote: `local:N`, an address, or the path of a scheduler file."""
    if text.startswith(LOCAL):
        count = text.removeprefix(LOCAL)
        if not count.isdigit() or not 1 <= int(count) <= MOST_LOCAL:
            raise UsageError(
                f"'{text}' is not a number of workers", hint=f"write local:N, N from 1 to {MOST_LOCAL}."
            )
        return Where(local=int(count))
    path = top / Path(text).expanduser()
    if path.is_file():
        return Where(address=_of_file(path))
    if "/" in text.partition("://")[2] or ("://" not in text and (os.sep in text or text.endswith(".json"))):
        raise UsageError(
            f"there is no scheduler file {path}",
            hint="start the scheduler with `dask scheduler --scheduler-file FILE`, or name its address.",
        )
    return Where(address=with_protocol(text))


def with_protocol(text: str) -> str:
    """Return an address with its protocol: TLS, except on loopback."""
    protocol, separator, rest = text.partition("://")
    host, colon, port = (rest if separator else text).rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) <= MOST_PORT:
        raise UsageError(
            f"'{text}' is not the address of a scheduler",
            hint="for example tls://scheduler.example.org:8786, local:4, or the path of a scheduler file.",
        )
    if separator:
        if protocol not in {"tcp", "tls"}:
            raise UsageError(f"'{protocol}' in '{text}' is not a protocol of a cluster", hint="tls or tcp.")
        return text
    return f"tcp://{text}" if is_loopback(host) else f"tls://{text}"


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own, so that no other can listen."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def certificates(configured: str, environ: Mapping[str, str]) -> Path:
    """Return the folder of the certificates."""
    if configured:
        return Path(configured).expanduser()
    home = environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(home) / "autopilot-multi" / "cluster"


def workers_folder(environ: Mapping[str, str]) -> Path:
    """Return where workers keep their clones by default; sealed sessions see it, other than our own data."""
    return data_folder(environ) / "autopilot-multi-workers"


def security_for(address: str, folder: Path) -> "Security | None":
    """Return what secures connections to an address; None if they are plain."""
    if not address.startswith("tls://"):
        return None
    import distributed

    security: Any = distributed.Security  # it has no types
    return cast("Security", security(**security_values(folder)))


def security_values(folder: Path) -> dict[str, Any]:
    """Return the files by which every side of the cluster shows and checks a certificate."""
    missing = [name for name in (CA, CERTIFICATE, KEY) if not (folder / name).is_file()]
    if missing:
        raise ClusterError(
            f"there is no certificate for the cluster: {folder / missing[0]} is missing",
            hint=f"make them with `autopilot-multi cluster init`, and copy {folder} to every machine.",
        )
    try:
        context = ssl.create_default_context(cafile=str(folder / CA))
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    except OSError as error:  # those of TLS are such, too
        raise ClusterError(
            f"the certificates in {folder} cannot be used: {error}",
            hint="copy the folder again from the machine on which `autopilot-multi cluster init` made it.",
        ) from error
    roles = ("client", "scheduler", "worker")
    return {
        "require_encryption": True,
        "tls_ca_file": str(folder / CA),
        **{f"tls_{role}_cert": str(folder / CERTIFICATE) for role in roles},
        **{f"tls_{role}_key": str(folder / KEY) for role in roles},
    }


def _of_file(path: Path) -> str:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _no_scheduler_file(path, str(error)) from error
    address = found.get("address") if isinstance(found, dict) else None
    if not isinstance(address, str):
        raise _no_scheduler_file(path, "it has no address")
    try:
        return with_protocol(address)
    except UsageError as error:
        raise _no_scheduler_file(path, error.message) from error


def _no_scheduler_file(path: Path, reason: str) -> UsageError:
    hint = "`dask scheduler --scheduler-file FILE` writes one."
    return UsageError(f"{path} is not a scheduler file: {reason}", hint=hint)
