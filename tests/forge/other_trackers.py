"""A scripted GitLab and a scripted Jira, as far as the program asks."""

from typing import Any

from tests.forge.scripted_server import Reply, Request, ScriptedService

TOKEN = "glpat-" + "scripted0" * 3
PROJECT = "acme%2Ftools%2Fshop"


class GitLabApi(ScriptedService):
    """The issues of one project, and their links."""

    prefix = "/api/v4/"

    def __init__(self) -> None:
        super().__init__()
        self.token = TOKEN
        self.issues: dict[int, dict[str, Any]] = {}
        self.blocks: dict[int, list[int]] = {}
        """Which issues an issue blocks."""
        self.route("GET", f"projects/{PROJECT}/issues", self._list)
        self.route("GET", f"projects/{PROJECT}/issues/{{iid}}/links", self._links)

    def add_issue(self, title: str, description: str | None, *labels: str) -> int:
        """Add an issue; return its number."""
        number = len(self.issues) + 1
        self.issues[number] = {
            "iid": number,
            "title": title,
            "description": description,
            "state": "opened",
            "labels": list(labels),
            "author": {"username": "somebody"},
            "web_url": f"{self.origin}/acme/tools/shop/-/issues/{number}",
        }
        return number

    def _list(self, request: Request) -> Reply:
        wanted = set(filter(None, request.query.get("labels", "").split(",")))
        found = [
            {**issue, "blocking_issues_count": len(self.blocks.get(issue["iid"], ()))}
            for issue in self.issues.values()
            if wanted <= set(issue["labels"]) and request.query["state"] in {issue["state"], "all"}
        ]
        return Reply(value=found)

    def _links(self, _: Request, number: str) -> Reply:
        linked = self.blocks.get(int(number), ())
        return Reply(value=[{**self.issues[each], "link_type": "blocks"} for each in linked])


class JiraApi(ScriptedService):
    """The search of a Jira: in the cloud, page by page with a token, or on a company's server, by numbers."""

    def __init__(self, *, cloud: bool) -> None:
        super().__init__()
        self.issues: list[dict[str, Any]] = []
        path = "rest/api/2/search/jql" if cloud else "rest/api/2/search"
        self.route("GET", path, self._cloud if cloud else self._server)

    def add_issue(self, key: str, summary: str, description: Any = None, **fields: Any) -> None:
        """Add an issue."""
        address = f"{self.origin}/rest/api/2/issue/{len(self.issues)}"
        given = {"summary": summary, "description": description, **fields}
        self.issues.append({"key": key, "self": address, "fields": given})

    def _cloud(self, request: Request) -> Reply:
        start = int(request.query.get("nextPageToken", "0"))
        size = min(int(request.query["maxResults"]), 50)
        more = {"nextPageToken": str(start + size)} if start + size < len(self.issues) else {}
        return Reply(value={"issues": self.issues[start : start + size], **more})

    def _server(self, request: Request) -> Reply:
        start = int(request.query.get("startAt", "0"))
        found = self.issues[start : start + 50]
        return Reply(value={"issues": found, "total": len(self.issues), "startAt": start})
