"""What every tracker can do here: show whether it grants access, find, create and link work items."""

from typing import Protocol

from msgspec import Struct

from runner.core.work_items.documents import WorkItem
from runner.core.work_items.tracker import Tracker
from runner.forge.tracker.client import McpClient
from runner.forge.tracker.errors import AccessError, TrackerError

MCP_AUTH = "mcp_auth"
MOST_BODY = 30_000
"""Characters of a description; Jira takes a few more."""


class Link(Struct, frozen=True, kw_only=True):
    """One relation of a work item: to its epic, or to an item that it waits for."""

    parent: bool
    other: str


class Backend(Protocol):
    """One tracker behind an MCP server; every method raises TrackerError when it fails."""

    tracker: Tracker

    async def projects(self) -> tuple[str, ...]:
        """Return the projects that can be seen; raises AccessError if access is denied."""

    async def find(self, marker: str) -> str:
        """Return the id of the item with a marker; empty if there is none."""

    async def create(self, item: WorkItem, marker: str) -> str:
        """Create an item with a marker, and return its id."""

    async def links(self, item_id: str) -> frozenset[Link]:
        """Return the relations of an item."""

    async def link(self, item_id: str, link: Link) -> None:
        """Relate an item to another one."""


def description(item: WorkItem) -> str:
    """Return what the tracker shows of an item: its file, and where that is."""
    body = item.body if len(item.body) <= MOST_BODY else f"{item.body[:MOST_BODY]}\n\n(cut)"
    return f"{body.strip()}\n\nFrom `{item.path}`, kept by autopilot-multi."


async def authenticate(client: McpClient) -> None:
    """Ask a server that offers nothing but `mcp_auth` to sign in; raise AccessError unless that helps."""
    if client.tools != {MCP_AUTH}:
        return
    try:
        await client.call(MCP_AUTH)
    except TrackerError as error:
        raise AccessError(error.message, hint=error.hint) from error
    await client.refresh()
    if client.tools <= {MCP_AUTH}:
        raise AccessError(
            f"MCP server {client.server.shown}: {MCP_AUTH} gave access to no further tools",
            hint="sign in to it, then retry.",
        )
