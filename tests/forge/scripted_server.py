"""A scripted web service on loopback: routes over plain values, faults on demand, a book of every request."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.forge.authority import Authority

CUT, HALF = "cut", "half"
"""Faults besides a status: the connection ends before an answer, or in the middle of its body."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it came in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any

    @property
    def line(self) -> str:
        """Method and path, as `POST repos/o/r/pulls`."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What is answered; a list is answered page by page."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class Fault:
    """What happens to the next `times` requests for which `when` holds.

    `kind` is a status, or CUT or HALF. With `done` the request is carried out, and only its answer is lost.
    """

    kind: int | str
    when: Callable[[Request], bool] = lambda _: True
    times: int = 1
    done: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    value: Any = field(default_factory=lambda: {"message": "scripted fault"})


Route = Callable[..., Reply]


class ScriptedService:
    """Routes by method and pattern; a derived class adds them with `route`, and keeps its state in values.

    `book` has every request that came, with `faults` also those that were not answered.
    """

    prefix = "/"
    page = 100

    def __init__(self) -> None:
        self.book: list[Request] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self.origin = ""
        self.token = ""
        """If it is set, only requests that carry it are answered."""
        self._routes: list[tuple[str, re.Pattern[str], Route]] = []

    def route(self, method: str, path: str, handler: Route) -> None:
        """Answer requests for a path; `{name}` in it is one part, and given to the handler by position."""
        form = re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(path).replace("/", "/"))
        self._routes.append((method, re.compile(form), handler))

    def asked(self, method: str, form: str = ".*") -> list[Request]:
        """Return the requests of the book with this method, and a path of this form."""
        with self.lock:
            return [each for each in self.book if each.method == method and re.fullmatch(form, each.path)]

    def fault(self, request: Request) -> Fault | None:
        """Take the fault that strikes a request, if one does."""
        for fault in self.faults:
            if fault.times > 0 and fault.when(request):
                fault.times -= 1
                return fault
        return None

    def allowed(self, request: Request) -> bool:
        """Whether a request carries the token."""
        given = (value.rpartition(" ")[2] for value in request.headers.values())
        return not self.token or self.token in given

    def answer(self, request: Request) -> Reply:
        """Carry out a request."""
        if not self.allowed(request):
            return Reply(value={"message": "Bad credentials"}, status=401)
        for method, form, handler in self._routes:
            found = form.fullmatch(request.path)
            if found and method == request.method:
                return self.paged(request, handler(request, *found.groups()))
        return Reply(value={"message": f"Not Found: {request.line}"}, status=404)

    def paged(self, request: Request, reply: Reply) -> Reply:
        """Return one page of a list, with the address of the next one in its headers."""
        if not isinstance(reply.value, list):
            return reply
        size = min(int(request.query.get("per_page", 30)), self.page)
        number = int(request.query.get("page", 1))
        items = reply.value[(number - 1) * size : number * size]
        headers = dict(reply.headers)
        if number * size < len(reply.value):
            others = "&".join(f"{name}={value}" for name, value in request.query.items() if name != "page")
            url = f"{self.origin}{self.prefix}{request.path}?{others}&page={number + 1}"
            headers["Link"] = f'<{url}>; rel="next"'
        return Reply(value=items, status=reply.status, headers=headers)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    authority: Authority | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        # The handshake belongs to the thread of the connection, so that a silent client blocks nobody.
        if self.authority is None:
            super().finish_request(request, client_address)
            return
        with self.authority.context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that go away."""


def _handler(service: ScriptedService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            split = urlsplit(self.path)
            data = self._body()
            with suppress(ValueError):
                data = json.loads(data) if data else None
            request = Request(
                method=self.command,
                path=split.path.removeprefix(service.prefix).strip("/"),
                query=dict(parse_qsl(split.query, keep_blank_values=True)),
                headers=dict(self.headers.items()),
                body=data,
            )
            with service.lock:
                service.book.append(request)
                fault = service.fault(request)
                reply = service.answer(request) if fault is None or fault.done or fault.kind == HALF else None
            if fault is not None and isinstance(fault.kind, int):
                reply = Reply(value=fault.value, status=fault.kind, headers=fault.headers)
            if reply is None or (fault is not None and fault.kind == CUT):
                self.close_connection = True
                return
            self._write(reply, half=fault is not None and fault.kind == HALF)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = _serve  # noqa: N815  their names

        def _body(self) -> Any:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _write(self, reply: Reply, *, half: bool) -> None:
            data = b"" if reply.value is None else json.dumps(reply.value).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if half else data)
            self.close_connection = half

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serving(service: ScriptedService, authority: Authority | None = None) -> Iterator[str]:
    """Serve on a free port, over TLS if there is an authority; yields `localhost:PORT`."""
    server = _Server(("127.0.0.1", 0), _handler(service))
    server.authority = authority
    host = f"localhost:{server.server_address[1]}"
    service.origin = f"{'http' if authority is None else 'https'}://{host}"
    thread = threading.Thread(target=BaseServer.serve_forever, args=(server, 0.05))
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
