"""The one way out of a session's network: a forward proxy that lets through what rules permit.

Standard library only. It runs in threads of the session's keeper, outside of the namespace: it holds the
sockets that listen inside, see `namespace.py`. So it ends with the session, whatever ends that, and the
coordinator has no work with it. It takes `CONNECT` and plain HTTP requests. A socket for a port of this
machine's loopback has no proxy protocol: it leads to that port.

Invariants:

- A name is resolved here, once, and the address that was judged is the one that is connected to.
- A plain request goes to the host that it names, whatever its headers say, one request a connection.
- What a session sends here can end its own connections at most.
"""

import binascii
import gc
import select
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from isolation.network.rules import Rules, is_name, local_ports

MOST_NAMED = 20
"""How many refused hosts a report names."""

_MOST_CONNECTIONS = 200
_MOST_HEAD = 65536
_CHUNK = 65536
_HEAD_SECONDS = 60.0
_CONNECT_SECONDS = 30.0
_END = b"\r\n\r\n"
_HOP_BY_HOP = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:", b"host:")


class RefusedError(Exception):
    """A request that is not permitted, or leads nowhere: the status of its answer, and why."""


class Upstream:
    """The user's own proxy, through which the machine reaches the network."""

    def __init__(self, url: str, direct: Iterable[str] = ()) -> None:
        from urllib.parse import unquote_to_bytes, urlsplit  # few need it, and each session would load it

        parts = urlsplit(url if "://" in url else f"http://{url}")
        self.usable = parts.scheme == "http" and bool(parts.hostname)
        self.place = (parts.hostname or "", parts.port or 80)
        self.scheme = parts.scheme
        self._direct = [pattern.strip().lower().lstrip("*.") for pattern in direct]
        user = unquote_to_bytes(parts.username or "") + b":" + unquote_to_bytes(parts.password or "")
        self.header = b""
        if parts.username:
            known = binascii.b2a_base64(user, newline=False)
            self.header = b"Proxy-Authorization: Basic " + known + b"\r\n"

    def serves(self, host: str) -> bool:
        """Whether a host is reached through it."""
        return not any(host == each or host.endswith(f".{each}") or not each for each in self._direct)


class Proxy:
    """Serves the sockets that listen in a session's network, and remembers what it refused."""

    def __init__(
        self, listeners: Sequence[socket.socket], allowed: Sequence[str], upstream: Upstream | None = None
    ) -> None:
        self._listeners = listeners
        self._rules = Rules(allowed)
        self._local: Mapping[int, str] = local_ports(allowed)
        self._upstream = upstream
        self._refused: dict[str, None] = {}
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def start(self) -> None:
        """Serve from now on; raises RuntimeError if there can be no thread."""
        gc.enable()  # a keeper starts without, as long as it has nothing to do
        threading.Thread(target=self._serve, daemon=True).start()

    def report(self) -> list[str]:
        """Return the hosts that were refused, with their ports, each once."""
        return list(self._refused)

    def _serve(self) -> None:
        poll = select.poll()
        by_number = {listener.fileno(): listener for listener in self._listeners}
        for listener in self._listeners:
            listener.setblocking(False)
            poll.register(listener, select.POLLIN)
        while True:
            for number, _ in poll.poll():
                self._places.acquire()
                try:
                    client, _ = by_number[number].accept()
                    threading.Thread(target=self._carry, args=(client,), daemon=True).start()
                except (OSError, RuntimeError):  # gone again, or too many descriptors or threads
                    self._places.release()

    def _carry(self, client: socket.socket) -> None:
        """Carry one connection to its end."""
        try:
            with client, suppress(OSError):
                client.settimeout(_HEAD_SECONDS)
                port = client.getsockname()[1]
                local = self._local.get(port)
                try:
                    server = self._open(client) if local is None else self._connect(local, port)
                except RefusedError as error:
                    client.sendall(_answer(*error.args))
                    client.shutdown(socket.SHUT_WR)
                    return
                with server:
                    _splice(client, server)
        finally:
            self._places.release()

    def _open(self, client: socket.socket) -> socket.socket:
        """Read a request and return the connection to its host, with the request passed on."""
        head, rest = _read_head(client)
        line, _, headers = head.partition(b"\r\n")
        method, target, version = _request_line(line)
        tunnel = method == b"CONNECT"
        host, port, path = _tunnel_target(target) if tunnel else _plain_target(target)
        own = b"%b %b %b\r\n" % (method, target, version)
        server, direct = self._reach(host, port)
        try:
            if tunnel and direct:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                head = b""
            elif tunnel:
                header = self._upstream.header if self._upstream else b""
                head = own + b"Host: " + target + b"\r\n" + header + b"\r\n"
            else:
                first = b"%b %b %b\r\n" % (method, path, version) if direct else own
                header = b"" if direct or not self._upstream else self._upstream.header
                head = first + _plain_headers(headers, target) + header + b"Connection: close\r\n\r\n"
            server.sendall(head + rest)
        except OSError:
            server.close()
            raise
        return server

    def _reach(self, host: str, port: int) -> tuple[socket.socket, bool]:
        """Connect to a host if that is permitted; false if it is the user's own proxy that was reached."""
        entry = self._rules.permitting(host, port)
        if entry is None:
            raise self._refusal(host, port)
        upstream = self._upstream
        if upstream is None or entry.local or not upstream.serves(host):
            return self._connect(host, port), True
        if not upstream.usable:
            raise RefusedError("502 Bad Gateway", f"a proxy of the kind {upstream.scheme} is not supported")
        try:
            return socket.create_connection(upstream.place, _CONNECT_SECONDS), False
        except OSError as error:
            raise RefusedError("502 Bad Gateway", f"your proxy cannot be reached: {error}") from error

    def _connect(self, host: str, port: int) -> socket.socket:
        """Resolve a host and connect to the first of its addresses that it may have and that answers."""
        entry = self._rules.permitting(host, port)
        try:
            # As bytes: a text would be taken for an international name first.
            found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise RefusedError("502 Bad Gateway", f"{host} has no address: {error}") from error
        usable = [
            (family, place)
            for family, _, _, _, place in found
            if entry is not None and self._rules.may_lead_to(str(place[0]), port, entry)
        ]
        if not usable:
            raise self._refusal(host, port, f", since its address {found[0][4][0]} is not a public one")
        failure: OSError | None = None
        for family, place in usable:
            server = socket.socket(family, socket.SOCK_STREAM)
            try:
                server.settimeout(_CONNECT_SECONDS)
                server.connect(place)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                server.close()
                failure = error
            else:
                return server
        raise RefusedError("502 Bad Gateway", f"{host} cannot be reached: {failure}")

    def _refusal(self, host: str, port: int, why: str = "") -> RefusedError:
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if len(self._refused) < MOST_NAMED:
            self._refused[shown] = None
        words = f"sessions may not reach {shown}{why}; the setting `seal-network` allows hosts"
        return RefusedError("403 Not allowed by seal-network", words)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """Read a request up to the end of its headers; also returns what came after them."""
    data = b""
    while _END not in data:
        more = client.recv(_CHUNK)
        if not more or len(data) > _MOST_HEAD:
            raise RefusedError("400 Bad Request", "no request for a proxy")
        data += more
    head, _, rest = data.partition(_END)
    return head + b"\r\n", rest


def _request_line(line: bytes) -> tuple[bytes, bytes, bytes]:
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):  # noqa: PLR2004  method, target, version
        raise RefusedError("400 Bad Request", "no request for a proxy")
    return words[0], words[1], words[2]


def _tunnel_target(target: bytes) -> tuple[str, int, bytes]:
    host, port = _place(target, default=None)
    return host, port, b""


def _plain_target(target: bytes) -> tuple[str, int, bytes]:
    """Split an absolute URL; whatever is not one was not meant for a proxy."""
    if target[:7].lower() != b"http://":
        raise RefusedError("400 Bad Request", "a proxy takes CONNECT, or a whole http:// URL")
    authority = _authority(target)
    host, port = _place(authority, default=80)
    path = target[7 + len(authority) :]
    return host, port, path if path.startswith(b"/") else b"/" + path


def _authority(target: bytes) -> bytes:
    rest = target[7:]
    ends = [at for at in (rest.find(mark) for mark in (b"/", b"?", b"#")) if at >= 0]
    return rest[: min(ends)] if ends else rest


def _place(text: bytes, *, default: int | None) -> tuple[str, int]:
    """Split `host:port`; a host is a name or an address, and nothing else."""
    name, colon, digits = text.decode("latin-1").rpartition(":")
    if not colon or digits.endswith("]"):
        name, digits = text.decode("latin-1"), "" if default is None else str(default)
    host = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    numbered = digits.isascii() and digits.isdigit() and 0 < int(digits[:6]) <= 0xFFFF  # noqa: PLR2004
    # An address of IPv6 is read as such when it is judged.
    named = is_name(host.lower()) or (":" in host and set(host.lower()) <= set("0123456789abcdef:."))
    if not numbered or not named:
        raise RefusedError("400 Bad Request", "no valid host and port")
    return host.lower().rstrip("."), int(digits)


def _plain_headers(headers: bytes, target: bytes) -> bytes:
    """Return the headers to pass on: they name the host of the URL, and nothing about this connection."""
    kept = [line for line in headers.split(b"\r\n") if line and not line.lower().startswith(_HOP_BY_HOP)]
    return b"".join(line + b"\r\n" for line in (b"Host: " + _authority(target), *kept))


def _answer(status: str, why: str) -> bytes:
    body = f"autopilot-multi: {why}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


def _splice(client: socket.socket, server: socket.socket) -> None:
    """Carry bytes both ways until both sides have ended, or one is gone."""
    other = {client.fileno(): (client, server), server.fileno(): (server, client)}
    for side in (client, server):
        side.settimeout(None)
        side.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    poll = select.poll()
    for number in other:
        poll.register(number, select.POLLIN)
    while other:
        for number, _ in poll.poll():
            source, target = other[number]
            data = source.recv(_CHUNK)
            if data:
                target.sendall(data)
                continue
            poll.unregister(number)
            del other[number]
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)
