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


def carriers_of(settings: Settings, top: Path) -> "OpenCarriers | None":
    """Return what opens the cluster that the settings name; None if this machine carries the stories.

    Whatever can be wrong about it is found here, before the run begins.
    """
    if not settings.cluster:
        return None
    require_packages()
    where = parse(settings.cluster, top)
    if settings.bg_isolation == IsolationMode.NONE:
        raise UsageError(
            "stories on a cluster cannot share the tree of this checkout",
            hint="leave out --cluster, or --bg-isolation none.",
        )
    folder = certificates(settings.cluster_certificates, os.environ)
    security = security_for(where.address, folder)

    @asynccontextmanager
    async def opened(context: "RunContext", events: "Sequence[Event]") -> "AsyncIterator[Carriers]":
        from runner.remote.cluster.fleet import open_fleet
        from runner.remote.cluster.wire.hub import open_hub

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
