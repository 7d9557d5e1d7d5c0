"""The client of MCP servers: what it starts ends with it, and what a server does wrong is a clear error."""

import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trio

from isolation.keeper.client import open_keeper
from runner.core.work_items.tracker import Tracker
from runner.forge.tracker import client as client_module
from runner.forge.tracker.access import open_backend, probe
from runner.forge.tracker.client import Launch, json_in, open_client
from runner.forge.tracker.errors import AccessError, TrackerError
from runner.forge.tracker.servers import McpServer, Servers
from tests.forge.tracker.scenes import PACKAGE, PLAIN, TOKEN, Scripted

LIMIT = 180.0


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[Launch]:
    """Yield how servers are started below a keeper of the test's own."""
    with trio.fail_after(LIMIT):
        async with open_keeper(alive_lock=tmp_path / "alive") as keeper:
            yield Launch(keeper=keeper, cwd=tmp_path, environment=dict(os.environ))


def server(tracker: Scripted, *wrong: str, name: str = "work") -> McpServer:
    """Return the scripted tracker as a configured server."""
    entry = tracker.entry
    command = (entry["command"], *entry["args"], *wrong)
    return McpServer(name=name, where="mcp.json", command=command, environment=entry["env"])


@pytest.fixture
def jira(tmp_path: Path) -> Scripted:
    """Return a scripted Jira."""
    return Scripted(tmp_path / "jira")


@pytest.mark.parametrize("program", [PLAIN, PACKAGE])
async def test_a_server_is_asked_and_ends_with_the_block(
    launch: Launch, tmp_path: Path, program: Path
) -> None:
    """Its tools are listed, a call is answered, and afterwards no process is left."""
    scripted = Scripted(tmp_path / "jira", program=program)
    async with open_client(server(scripted), launch) as client:
        assert {"jira_search", "jira_create_issue"} <= client.tools
        answer = await client.call("jira_get_all_projects")
        assert answer.data == [{"key": "SHOP", "name": "Shop"}]
        assert str(program) in _processes()
    assert str(program) not in _processes()


def _processes() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("dies", "ended by itself with code 3: no route to [redacted]"),
        ("garbage", "lines that are not MCP"),
        ("endless", "printed a line of more than"),
        ("floods", "did not begin to speak MCP within 2 s"),
        ("silent", "did not begin to speak MCP within 2 s"),
    ],
)
async def test_a_server_that_misbehaves_is_a_clear_error(
    launch: Launch, jira: Scripted, monkeypatch: pytest.MonkeyPatch, wrong: str, words: str
) -> None:
    """It never hangs, and says what the server said last, without its secrets."""
    if "within" in words:
        monkeypatch.setattr(client_module, "START_SECONDS", 2.0)
    monkeypatch.setattr(client_module, "MOST_LINE", 1 << 20)
    with pytest.raises(TrackerError) as caught:
        async with open_client(server(jira, wrong), launch):
            pass
    assert words.replace("16 MB", "") in caught.value.message
    assert TOKEN not in caught.value.message
    assert "work (mcp.json)" in caught.value.message


async def test_a_program_that_is_not_there_is_named(launch: Launch) -> None:
    """With the server that wants it."""
    missing = McpServer(name="work", where="mcp.json", command=("no-such-program",))
    with pytest.raises(TrackerError, match=r"work \(mcp.json\).*no-such-program"):
        async with open_client(missing, launch):
            pass


async def test_access_is_denied_without_showing_the_token(launch: Launch, jira: Scripted) -> None:
    """The words of the tracker are shown, its token is not."""
    jira.set("deny")
    with pytest.raises(AccessError, match="401 Unauthorized") as caught:
        async with open_backend(Tracker.JIRA, Servers(servers=(server(jira),)), lambda _: launch, ""):
            pass
    assert TOKEN not in caught.value.message


async def test_a_server_that_must_sign_in_is_asked_to(launch: Launch, jira: Scripted) -> None:
    """It offers `mcp_auth` alone; whether that helped is seen by the tools that it offers then."""
    jira.set("sign-in")
    servers = Servers(servers=(server(jira, name="Jira-MCP-Server"),))
    async with open_backend(Tracker.JIRA, servers, lambda _: launch, "") as backend:
        assert await backend.find("autopilot-x") == ""
    assert jira.calls[:2] == ["mcp_auth", "jira_search"]


async def test_trackers_are_recognized_by_their_tools(launch: Launch, jira: Scripted, tmp_path: Path) -> None:
    """Whatever they are called; what is no tracker, or cannot start, hides none."""
    ado = Scripted(tmp_path / "ado", "ado")
    jira.set("deny")
    servers = Servers(
        servers=(
            server(jira, name="one"),
            server(ado, name="two"),
            McpServer(name="three", where="mcp.json", command=("false",)),
        )
    )
    probed = await probe(servers, lambda _: launch, "")
    assert {name: one.server.name for name, one in probed.found.items()} == {
        Tracker.JIRA: "one",
        Tracker.ADO: "two",
    }
    assert isinstance(probed.found[Tracker.JIRA].refusal, AccessError)
    assert probed.found[Tracker.ADO].refusal is None
    assert "three" in probed.problems[0]


async def test_without_a_chosen_project_there_must_be_only_one(launch: Launch, jira: Scripted) -> None:
    """Which one is used is never a guess."""
    servers = Servers(servers=(server(jira),))
    async with open_backend(Tracker.JIRA, servers, lambda _: launch, "") as backend:
        assert getattr(backend, "project", "") == "SHOP"
    with pytest.raises(TrackerError, match="no configured MCP server has the tools of Azure DevOps"):
        async with open_backend(Tracker.ADO, servers, lambda _: launch, ""):
            pass


class _Http(BaseHTTPRequestHandler):
    """Speaks MCP over HTTP, with one answer for each request; status 401 without the token."""

    def do_POST(self) -> None:
        """Answer a message."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.send_error(401)
            return
        if "id" not in message:
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-03-26",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]},
        }
        body = json.dumps(
            {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Offer no stream."""
        self.send_error(405)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def _http_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Http) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}/mcp"
        http.shutdown()
        thread.join()


async def test_a_server_is_reached_by_http(launch: Launch) -> None:
    """With its headers; without them it denies access, and one that is gone cannot be reached."""
    with _http_server() as url:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        good = McpServer(name="work", where="mcp.json", url=url, headers=headers)
        async with open_client(good, launch) as client:
            assert client.tools == {"hello"}
        bad = McpServer(name="work", where="mcp.json", url=url, headers={"Authorization": "Bearer other"})
        with pytest.raises(AccessError, match="denies access"):
            async with open_client(bad, launch):
                pass
    with pytest.raises(TrackerError, match=r"work \(mcp.json\)"):
        async with open_client(good, launch):
            pass


@pytest.mark.parametrize(
    ("text", "found"),
    [('{"a": 1}', {"a": 1}), ("noise [1] {", [1]), ("<<x>>\n{}\n<<y>>", {}), ("none", None), ("{{", None)],
)
def test_json_is_found_among_words(text: str, found: object) -> None:
    """Some servers wrap their answers."""
    assert json_in(text) == found
