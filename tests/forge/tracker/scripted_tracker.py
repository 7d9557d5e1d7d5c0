"""What a scripted tracker answers to the tools of real MCP servers; its items are in a file.

Files in the folder of TRACKER_FOLDER change what it does: `deny` refuses every call, `sign-in` hides all
tools but `mcp_auth` until that is called, `die-after-create` ends it between a creation and its answer.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["TRACKER_FOLDER"])
ITEMS = FOLDER / "items.json"
LISTS = {"jira": "atlassian_tools.json", "ado": "azure_devops_tools.json"}


def load() -> list[dict[str, Any]]:
    """Read the items."""
    found: list[dict[str, Any]] = json.loads(ITEMS.read_text()) if ITEMS.exists() else []
    return found


def save(items: list[dict[str, Any]]) -> None:
    """Replace the items."""
    ITEMS.with_suffix(".new").write_text(json.dumps(items, indent=1))
    ITEMS.with_suffix(".new").replace(ITEMS)


def create(item: dict[str, Any]) -> None:
    """Add an item."""
    save([*load(), item])
    if (FOLDER / "die-after-create").exists():
        (FOLDER / "die-after-create").unlink()
        os._exit(7)


def jira(name: str, given: dict[str, Any]) -> Any:
    """Answer as mcp-atlassian does."""
    items = load()
    if name == "jira_get_all_projects":
        return [{"key": "SHOP", "name": "Shop"}]
    if name == "jira_search":
        label = re.search(r'labels = "([^"]+)"', given["jql"])
        found = [one for one in items if label and label[1] in one["labels"]]
        return {"total": len(found), "issues": found}
    if name == "jira_create_issue":
        made = {
            "key": f"{given['project_key']}-{len(items) + 1}",
            "type": given["issue_type"],
            "summary": given["summary"],
            "labels": json.loads(given["additional_fields"])["labels"],
            "issuelinks": [],
        }
        create(made)
        return {"message": "Issue created successfully", "issue": made}
    key = given.get("outward_issue_key") or given["issue_key"]
    item = next(one for one in items if one["key"] == key)
    if name == "jira_link_to_epic":
        item["parent"] = {"key": given["epic_key"]}
    elif name == "jira_create_issue_link":
        inward = {"key": given["inward_issue_key"]}
        item["issuelinks"].append({"type": {"name": given["link_type"]}, "inward_issue": inward})
    save(items)
    return item


def ado(name: str, given: dict[str, Any]) -> Any:
    """Answer as @azure-devops/mcp does."""
    items = load()
    if name == "core_list_projects":
        return [{"id": "1", "name": "Shop"}]
    if name == "wit_query":
        tag = re.search(r"CONTAINS '([^']+)'", given["wiql"])
        found = [{"id": one["id"]} for one in items if tag and tag[1] == one["fields"]["System.Tags"]]
        return {"workItems": found}
    if name == "wit_work_item_write":
        made = {
            "id": 4711 + len(items),
            "type": given["workItemType"],
            "fields": {one["name"]: one["value"] for one in given["fields"]},
            "relations": [],
        }
        create(made)
        return made
    if name == "wit_work_item":
        return next(one for one in items if one["id"] == given["id"])
    kinds = {"parent": "Hierarchy-Reverse", "predecessor": "Dependency-Reverse"}
    for update in given["updates"]:
        item = next(one for one in items if one["id"] == update["id"])
        url = f"https://dev.azure.com/x/_apis/wit/workItems/{update['linkToId']}"
        item["relations"].append({"rel": f"System.LinkTypes.{kinds[update['type']]}", "url": url})
    save(items)
    return {"count": len(given["updates"])}


def tools(family: str) -> list[dict[str, Any]]:
    """Return the tools that it offers now, with the schemas of the real server."""
    if (FOLDER / "sign-in").exists():
        return [{"name": "mcp_auth", "inputSchema": {"type": "object"}}]
    listed: list[dict[str, Any]] = json.loads(Path(__file__).with_name(LISTS[family]).read_text())["tools"]
    return listed


class RefusedError(Exception):
    """A call that fails."""


def answer(family: str, name: str, arguments: dict[str, Any]) -> str:
    """Return what a tool answers."""
    with (FOLDER / "calls").open("a") as calls:
        calls.write(f"{name}\n")
    if (FOLDER / "deny").exists():
        token = os.environ.get("TRACKER_TOKEN", "")
        raise RefusedError(f"401 Unauthorized: the token {token} is not valid")
    if name == "mcp_auth":
        (FOLDER / "sign-in").unlink()
        return "signed in"
    return json.dumps({"jira": jira, "ado": ado}[family](name, arguments))
