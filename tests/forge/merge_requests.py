"""A scripted GitLab: issues, merge requests, discussions, members, branches and statuses of one project."""

from typing import Any
from urllib.parse import unquote

from tests.forge.scripted_server import Reply, Request, ScriptedService

PROJECT = "acme/team/shop"
_ID = 7


class GitLabApi(ScriptedService):
    """GitLab as `glab` finds it: REST below `/api/v4/`. A merge at once is counted in `merges`."""

    prefix = "/api/v4/"

    def __init__(self, name: str = PROJECT) -> None:
        super().__init__()
        self.name = name
        self.branches: dict[str, str] = {}
        self.protected: set[str] = set()
        self.requests: dict[int, dict[str, Any]] = {}
        self.discussions: dict[int, list[dict[str, Any]]] = {}
        self.statuses: dict[str, list[dict[str, Any]]] = {}
        self.issues: dict[int, dict[str, Any]] = {}
        self.blocked_by: dict[int, list[int]] = {}
        self.premium = True
        self.members = {"robot": 40, "alice": 30, "guest": 10}
        self.forked: dict[str, Any] | None = None
        self.trains = False
        self.merges = 0
        self._ids = iter(range(100, 100_000))
        self._add_routes()

    def add_note(self, number: int, author: str, body: str, **more: Any) -> dict[str, Any]:
        """Add a discussion with one note of somebody."""
        note = {"id": next(self._ids), "body": body, "author": {"username": author}, "system": False, **more}
        self.discussions.setdefault(number, []).append({"id": f"d{note['id']}", "notes": [note]})
        return note

    def _add_routes(self) -> None:
        def add(method: str, path: str, handler: Any) -> None:
            def at(request: Request, name: str, *parts: str) -> Reply:
                if unquote(name) != self.name:
                    return Reply(value={"message": "404 Project Not Found"}, status=404)
                return handler(request, *parts)  # type: ignore[no-any-return]

            self.route(method, f"projects/{{name}}{path}", at)

        add("GET", "", self._project)
        add("GET", "/repository/branches/{branch}", self._branch)
        add("GET", "/merge_requests", self._find)
        add("POST", "/merge_requests", self._create)
        add("PUT", "/merge_requests/{n}", self._edit)
        add("PUT", "/merge_requests/{n}/merge", self._merge)
        add("POST", "/merge_trains/merge_requests/{n}", self._train)
        add(
            "GET",
            "/merge_requests/{n}/discussions",
            lambda _, n: Reply(value=self.discussions.get(int(n), [])),
        )
        add("POST", "/merge_requests/{n}/discussions/{id}/notes", self._reply)
        add("POST", "/merge_requests/{n}/notes", self._note)
        add("GET", "/members/all", self._members)
        add("GET", "/issues", self._find_issues)
        add("POST", "/issues", self._create_issue)
        add("GET", "/issues/{n}", lambda _, n: Reply(value=self.issues[int(n)]))
        add("PUT", "/issues/{n}", self._edit_issue)
        add("GET", "/issues/{n}/links", self._links)
        add("POST", "/issues/{n}/links", self._link)
        self.route("GET", "user", lambda _: Reply(value={"username": "robot"}))
        add("POST", "/statuses/{sha}", self._add_status)
        add(
            "GET",
            "/repository/commits/{sha}/statuses",
            lambda _, sha: Reply(value=self.statuses.get(sha, [])),
        )

    def _project(self, _: Request) -> Reply:
        access = {"project_access": {"access_level": 40}, "group_access": None}
        shown = {"id": _ID, "path_with_namespace": self.name, "default_branch": "main", "permissions": access}
        return Reply(value=shown | ({"forked_from_project": self.forked} if self.forked else {}))

    def _find_issues(self, request: Request) -> Reply:
        words = request.query.get("search", "")
        return Reply(value=[one for one in self.issues.values() if words in one["description"]])

    def _create_issue(self, request: Request) -> Reply:
        number, labels = len(self.issues) + 1, request.body.get("labels", "")
        self.issues[number] = {
            **request.body,
            "iid": number,
            "project_id": _ID,
            "labels": labels.split(",") if labels else [],
            "author": {"username": "robot"},
        }
        return Reply(value=self.issues[number], status=201)

    def _edit_issue(self, request: Request, number: str) -> Reply:
        self.issues[int(number)].update(request.body)
        return Reply(value=self.issues[int(number)])

    def _links(self, _: Request, number: str) -> Reply:
        linked = self.blocked_by.get(int(number), ())
        return Reply(value=[{**self.issues[one], "link_type": "is_blocked_by"} for one in linked])

    def _link(self, request: Request, number: str) -> Reply:
        body, blockers = request.body, self.blocked_by.setdefault(int(number), [])
        if not self.premium:
            return Reply(value={"message": "Blocked issues not available for current license"}, status=403)
        assert (body["target_project_id"], body["link_type"]) == (_ID, "is_blocked_by")
        if body["target_issue_iid"] in blockers:
            return Reply(value={"message": "Issue(s) already assigned"}, status=409)
        blockers.append(body["target_issue_iid"])
        return Reply(value={}, status=201)

    def _branch(self, _: Request, branch: str) -> Reply:
        name = unquote(branch)
        if name not in self.branches:
            return Reply(value={"message": "404 Branch Not Found"}, status=404)
        return Reply(value={"name": name, "protected": name in self.protected})

    def _find(self, request: Request) -> Reply:
        wanted = request.query["source_branch"]
        found = [each for each in self.requests.values() if each["source_branch"] == wanted]
        for each in found:
            each["sha"] = self.branches.get(wanted) or each["sha"]
        return Reply(value=found[::-1])

    def _create(self, request: Request) -> Reply:
        body, number = request.body, len(self.requests) + 1
        if body["source_branch"] not in self.branches or body["target_branch"] not in self.branches:
            return Reply(value={"message": {"base": ["branch does not exist"]}}, status=400)
        if any(
            each["source_branch"] == body["source_branch"] and each["state"] == "opened"
            for each in self.requests.values()
        ):
            return Reply(value={"message": ["Another open merge request already exists"]}, status=409)
        self.requests[number] = {
            "iid": number,
            "web_url": f"{self.origin}/{self.name}/-/merge_requests/{number}",
            "state": "opened",
            "draft": body["title"].startswith("Draft: "),
            "sha": self.branches[body["source_branch"]],
            "source_project_id": _ID,
            "target_project_id": _ID,
            **body,
        }
        return Reply(value=self.requests[number], status=201)

    def _edit(self, request: Request, number: str) -> Reply:
        found = self.requests[int(number)]
        found.update(request.body)
        found["draft"] = found["title"].startswith("Draft: ")
        return Reply(value=found)

    def _merge(self, request: Request, number: str) -> Reply:
        if not request.body.get("merge_when_pipeline_succeeds"):
            self.merges += 1
        self.requests[int(number)]["queued"] = "pipeline"
        return Reply(value=self.requests[int(number)])

    def _train(self, _: Request, number: str) -> Reply:
        if not self.trains:
            return Reply(value={"message": "403 Forbidden"}, status=403)
        self.requests[int(number)]["queued"] = "train"
        return Reply(value=[self.requests[int(number)]], status=201)

    def _reply(self, request: Request, number: str, to: str) -> Reply:
        (found,) = (each for each in self.discussions[int(number)] if each["id"] == to)
        note = {"id": next(self._ids), "author": {"username": "robot"}, "system": False, **request.body}
        found["notes"].append(note)
        return Reply(value=note, status=201)

    def _note(self, request: Request, number: str) -> Reply:
        return Reply(value=self.add_note(int(number), "robot", request.body["body"]), status=201)

    def _members(self, _: Request) -> Reply:
        return Reply(
            value=[{"username": name, "access_level": level} for name, level in self.members.items()]
        )

    def _add_status(self, request: Request, sha: str) -> Reply:
        status = {"id": next(self._ids), "status": request.body["state"], **request.body}
        self.statuses.setdefault(sha, []).append(status)
        return Reply(value=status, status=201)
