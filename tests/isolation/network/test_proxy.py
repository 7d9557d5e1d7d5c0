"""The proxy by itself, on this machine's loopback: what it passes on, and what it refuses."""

import socket
import threading
from collections.abc import Iterator

import pytest

from isolation.network.proxy import Proxy

CLOSED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class Origin:
    """A server that keeps what it was sent, and answers."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.seen: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                data = b""
                while b"\r\n\r\n" not in data and (more := client.recv(4096)):
                    data += more
                self.seen.append(data)
                client.sendall(CLOSED)


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Return a server."""
    made = Origin()
    yield made
    made.listener.close()


def ask(proxy: Proxy, request: bytes) -> bytes:
    """Send a request to the proxy, and return all that comes back."""
    with socket.create_connection(proxy._listeners[0].getsockname(), 10) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while more := client.recv(4096):
            answer += more
    return answer


@pytest.fixture
def proxy(origin: Origin) -> Proxy:
    """Return a proxy that permits the server by its address, and a wildcard."""
    listener = socket.create_server(("127.0.0.1", 0))
    made = Proxy([listener], [f"127.0.0.1:{origin.port}", f"*.allowed.example:{origin.port}"])
    made.start()
    return made


def test_a_plain_request_goes_to_its_url_with_the_host_of_its_url(proxy: Proxy, origin: Origin) -> None:
    """Headers that name another host, or concern the connection to the proxy, are not passed on."""
    url = f"http://127.0.0.1:{origin.port}/x?y=1"
    more = "Host: evil.example\r\nProxy-Authorization: Basic eA==\r\nConnection: keep-alive\r\nX-Own: 1"
    answer = ask(proxy, f"GET {url} HTTP/1.1\r\n{more}\r\n\r\n".encode())
    assert answer.endswith(b"ok")
    line, *headers = origin.seen[0].decode().rstrip().split("\r\n")
    assert line == "GET /x?y=1 HTTP/1.1"
    assert headers == [f"Host: 127.0.0.1:{origin.port}", "X-Own: 1", "Connection: close"]
    assert proxy.report() == []


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1",
        "GET ftp://a.org/ HTTP/1.1",
        "GET http://user@127.0.0.1/ HTTP/1.1",
        "GET http://a.org\\@b.org/ HTTP/1.1",
        "CONNECT a.org HTTP/1.1",
        "CONNECT a.org:99999 HTTP/1.1",
        "CONNECT a.org:1:2 HTTP/1.1",
        "CONNECT [::1 HTTP/1.1",
        "CONNECT a\tb:443 HTTP/1.1",
        "CONNECT a.org:443",
        "PRI * HTTP/2.0",
        "\0\1\2 \xff http://x HTTP/1.1",
    ],
)
def test_what_is_no_request_for_a_proxy_is_answered_and_goes_nowhere(
    proxy: Proxy, origin: Origin, line: str
) -> None:
    """Nothing of it is passed on, and the proxy serves the next one."""
    assert ask(proxy, f"{line}\r\n\r\n".encode("latin-1")).startswith(b"HTTP/1.1 400 ")
    assert origin.seen == []
    assert ask(proxy, f"GET http://127.0.0.1:{origin.port}/ HTTP/1.1\r\n\r\n".encode()).endswith(b"ok")


def test_refused_hosts_are_named_once_and_not_without_end(proxy: Proxy, origin: Origin) -> None:
    """A session that tries a thousand hosts does not fill the report."""
    for number in range(30):
        answer = ask(proxy, f"CONNECT h{number % 25}.example:443 HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 403 Not allowed by seal-network\r\n")
    assert proxy.report() == [f"h{number}.example:443" for number in range(20)]
    assert origin.seen == []
