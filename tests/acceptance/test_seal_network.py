"""A sealed network as a user meets it: what a session reaches at `full`, what it does not, what is said."""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from isolation.guard.network import network_gap
from isolation.kernel.process_tree import KEEPER_NAME
from tests.acceptance.people import USERS, Person, somebody
from tests.acceptance.program import processes_with, run, started, wait_until, write_story
from tests.conftest import git

pytestmark = pytest.mark.skipif(bool(network_gap()), reason="no network of its own for a session here")

PROBE = """
import errno, json, os, socket, subprocess, sys, urllib.request
named, secret, public, abstract, door = sys.argv[1:]
found = {}
def reach(what, action):
    try:
        found[what] = str(action())
    except OSError as error:
        code = getattr(error, "code", None)
        found[what] = f"HTTP {code}" if code else "refused"
def get(url, proxies=None):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    return lambda: opener.open(url, timeout=5).read().decode()
def connect(family, place, kind=socket.SOCK_STREAM):
    def action():
        with socket.socket(family, kind) as one:
            one.settimeout(2)
            one.connect(place)
            if kind == socket.SOCK_DGRAM:
                one.send(b"x")
        return "connected"
    return action
proxy = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
def tunnel(target):
    def action():
        with socket.create_connection((proxy[0], int(proxy[1])), 5) as one:
            one.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n".encode())
            answer = b""
            while b"\\r\\n\\r\\n" not in answer and (more := one.recv(4096)):
                answer += more
            status = int(answer.split()[1])
            if status != 200:
                return f"HTTP {status}"
            one.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n")
            while more := one.recv(4096):
                answer += more
        return answer.rpartition(b"\\r\\n")[2].decode()
    return action
local = int(named)
reach("named port, plainly", get(f"http://127.0.0.1:{local}/", {}))
reach("named port, by a tunnel", tunnel(f"127.0.0.1:{local}"))
reach("named port, by a plain request", get(f"http://127.0.0.1:{local}/", {"http": os.environ["HTTP_PROXY"]}))
reach("another port of the machine", connect(socket.AF_INET, ("127.0.0.1", int(secret))))
reach("the same through the proxy", tunnel(f"127.0.0.1:{secret}"))
reach("the same by another spelling", tunnel(f"[::ffff:127.0.0.1]:{secret}"))
reach("an address of the machine", connect(socket.AF_INET, (public, int(secret))))
reach("a host", tunnel("evil.example:443"))
reach("a host that ends alike", tunnel("notallowed.example:443"))
reach("metadata", get("http://169.254.169.254/latest/"))
reach("a public address", connect(socket.AF_INET, ("192.0.2.1", 443)))
reach("a name server", connect(socket.AF_INET, ("8.8.8.8", 53), socket.SOCK_DGRAM))
reach("IPv6", connect(socket.AF_INET6, ("2001:db8::1", 443)))
reach("a name", lambda: socket.getaddrinfo("example.org", 443))
reach("abstract socket", connect(socket.AF_UNIX, "\\0" + abstract))
reach("socket in the file system", connect(socket.AF_UNIX, door))
reach("a socket around the network", lambda: socket.socket(40, socket.SOCK_STREAM))
reach("the machine's network", lambda: open("/proc/1/ns/net").close())
own = socket.create_server(("127.0.0.1", 0))
reach("its own server", connect(socket.AF_INET, own.getsockname()))
found["descriptors"] = [os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)]
found["interfaces"] = [line.split(":")[0].strip() for line in open("/proc/self/net/dev") if ":" in line]
json.dump(found, open("found.json", "w"))
"""
REFUSED = {
    "another port of the machine",
    "an address of the machine",
    "a public address",
    "a name server",
    "IPv6",
    "a name",
    "abstract socket",
    "socket in the file system",
    "a socket around the network",
}
FORBIDDEN = {
    "the same through the proxy",
    "the same by another spelling",
    "a host",
    "a host that ends alike",
    "metadata",
}


class _Handler(BaseHTTPRequestHandler):
    """Answers; the path `/hold` keeps its connection until the other side has closed it."""

    protocol_version = "HTTP/1.1"
    served: "Served"

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.served.asked.append(self.path)
        if self.path == "/hold":
            self.rfile.read()
            self.served.let_go.set()
            return
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server on this machine: its port, the paths that it was asked for, and whether `/hold` has ended."""

    port: int
    asked: list[str] = field(default_factory=list)
    let_go: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[Served]:
    """Serve on this machine, outside of every session."""
    handler = type("BoundHandler", (_Handler,), {})
    server = ThreadingHTTPServer((address, 0), handler)
    server.daemon_threads = True
    served = Served(port=server.server_address[1])
    handler.served = served  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def doors(folder: Path, person: Person) -> Iterator[tuple[str, str]]:
    """Listen on an abstract socket, and on one in the file system."""
    abstract, path = f"autopilot-test-{folder.name}", folder / "door.sock"
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        for listening, name in ((first, f"\0{abstract}"), (second, str(path))):
            listening.bind(name)
            listening.listen(4)
        person.hand_over(path)
        yield abstract, str(path)


def own_address() -> str:
    """Return an address of this machine that is not its loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.connect(("192.0.2.1", 9))
        except OSError:
            return "192.0.2.1"
        return str(any_socket.getsockname()[0])


@pytest.mark.parametrize("name", USERS)
def test_a_session_reaches_what_is_named_and_nothing_else(name: str) -> None:
    """At `full` every way out but the named one fails, the proxy's refusals are named, `doctor` knows."""
    with (
        somebody(name) as person,
        serving() as inside,
        serving("0.0.0.0") as outside,  # noqa: S104  another address of this machine must be tried
        doors(person.folder, person) as (abstract, door),
    ):
        named, secret = inside.port, outside.port
        root = person.repository({"probe.py": PROBE})
        words = (str(named), str(secret), own_address(), abstract, door)
        person.story(root, "a", f"{person.python} probe.py {' '.join(words)}")
        (root / "autopilot-multi.toml").write_text(
            f'seal = "full"\nseal-network = ["localhost:{named}", "127.0.0.1:{named}", "*.allowed.example"]\n'
        )
        ran = person.run(root, "--json")
        assert ran.story("a")["status"] == "done", (ran.err, ran.out)
        found = json.loads(person.git(root, "show", "autopilot/a:found.json"))
        log = person.run(root, "logs", "a").out
        if person.uid is None:
            assert "the network is closed but for a list" in person.run(root, "doctor").out
            assert "seal full" in person.run(root, "plan").out
    hello = ("named port, plainly", "named port, by a tunnel", "named port, by a plain request")
    assert {what: found[what] for what in hello} == dict.fromkeys(hello, "hello")
    assert {what for what, how in found.items() if how == "refused"} >= REFUSED, found
    assert {what for what, how in found.items() if how == "HTTP 403"} == FORBIDDEN, found
    assert found["its own server"] == "connected"
    assert found["the machine's network"] == "refused"
    assert found["interfaces"] == ["lo"]
    assert not any("socket" in each for each in found["descriptors"])
    assert outside.asked == []
    kept_off = "it was kept from reaching "
    line = next(line for line in log.splitlines() if kept_off in line)
    for host in (f"127.0.0.1:{secret}", "evil.example:443", "notallowed.example:443", "169.254.169.254:80"):
        assert host in line


REACH = """
import socket, sys, urllib.request
url, door = sys.argv[1:]
try:
    socket.socket(socket.AF_UNIX).connect(door)
except OSError as error:
    print(error)
for proxies in ({}, None):
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler(proxies)).open(url, timeout=5).read()
    except OSError as error:
        print(error)
"""


def test_everything_that_a_story_starts_is_sealed(repo: Path, tmp_path: Path) -> None:
    """The session, its hook, the verify command, and a filter that the program's own git runs later."""
    git(repo, "config", "extensions.worktreeConfig", "true")
    reach = tmp_path / "reach.py"
    reach.write_text(REACH)
    with serving() as served, socket.socket(socket.AF_UNIX) as door:
        place = tmp_path / "door"
        door.bind(str(place))
        door.listen(64)
        door.setblocking(False)

        def reaching(name: str) -> str:
            return f"{sys.executable} {reach} http://127.0.0.1:{served.port}/{name} {place} >&2"

        planted = f"printf '#!/bin/sh\\n%s\\ncat\\n' '{reaching('filter')}' > p && chmod +x p"
        filtered = "git config --worktree filter.own.clean ./p && echo '*.dat filter=own' > .gitattributes"
        command = f"{reaching('session')}; {planted} && {filtered} && echo $AUTOPILOT_STORY_ID > x.dat"
        write_story(repo, "a", command=command, verify=[reaching("verify")])
        hooks = f"[hooks]\nbefore-run = {json.dumps(reaching('hook'))}\n"
        (repo / "autopilot-multi.toml").write_text(f'base-check = "off"\n{hooks}')
        ran = run(repo, "--json", "--seal=full")
        assert ran.story("a")["status"] == "done", ran.err
        assert served.asked == []
        with pytest.raises(BlockingIOError):
            door.accept()
        # Where it is not sealed each of them gets through, so each has really tried.
        write_story(repo, "b", command=command, verify=[reaching("verify")])
        assert run(repo, "--json", "--seal=secrets").story("b")["status"] == "done"
        assert {path.strip("/") for path in served.asked} == {"session", "filter", "verify", "hook"}
        door.accept()[0].close()


def test_a_refused_host_is_named_in_log_reason_and_next_prompt(repo: Path) -> None:
    """A failed session's reason and the next prompt name the host, and what to set; direct use as well.

    So they do with a device that it wanted to make, and a socket for the packets of others.
    """
    raw = "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"
    script = (
        'cat "$AUTOPILOT_PROMPT_FILE" > prompt; curl -sS https://evil.example/; '
        "curl -sS --noproxy '*' http://elsewhere.example/; "
        f"{sys.executable} -c '{raw}'; mkfifo fifo; mknod device b 7 0; exit 1"
    )
    write_story(repo, "a", command=script)
    failed = run(repo, "--json", "--seal=full", "--max-attempts=2").story("a")
    named = "it was kept from reaching evil.example:443: `seal-network` allows hosts"
    direct = "it may have used the network directly, or looked up a name, which sessions cannot"
    prompt = (repo.parent / f"{repo.name}.worktrees" / "a" / "prompt").read_text()
    for text in (failed["reason"], run(repo, "logs", "a").out, prompt):
        assert named in text
        assert direct in text
        assert "calls that only the owner of the machine may make: socket, mknod" in text


def test_a_machine_that_cannot_seal_the_network_refuses_before_anything_starts(repo: Path) -> None:
    """`full` is never less than it says; a list of hosts that cannot be read is refused with its line."""
    write_story(repo, "a", command="echo x > a")
    off = run(repo, "--no-guard", "--seal=full")
    assert (off.code, "seal 'full' is not available for this run: nothing confines" in off.err) == (1, True)
    bad = run(repo, "--seal=full", env={"AUTOPILOT_MULTI_SEAL_NETWORK": "https://example.org/x"})
    assert bad.code == 1
    assert "must be a host, host:port, *.host, a range of addresses, a preset such as @npm" in bad.err


@pytest.mark.parametrize("killed", ["keeper", "coordinator"])
def test_the_way_out_ends_with_its_session(repo: Path, killed: str) -> None:
    """Its connection is closed when the keeper or the coordinator is killed, and nothing is left."""
    holding = "import socket; s = socket.create_connection(('127.0.0.1', {port})); {send}; s.recv(1)"
    with serving() as served:
        send = "s.sendall(b'GET /hold HTTP/1.1\\r\\n\\r\\n')"
        code = holding.format(port=served.port, send=send)
        write_story(repo, "a", command=f'{sys.executable} -c "{code}"')
        env = {"AUTOPILOT_MULTI_SEAL_NETWORK": f"localhost:{served.port}"}
        with started(repo, "--seal=full", "--max-attempts=1", env=env) as running:
            wait_until(lambda: served.asked, what="the session has reached the server")
            keeper = psutil.Process(processes_with(code)[0])
            while keeper.name() != KEEPER_NAME:
                keeper = keeper.parent() or keeper
            os.kill(keeper.pid if killed == "keeper" else running.pid, signal.SIGKILL)
            assert served.let_go.wait(30)
            running.finish()
        wait_until(lambda: not keeper.is_running(), what="the keeper is gone")
        wait_until(lambda: not processes_with(code), what="the session is gone")
