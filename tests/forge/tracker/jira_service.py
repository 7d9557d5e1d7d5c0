"""A scripted Jira on loopback: what MCP servers use of its REST interface, version 2, as Data Center has it.

It can be told to deny access, and to hold the answer to a creation, so that a test can kill who waits for it.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "jira-token-of-the-test-0123456789"  # noqa: S105  nothing else knows it
PROJECT = {"id": "10000", "key": "SHOP", "name": "Shop"}
EPIC_LINK = "customfield_10014"
FIELDS = [
    {"id": "summary", "name": "Summary", "custom": False, "schema": {"type": "string"}},
    {"id": "labels", "name": "Labels", "custom": False, "schema": {"type": "array"}},
    {
        "id": EPIC_LINK,
        "name": "Epic Link",
        "custom": True,
        "schema": {"type": "any", "custom": "com.pyxis.greenhopper.jira:gh-epic-link"},
    },
    {
        "id": "customfield_10011",
        "name": "Epic Name",
        "custom": True,
        "schema": {"type": "string", "custom": "com.pyxis.greenhopper.jira:gh-epic-label"},
    },
]
BLOCKS = {"id": "1", "name": "Blocks", "inward": "is blocked by", "outward": "blocks"}
TYPES = [{"id": "1", "name": "Epic", "subtask": False}, {"id": "2", "name": "Task", "subtask": False}]


class Jira:
    """What it holds, what it was asked, and how it behaves."""

    def __init__(self) -> None:
        self.issues: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.denied = False
        self.hold_at = ""
        self.held = threading.Event()
        self.go_on = threading.Event()
        self.lock = threading.Lock()

    @property
    def created(self) -> list[tuple[str, str, str]]:
        """Key, type and summary of all issues, in their order."""
        return [
            (key, one["fields"]["issuetype"]["name"], one["fields"]["summary"])
            for key, one in self.issues.items()
        ]

    @property
    def epics(self) -> dict[str, str]:
        """The epic of each issue that has one."""
        fields = {key: one["fields"] for key, one in self.issues.items()}
        found = {key: one.get(EPIC_LINK) or one.get("parent", {}).get("key") for key, one in fields.items()}
        return {key: epic for key, epic in found.items() if epic}

    @property
    def blockers(self) -> list[tuple[str, str]]:
        """Pairs of an issue and one that blocks it."""
        return [
            (key, link["inwardIssue"]["key"])
            for key, one in self.issues.items()
            for link in one["fields"]["issuelinks"]
            if "inwardIssue" in link
        ]

    def hold(self, summary: str) -> None:
        """Hold the answer to the creation of this issue: it exists, and nobody has been told."""
        self.hold_at = summary
        self.held.clear()
        self.go_on.clear()

    def create(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Create an issue."""
        with self.lock:
            key = f"SHOP-{len(self.issues) + 1}"
            kind = next(one for one in TYPES if one["name"] == fields["issuetype"]["name"])
            self.issues[key] = {
                "id": str(20000 + len(self.issues)),
                "key": key,
                "fields": {
                    "status": {"name": "To Do", "statusCategory": {"name": "To Do"}},
                    "created": "2026-01-01T00:00:00.000+0000",
                    "updated": "2026-01-01T00:00:00.000+0000",
                    **fields,
                    "issuetype": kind,
                    "project": PROJECT,
                    "issuelinks": [],
                },
            }
        if fields["summary"] == self.hold_at:
            self.hold_at = ""
            self.held.set()
            self.go_on.wait(60)
        return {"id": self.issues[key]["id"], "key": key}

    def link(self, data: dict[str, Any]) -> None:
        """Link two issues, again if that is asked for again."""
        inward, outward = data["inwardIssue"]["key"], data["outwardIssue"]["key"]
        number = str(len(self.blockers) + 1)
        other = self.issues[inward]
        about = {"id": other["id"], "key": inward, "fields": {"summary": other["fields"]["summary"]}}
        link = {"id": number, "type": BLOCKS, "inwardIssue": about}
        self.issues[outward]["fields"]["issuelinks"].append(link)

    def search(self, jql: str) -> list[dict[str, Any]]:
        """Find issues by label, or all."""
        label = re.search(r'labels = "?([\w-]+)"?', jql)
        kind = re.search(r"issuetype = \"?(\w+)", jql)
        return [
            one
            for one in self.issues.values()
            if (not label or label[1] in one["fields"].get("labels", ()))
            and (not kind or kind[1] == one["fields"]["issuetype"]["name"])
        ]


class _Handler(BaseHTTPRequestHandler):
    jira: Jira
    protocol_version = "HTTP/1.1"

    def _answer(self, data: Any, status: int = 200) -> None:
        body = json.dumps(data).encode() if data is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        data = json.loads(self.rfile.read(length) or b"null")
        url = urlsplit(self.path)
        self.jira.requests.append(f"{self.command} {url.path}")
        if self.jira.denied or self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer({"errorMessages": ["You are not authenticated."]}, 401)
            return
        name = url.path.partition("/rest/api/2/")[2]
        query = {key: value[0] for key, value in parse_qs(url.query).items()}
        found = self._route(self.command, name, query, data)
        if found is None:
            self._answer({"errorMessages": [f"not scripted: {self.command} {self.path}"]}, 404)
        else:
            self._answer(*found)

    def _route(  # noqa: C901, PLR0911, PLR0912  one arm per resource
        self, method: str, name: str, query: dict[str, str], data: Any
    ) -> tuple[Any, int] | None:
        jira = self.jira
        match method, name.split("/"):
            case "GET", ["myself"]:
                return {"name": "tester", "key": "tester", "displayName": "Tester"}, 200
            case "GET", ["field"]:
                return FIELDS, 200
            case "GET", ["project"]:
                return [PROJECT], 200
            case "GET", ["project", _]:
                return {**PROJECT, "issueTypes": TYPES}, 200
            case "GET", ["issueLinkType"]:
                return {"issueLinkTypes": [BLOCKS]}, 200
            case "GET", ["issue", "createmeta", *_]:
                fields = {one["id"]: {"name": one["name"], "required": False} for one in FIELDS}
                types = [{**one, "fields": fields} for one in TYPES]
                projects = [{**PROJECT, "issuetypes": types}]
                return {"projects": projects, "issueTypes": types, "values": types}, 200
            case (("GET" | "POST"), ["search"]):
                jql = query.get("jql") or (data or {}).get("jql", "")
                found = jira.search(jql)
                return {"issues": found, "total": len(found), "startAt": 0, "maxResults": 50}, 200
            case "POST", ["issue"]:
                return jira.create(data["fields"]), 201
            case "POST", ["issueLink"]:
                jira.link(data)
                return None, 201
            case "GET", ["issue", key] if key in jira.issues:
                return jira.issues[key], 200
            case "PUT", ["issue", key] if key in jira.issues:
                jira.issues[key]["fields"].update(data["fields"])
                return None, 204
            case "GET", ["issue", _, "comment"]:
                return {"comments": []}, 200
            case _:
                return None

    do_GET = do_POST = do_PUT = _handle  # noqa: N815  names of the base class

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Service(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing: a client may be killed while it waits."""


@contextmanager
def serving() -> Iterator[tuple[Jira, str]]:
    """Serve a Jira while the block lasts; yields it with its address."""
    jira = Jira()
    handler = type("Handler", (_Handler,), {"jira": jira})
    with _Service(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield jira, f"http://127.0.0.1:{http.server_address[1]}"
        finally:
            jira.go_on.set()
            http.shutdown()
            thread.join()
