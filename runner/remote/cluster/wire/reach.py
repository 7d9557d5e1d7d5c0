"""Whether a scheduler answers at an address, found out before anything depends on it."""

import asyncio
from typing import TYPE_CHECKING, Any

from runner.remote.cluster.wire.messages import ClusterError

if TYPE_CHECKING:
    from distributed import Security

REACH_SECONDS = 10.0
"""For how long a scheduler that was just started may take until it answers."""
_GRACE_SECONDS = 1.0
"""How much later than Dask we give up: it knows the reason."""


def require_scheduler(address: str, security: "Security | None") -> None:
    """Raise ClusterError with the reason unless a scheduler answers. Blocks."""
    try:
        asyncio.run(reach(address, security, role="client", limit=REACH_SECONDS))
    except OSError as error:
        raise unreachable(address, error) from error


def unreachable(address: str, error: Exception) -> ClusterError:
    """Return what is said of an address at which no scheduler answers us."""
    rest = address.partition("://")[2]
    hint = (
        f"does a scheduler without TLS run there? for one with certificates, write tls://{rest}."
        if address.startswith("tcp://")
        else "does its scheduler run there, and do both sides have the same certificates of "
        "`autopilot-multi cluster init`?"
    )
    return ClusterError(
        f"cannot connect to the cluster at {address or 'loopback'}: {_words(error)}", hint=hint
    )


async def reach(address: str, security: "Security | None", *, role: str, limit: float) -> None:
    """Ask who answers at an address; raises OSError without an answer, ClusterError if it is no scheduler."""
    from distributed.comm.core import connect
    from distributed.core import send_recv

    reaching: Any = connect  # they have no types
    ask: Any = send_recv
    own: Any = security
    options = own.get_connection_args(role) if own is not None else {}
    try:
        async with asyncio.timeout(limit + _GRACE_SECONDS):
            await _resolve(address)  # Dask would try a name that does not exist again and again
            comm = await reaching(address, timeout=limit, **options)
            try:
                answer = await ask(comm, op="identity", reply=True)
            finally:
                comm.abort()
    except TimeoutError as error:
        raise OSError(f"nothing answers there within {limit:g} s") from error
    kind = answer.get("type", "") if isinstance(answer, dict) else ""
    if kind != "Scheduler":
        raise ClusterError(
            f"what answers at {address} is not a scheduler but a {kind.lower() or 'program without a name'}",
            hint="the log of `dask scheduler` names its address.",
        )


async def _resolve(address: str) -> None:
    host, _, port = address.partition("://")[2].rpartition(":")
    await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port))


def is_final(error: Exception) -> bool:
    """Whether it is useless to try again: the other side has other certificates."""
    from distributed.comm.core import FatalCommClosedError

    return isinstance(error, FatalCommClosedError)


def _words(error: Exception) -> str:
    """Return the reason alone, without the connection that Dask puts before it."""
    reason = error.__cause__ if error.__cause__ is not None and "TLS" not in str(error) else error
    return str(reason) or str(error) or type(error).__name__
