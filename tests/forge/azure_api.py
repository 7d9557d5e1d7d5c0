"""A scripted Azure DevOps: what `az boards query` and `az devops invoke` ask of its REST interface."""

import base64
from typing import Any

from tests.forge.scripted_server import Reply, Request, ScriptedService

TOKEN = "scripted0" * 6
QUERY = "Shared Queries/Autopilot"
_QUERY_ID = "11111111-2222-3333-4444-555555555555"
_LOCATIONS = {
    "e81700f7-3be2-46de-8624-2eb35882fcaa": ("Location", "ResourceAreas", "_apis/{resource}/{areaId}"),
    "1a9c53f7-f243-4447-b110-35ef023636e4": ("wit", "wiql", "{project}/{team}/_apis/{area}/{resource}"),
    "a02355f5-5f8a-4671-8e32-369d23aac83d": ("wit", "wiql", "{project}/{team}/_apis/{area}/{resource}/{id}"),
    "a67d190c-c41f-424b-814d-0e906f659301": (
        "wit",
        "queries",
        "{project}/_apis/{area}/{resource}/{*query}",
    ),
    "72c7ddf8-2cdc-4f60-90cd-ab71c14a399b": ("wit", "workItems", "{project}/_apis/{area}/{resource}/{id}"),
    "908509b6-4248-4475-a1cd-829139ba419f": ("wit", "workItemsBatch", "{project}/_apis/{area}/{resource}"),
}
"""Where the service says that its resources are, by the ids that the program knows them by."""


class AzureApi(ScriptedService):
    """The work items of the organization `acme`, all of which every query finds."""

    def __init__(self) -> None:
        super().__init__()
        self.token = base64.b64encode(f":{TOKEN}".encode()).decode()
        self.items: dict[int, dict[str, Any]] = {}
        self.route("OPTIONS", "acme/_apis", lambda _: _listed([_location(one) for one in _LOCATIONS]))
        self.route("GET", "acme/_apis/ResourceAreas", lambda _: _listed([]))
        self.route("POST", "acme/_apis/wit/wiql", self._found)
        self.route("POST", "acme/shop/_apis/wit/wiql", self._found)
        self.route("GET", f"acme/_apis/wit/wiql/{_QUERY_ID}", self._found)
        self.route("GET", f"acme/shop/_apis/wit/wiql/{_QUERY_ID}", self._found)
        self.route("GET", "acme/shop/_apis/wit/queries/{query}", lambda *_: Reply(value={"id": _QUERY_ID}))
        self.route("GET", "acme/_apis/wit/workItems", self._rows)
        self.route("POST", "acme/_apis/wit/workItemsBatch", self._batch)

    def add_item(self, number: int, title: str, *after: int, **fields: Any) -> None:
        """Add a work item that waits for others."""
        base = "https://dev.azure.com/acme/_apis/wit/workItems"
        self.items[number] = {
            "id": number,
            "rev": 1,
            "url": f"{base}/{number}",
            "fields": {"System.Id": number, "System.Title": title, **fields},
            "relations": [
                {"rel": "System.LinkTypes.Dependency-Reverse", "url": f"{base}/{other}"} for other in after
            ],
        }

    def _found(self, *_: object) -> Reply:
        items = [{"id": number, "url": item["url"]} for number, item in self.items.items()]
        columns = [{"referenceName": "System.Id", "name": "ID"}]
        flat = {"queryType": "flat", "asOf": "2026-01-01T00:00:00Z", "columns": columns, "workItems": items}
        return Reply(value=flat)

    def _rows(self, request: Request) -> Reply:
        numbers = [int(one) for one in request.query["ids"].split(",")]
        return _listed([{**self.items[one], "relations": None} for one in numbers])

    def _batch(self, request: Request) -> Reply:
        return _listed([self.items[one] for one in request.body["ids"]])


def _listed(values: list[Any]) -> Reply:
    return Reply(value={"count": len(values), "value": values})


def _location(name: str) -> dict[str, Any]:
    area, resource, route = _LOCATIONS[name]
    versions = {"minVersion": "1.0", "maxVersion": "7.2", "releasedVersion": "7.1", "resourceVersion": 1}
    return {"id": name, "area": area, "resourceName": resource, "routeTemplate": route, **versions}
