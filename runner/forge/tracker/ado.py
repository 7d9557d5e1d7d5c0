"""Azure DevOps, by the tools of the MCP server `@azure-devops/mcp`."""

from typing import Any

from runner.core.work_items.documents import Kind, WorkItem
from runner.core.work_items.tracker import Tracker
from runner.forge.tracker.backend import Link, description
from runner.forge.tracker.client import McpClient

TOOLS = frozenset(
    {"core_list_projects", "wit_query", "wit_work_item", "wit_work_item_write", "wit_work_item_link_write"}
)
SIGNS = frozenset({"wit_work_item_write", "wit_create_work_item"})
"""A server with one of these leads to Azure DevOps, though it may be too old for this program."""
_PARENT, _PREDECESSOR = "System.LinkTypes.Hierarchy-Reverse", "System.LinkTypes.Dependency-Reverse"
_MOST_PROJECTS = 100


class AzureDevOps:
    """One project of Azure DevOps."""

    tracker = Tracker.ADO

    def __init__(self, client: McpClient, project: str) -> None:
        self._client = client
        self.project = project

    async def projects(self) -> tuple[str, ...]:
        """Return the names of the projects that can be seen; raises AccessError if access is denied."""
        answer = await self._client.call("core_list_projects", top=_MOST_PROJECTS)
        listed = answer.data.get("value") if isinstance(answer.data, dict) else answer.data
        projects = listed if isinstance(listed, list) else []
        return tuple(str(one["name"]) for one in projects if isinstance(one, dict) and one.get("name"))

    async def find(self, marker: str) -> str:
        """Return the id of the work item with a tag; empty if there is none."""
        query = (
            "SELECT [System.Id] FROM WorkItems WHERE [System.TeamProject] = @project "  # noqa: S608  a digest
            f"AND [System.Tags] CONTAINS '{marker}' ORDER BY [System.Id]"
        )
        answer = await self._client.call("wit_query", action="wiql", project=self.project, wiql=query, top=1)
        items = answer.data.get("workItems") if isinstance(answer.data, dict) else None
        if not isinstance(items, list):
            raise self._client.failure(f"wit_query answered {answer.text}")
        return str(items[0].get("id", "")) if items and isinstance(items[0], dict) else ""

    async def create(self, item: WorkItem, marker: str) -> str:
        """Create a work item with a tag, and return its id."""
        answer = await self._client.call(
            "wit_work_item_write",
            action="create",
            project=self.project,
            workItemType="Epic" if item.kind is Kind.EPIC else "Task",
            fields=[
                {"name": "System.Title", "value": item.title},
                {"name": "System.Description", "value": description(item), "format": "Markdown"},
                {"name": "System.Tags", "value": marker},
            ],
        )
        number = answer.data.get("id") if isinstance(answer.data, dict) else None
        if not isinstance(number, int):
            raise self._client.failure(f"wit_work_item_write answered without an id: {answer.text}")
        return str(number)

    async def links(self, item_id: str) -> frozenset[Link]:
        """Return the parent of a work item, and its predecessors."""
        answer = await self._client.call(
            "wit_work_item", action="get", project=self.project, id=int(item_id), expand="Relations"
        )
        relations = answer.data.get("relations") if isinstance(answer.data, dict) else None
        return frozenset(link for one in relations or () if (link := _link(one)) is not None)

    async def link(self, item_id: str, link: Link) -> None:
        """Relate a work item to its parent, or to a predecessor."""
        kind = "parent" if link.parent else "predecessor"
        update = {"id": int(item_id), "linkToId": int(link.other), "type": kind}
        await self._client.call(
            "wit_work_item_link_write", action="link", project=self.project, updates=[update]
        )


def _link(relation: Any) -> Link | None:
    kind = relation.get("rel") if isinstance(relation, dict) else None
    if kind not in {_PARENT, _PREDECESSOR}:
        return None
    return Link(parent=kind == _PARENT, other=str(relation.get("url", "")).rpartition("/")[2])
