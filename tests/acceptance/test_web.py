"""The real page of a real run over a real socket: shown, steered, refused to others, gone with the run."""

import re
import signal
import socket
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from isolation.files.lease import holder_is_alive
from runner.serve.web.access.address import address_path, read_address
from tests.acceptance.program import run, started, wait_until, write_story, writes
from tests.serve.web.project import served


class Socket:
    """A plain client with a cookie."""

    def __init__(self, url: str) -> None:
        self.place = urlsplit(url)
        self.cookie = ""
        given = self.ask("GET", f"/?{self.place.query}")[1]["set-cookie"]
        self.cookie = given.partition(";")[0]

    def ask(
        self, method: str, path: str, form: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], str]:
        """Send one request; return status, headers and text."""
        link = HTTPConnection(self.place.hostname or "", self.place.port, timeout=30)
        headers = {"Cookie": self.cookie, "Origin": f"http://{self.place.netloc}"}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        link.request(method, path, urlencode(form) if form is not None else None, headers)
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text

    def watch(self, path: str) -> socket.socket:
        """Open a stream of events, which nobody has read yet."""
        link = socket.create_connection((self.place.hostname, self.place.port), timeout=30)
        head = f"GET {path} HTTP/1.1\r\nHost: {self.place.netloc}\r\nCookie: {self.cookie}\r\n\r\n"
        link.sendall(head.encode())
        return link


def _read_until(link: socket.socket, text: str) -> str:
    seen = b""
    while text.encode() not in seen:
        part = link.recv(1 << 16)
        assert part, f"the stream ended before {text!r}"
        seen += part
    return seen.decode()


def test_a_run_is_watched_and_stopped_over_a_socket(repo: Path, tmp_path: Path) -> None:
    """The board shows the story at work within a second of its output; `stop now` on the page ends it."""
    ready = tmp_path / "ready"
    write_story(repo, "a", command=f"echo one; touch {ready}; while true; do echo 'two <b>'; sleep 0.2; done")
    with served(repo) as (url, web):
        token = urlsplit(url).query.partition("=")[2]
        with started(repo, "run", "--json") as program:
            wait_until(ready.exists, what="the session runs")
            browser = Socket(url)
            with closing(browser.watch("/events?page=board")) as link:
                seen = _read_until(link, "two &lt;b&gt;")
                assert "list-working" in seen
                status, _, page = browser.ask("GET", "/")
                assert (status, "card-a" in page) == (200, True)
                key = re.findall(r'name="key" value="(\w+)"', page)[0]
                form = {"key": key, "story": "a", "when": "now", "back": "/stories/a"}
                status, headers, _ = browser.ask("POST", "/do/stop", form)
                assert (status, headers["location"].startswith("/stories/a?said=")) == (303, True)
                _read_until(link, "pill stopped")
            assert program.finish().story("a")["status"] == "stopped"
        command_line = Path(f"/proc/{web.pid}/cmdline").read_text()
        assert token not in command_line, "other users can read command lines"
        assert address_path(repo / ".git").stat().st_mode & 0o077 == 0
        assert token not in web.err
        web.send(signal.SIGINT)
        assert web.finish().code == 0
    assert read_address(repo / ".git") is None


def test_run_web_serves_the_page_beside_the_run_and_ends_with_it(repo: Path, tmp_path: Path) -> None:
    """The run prints the address; another process serves it, and is gone with a run that is killed."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    waits = f"touch {ready}; until test -f {go}; do sleep 0.05; done"
    write_story(repo, "a", command=f"{waits}; {writes('a.txt')}")
    with started(repo, "run", "--web") as program:
        wait_until(ready.exists, what="the session runs")
        address = read_address(repo / ".git")
        assert address is not None
        assert address.pid != program.pid
        assert address.url in program.err
        assert "card-a" in Socket(address.url).ask("GET", "/")[2]
        logs = (repo / ".git" / "autopilot").rglob("*.log")
        assert not any("token=" in path.read_text(errors="replace") for path in logs)
        program.send(signal.SIGKILL)
        wait_until(lambda: not _lives(address.pid), what="the page has ended with the run")
    wait_until(lambda: not holder_is_alive(repo / ".git"), what="the run is over")
    go.touch()


@pytest.mark.slow
def test_a_client_that_stops_reading_is_dropped_and_harms_nobody(repo: Path, tmp_path: Path) -> None:
    """While one client reads nothing, another one is served; then the first one's connection ends."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    for name in "abcd":
        # Each time another last line, so that the board changes, too.
        lines = f'n=$((n+1)); seq -f "%g {name * 3000} $n" 1 40'
        loud = f"touch {ready}; until test -f {go}; do {lines}; sleep 0.05; done"
        write_story(repo, name, command=loud)
    with served(repo) as (url, _), started(repo, "run", "--max-stories=4") as program:
        wait_until(ready.exists, what="the sessions run")
        browser = Socket(url)
        deadline = time.monotonic() + 180  # a slow machine writes less
        dropped = False
        with (
            closing(browser.watch("/events?page=story&story=a")) as link,
            closing(browser.watch("/events?page=board")) as other,
        ):
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            while not dropped and time.monotonic() < deadline:
                assert other.recv(1 << 16), "the other one is served all the time"
                dropped = not has_stream(urlsplit(url).port or 0, link)
            assert dropped
            assert browser.ask("GET", "/")[0] == 200
        go.touch()
        program.finish()


def has_stream(port: int, link: socket.socket) -> bool:
    """Whether the server still has its end of a connection."""
    mine = link.getsockname()[1]
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = {(int(row[1].rpartition(":")[2], 16), int(row[2].rpartition(":")[2], 16)): row[3] for row in rows}
    return ends.get((port, mine)) == "01"


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_web_refuses_what_it_cannot_serve(repo: Path) -> None:
    """A taken port, an unknown run and a wrong port are errors that say what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = run(repo, "web", "--port", str(taken.getsockname()[1]))
    assert refused.code == 1
    assert "cannot listen" in refused.err
    assert "--port" in refused.err
    assert run(repo, "web", "--port", "70000").code == 1
    assert run(repo, "web", "nope").code == 1
