"""Which configured server leads to which tracker, and an open way to one.

The tools of a server decide. Its name counts as long as it has none to show: it may have to sign in first.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import trio
from msgspec import Struct, field

from runner.core.work_items.tracker import TITLES, Tracker
from runner.forge.tracker import ado, jira
from runner.forge.tracker.backend import MCP_AUTH, Backend, authenticate
from runner.forge.tracker.client import Launch, McpClient, open_client
from runner.forge.tracker.errors import TrackerError
from runner.forge.tracker.servers import McpServer, Servers

_MOST_PROBED = 20

LaunchOf: TypeAlias = Callable[[McpServer], Launch]


class Reached(Struct, frozen=True, kw_only=True):
    """A server that leads to a tracker; `refusal` says why it cannot be used, None if it can."""

    server: McpServer
    tracker: Tracker
    refusal: TrackerError | None = None


class Probed(Struct, frozen=True, kw_only=True):
    """What servers turned out to be: the trackers, and why others could not be asked."""

    found: Mapping[Tracker, Reached] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def tracker_of(client: McpClient) -> Tracker | None:
    """Return the tracker behind a server by its tools; by its name, if all it offers is to sign in."""
    if client.tools & jira.SIGNS:
        return Tracker.JIRA
    if client.tools & ado.SIGNS:
        return Tracker.ADO
    return client.server.hinted if client.tools <= {MCP_AUTH} else None


async def probe(servers: Servers, launch_of: LaunchOf, project: str) -> Probed:
    """Find out which servers lead to trackers: those whose names suggest it, and only then all others.

    Each tracker is asked for access on the way.
    """
    found: dict[Tracker, Reached] = {}
    problems: list[str] = []
    likely = [one for one in servers.servers if one.hinted]
    others = [one for one in servers.servers if not one.hinted]
    for group in (likely, others):
        for reached in await _reached(group[:_MOST_PROBED], launch_of, project):
            if isinstance(reached, Reached):
                found.setdefault(reached.tracker, reached)
            elif reached is not None:
                problems.append(reached.message)
        if found:
            break
    return Probed(found=found, problems=tuple(problems))


async def _reached(
    servers: Sequence[McpServer], launch_of: LaunchOf, project: str
) -> list[Reached | TrackerError | None]:
    """Ask all servers at once; None for one that leads to no tracker."""
    results: list[Reached | TrackerError | None] = [None] * len(servers)

    async def ask(number: int, server: McpServer) -> None:
        tracker = server.named
        try:
            async with open_client(server, launch_of(server)) as client:
                tracker = tracker_of(client)
                if tracker is not None:
                    await _signed_in(client, tracker, project)
                    results[number] = Reached(server=server, tracker=tracker)
        except TrackerError as error:
            known = Reached(server=server, tracker=tracker, refusal=error) if tracker else error
            results[number] = known

    async with trio.open_nursery() as nursery:
        for number, server in enumerate(servers):
            nursery.start_soon(ask, number, server)
    return results


@asynccontextmanager
async def open_backend(
    tracker: Tracker, servers: Servers, launch_of: LaunchOf, project: str
) -> AsyncIterator[Backend]:
    """Open a way to a tracker, signed in; raises TrackerError with the reason if there is none."""
    problems: list[str] = []
    for server in servers.for_tracker(tracker):
        opened = False
        try:
            async with open_client(server, launch_of(server)) as client:
                if tracker_of(client) is tracker:
                    opened = True
                    yield await _signed_in(client, tracker, project)
                    return
        except TrackerError as error:
            if opened or server.hinted is tracker:
                raise
            problems.append(error.message)
    title = TITLES[tracker]
    known = ", ".join(one.shown for one in servers.servers) or "none"
    raise TrackerError(
        "; ".join(problems) or f"no configured MCP server has the tools of {title} (servers: {known})",
        hint=f'configure one, or name it in `tracker-server`; `tracker = "local"` does without {title}.',
    )


async def _signed_in(client: McpClient, tracker: Tracker, project: str) -> Backend:
    """Return the tracker of a server once it grants access, in the project that is used."""
    await authenticate(client)
    needed = jira.TOOLS if tracker is Tracker.JIRA else ado.TOOLS
    missing = needed - client.tools
    if missing:
        package = "mcp-atlassian" if tracker is Tracker.JIRA else "@azure-devops/mcp"
        raise TrackerError(
            f"MCP server {client.server.shown} lacks tools: {', '.join(sorted(missing))}",
            hint=f"use a current version of {package}.",
        )
    backend = jira.Jira(client, project) if tracker is Tracker.JIRA else ado.AzureDevOps(client, project)
    seen = await backend.projects()
    if not project:
        backend.project = _only(seen, TITLES[tracker])
    return backend


def _only(projects: Sequence[str], title: str) -> str:
    if len(projects) == 1:
        return projects[0]
    listed = ", ".join(projects[:10]) + (", …" if len(projects) > 10 else "")  # noqa: PLR2004
    raise TrackerError(
        f"{title} shows {len(projects)} projects{f' ({listed})' if projects else ''}, and none is chosen",
        hint="name the project in `tracker-project`.",
    )
