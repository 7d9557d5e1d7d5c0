"""The way into a cluster: from the setting `cluster` to what carries the stories of a run."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from isolation.model import IsolationMode
from isolation.paths import repository_hash
from runner.core.errors import UsageError
from runner.core.settings import Settings
from runner.remote.cluster.address import (
    certificates,
    parse,
    require_packages,
    security_for,
    workers_folder,
)

if TYPE_CHECKING:
    from runner.core.events.events import Event
    from runner.run.carry.carriers import Carriers, OpenCarriers
    from runner.story.context.context import RunContext


def require_cluster(settings: Settings, top: Path, *, active: bool) -> None:
    """Raise with what is wrong about the cluster that the settings name, so that no run begins. Blocks.

    A run that is `active`, since it has something to do, needs a scheduler that answers.
    """
    if carriers_of(settings, top) is None or not active:
        return
    where = parse(settings.cluster, top)
    if where.local:
        return
    from runner.remote.cluster.wire.reach import require_scheduler

    security = security_for(where.address, certificates(settings.cluster_certificates, os.environ))
    require_scheduler(where.address, security)


def carriers_of(settings: Settings, top: Path) -> "OpenCarriers | None":
    """Return what opens the cluster that the settings name; None if this machine carries the stories."""
    if not settings.cluster:
        return None
    require_packages()
    where = parse(settings.cluster, top)
    if settings.bg_isolation == IsolationMode.NONE:
        raise UsageError(
            "stories on a cluster cannot share the tree of this checkout",
            hint="leave out --cluster, or --bg-isolation none.",
        )
    security = security_for(where.address, certificates(settings.cluster_certificates, os.environ))

    @asynccontextmanager
    async def opened(context: "RunContext", events: "Sequence[Event]") -> "AsyncIterator[Carriers]":
        from trio import to_thread

        from runner.remote.cluster.fleet import open_fleet
        from runner.remote.cluster.wire.hub import open_hub
        from runner.remote.cluster.wire.reach import require_scheduler

        if not where.local:  # Dask itself would wait without end for what listens and does not answer
            await to_thread.run_sync(require_scheduler, where.address, security)
        async with open_hub(where.address, security) as hub:
            if not where.local:
                async with open_fleet(hub, context, events, examine=True) as fleet:
                    yield fleet
                return
            from runner.remote.cluster.local_workers import local_workers

            await context.keeper.ready()
            place = workers_folder(os.environ) / repository_hash(context.repository.common_dir)
            place.mkdir(parents=True, exist_ok=True)
            async with (
                local_workers(context.keeper, hub.address, where.local, place),
                open_fleet(hub, context, events, examine=False) as fleet,
            ):
                yield fleet

    return opened
