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


class Probed(Struct, frozen=True, kw_only=True):
    """What servers turned out to be: the trackers with their servers, and why others could not be asked."""

    found: Mapping[Tracker, McpServer] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def tracker_of(client: McpClient) -> Tracker | None:
    """Return the tracker behind a server by its tools; by its name, if all it offers is to sign in."""
    if client.tools & jira.SIGNS:
        return Tracker.JIRA
    if client.tools & ado.SIGNS:
        return Tracker.ADO
    return client.server.hinted if client.tools <= {MCP_AUTH} else None


async def probe(servers: Servers, launch_of: LaunchOf) -> Probed:
    """Find out which servers lead to trackers: those whose names suggest it, and only then all others."""
    problems: list[str] = []
    likely = [one for one in servers.servers if one.hinted]
    others = [one for one in servers.servers if not one.hinted]
    found: dict[Tracker, McpServer] = {}
    for group in (likely, others):
        kinds = await _kinds(group[:_MOST_PROBED], launch_of, problems)
        for server, kind in zip(group, kinds, strict=False):
            if kind is not None:
                found.setdefault(kind, server)
        if found:
            break
    return Probed(found=found, problems=tuple(problems))


async def _kinds(
    servers: Sequence[McpServer], launch_of: LaunchOf, problems: list[str]
) -> list[Tracker | None]:
    kinds: list[Tracker | None] = [None] * len(servers)

    async def ask(number: int, server: McpServer) -> None:
        try:
            async with open_client(server, launch_of(server)) as client:
                kinds[number] = tracker_of(client)
        except TrackerError as error:
            problems.append(error.message)
            kinds[number] = server.named

    async with trio.open_nursery() as nursery:
        for number, server in enumerate(servers):
            nursery.start_soon(ask, number, server)
    return kinds


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
