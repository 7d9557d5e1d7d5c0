"""Jira, by the tools of the MCP server `mcp-atlassian`."""

import json
from typing import Any

from runner.core.work_items.documents import Kind, WorkItem
from runner.core.work_items.tracker import Tracker
from runner.forge.tracker.backend import Link, description
from runner.forge.tracker.client import McpClient

TOOLS = frozenset({"jira_search", "jira_create_issue", "jira_get_issue", "jira_create_issue_link"})
SIGNS = frozenset({"jira_create_issue", "createJiraIssue"})
"""A server with one of these leads to Jira, though this program may not know how to use it."""
_BLOCKS = "Blocks"


class Jira:
    """One project of Jira."""

    tracker = Tracker.JIRA

    def __init__(self, client: McpClient, project: str) -> None:
        self._client = client
        self.project = project

    async def projects(self) -> tuple[str, ...]:
        """Return the keys of the projects that can be seen; raises AccessError if access is denied."""
        # The list of projects is empty without access, while a search says what is wrong.
        jql = f'project = "{self.project}"' if self.project else "created is not EMPTY ORDER BY created DESC"
        await self._client.call("jira_search", jql=jql, fields="summary", limit=1)
        if self.project or "jira_get_all_projects" not in self._client.tools:
            return ()
        answer = await self._client.call("jira_get_all_projects")
        listed = answer.data if isinstance(answer.data, list) else []
        return tuple(str(one["key"]) for one in listed if isinstance(one, dict) and one.get("key"))

    async def find(self, marker: str) -> str:
        """Return the key of the issue with a label; empty if there is none."""
        jql = f'project = "{self.project}" AND labels = "{marker}" ORDER BY created ASC'
        answer = await self._client.call("jira_search", jql=jql, fields="summary,labels", limit=1)
        data = answer.data
        issues = data.get("issues") if isinstance(data, dict) else data
        if not isinstance(issues, list):
            raise self._client.failure(f"jira_search answered {answer.text}")
        return str(issues[0].get("key", "")) if issues and isinstance(issues[0], dict) else ""

    async def create(self, item: WorkItem, marker: str) -> str:
        """Create an issue with a label, and return its key."""
        answer = await self._client.call(
            "jira_create_issue",
            project_key=self.project,
            summary=item.title,
            issue_type="Epic" if item.kind is Kind.EPIC else "Task",
            description=description(item),
            additional_fields=json.dumps({"labels": [marker]}),
        )
        data = answer.data if isinstance(answer.data, dict) else {}
        issue = data.get("issue")
        key = issue.get("key") if isinstance(issue, dict) else data.get("key")
        if not isinstance(key, str) or not key:
            raise self._client.failure(f"jira_create_issue answered without a key: {answer.text}")
        return key

    async def links(self, item_id: str) -> frozenset[Link]:
        """Return the epic of an issue, and the issues that block it."""
        answer = await self._client.call("jira_get_issue", issue_key=item_id, fields="*all", comment_limit=0)
        found: set[Link] = set()
        _collect(answer.data, found, item_id)
        return frozenset(found)

    async def link(self, item_id: str, link: Link) -> None:
        """Relate an issue to its epic, or to one that blocks it."""
        if link.parent:
            await self._client.call("jira_link_to_epic", issue_key=item_id, epic_key=link.other)
        else:
            await self._client.call(
                "jira_create_issue_link",
                link_type=_BLOCKS,
                inward_issue_key=link.other,
                outward_issue_key=item_id,
            )


def _collect(data: Any, found: set[Link], item_id: str) -> None:
    """Gather relations from an issue: its parent or epic link, and its links of the kind Blocks."""
    if not isinstance(data, dict):
        return
    for name, value in data.items():
        if name == "parent" and isinstance(value, dict) and value.get("key"):
            found.add(Link(parent=True, other=str(value["key"])))
        elif name == "epic_key" and isinstance(value, str):
            found.add(Link(parent=True, other=value))
        elif name in {"issuelinks", "links"} and isinstance(value, list):
            found.update(_blockers(value))
        elif name.startswith("customfield_"):
            key = value.get("value") if isinstance(value, dict) else value
            # Older Jira keeps the epic in a field whose number differs in each installation.
            if isinstance(key, str) and key != item_id and "-" in key and " " not in key:
                found.add(Link(parent=True, other=key))
        elif name in {"fields", "issue"}:
            _collect(value, found, item_id)


def _blockers(links: list[Any]) -> set[Link]:
    found = set()
    for one in links:
        kind = one.get("type") if isinstance(one, dict) else None
        other = one.get("inward_issue") or one.get("inwardIssue") if isinstance(one, dict) else None
        if isinstance(kind, dict) and kind.get("name") == _BLOCKS and isinstance(other, dict):
            found.add(Link(parent=False, other=str(other.get("key", ""))))
    return found
