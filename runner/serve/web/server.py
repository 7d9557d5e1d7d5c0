"""The server of the page: its routes, the socket it listens on, and its life."""

import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from runner.core.errors import RunnerError, UsageError
from runner.core.text.screen import neutral
from runner.serve.web.access.guard import Guard, Keys, new_keys
from runner.serve.web.actions import Actions
from runner.serve.web.live import WRITE_SECONDS, Hub
from runner.serve.web.notices import Notices
from runner.serve.web.pages import Pages
from runner.serve.web.render import render
from runner.serve.web.source import Source
from runner.serve.web.views import Frame

PORT = 8717
"""The port of the page by default; if it is taken, any other."""

SEND_BUFFER = 256 * 1024
CLOSE_SECONDS = 0.5
READ_SECONDS = 30.0


class Web(Struct, frozen=True, kw_only=True):
    """A page that is ready to be served."""

    app: ASGIApp
    hub: Hub
    source: Source
    keys: Keys


def make_web(directory: Path, *, run: str = "", host: str = "127.0.0.1", port: int = PORT) -> Web:
    """Build the page of a repository."""
    keys, source, notices = new_keys(), Source(directory, run), Notices()
    frame = Frame(form=keys.form)
    hub = Hub(source, frame)
    pages = Pages(source=source, hub=hub, frame=frame, notices=notices)
    inner = Starlette()
    guard = Guard(inner, keys=keys, host=host, port=port)
    actions = Actions(source=source, notices=notices, is_own_form=guard.is_own_form)
    inner.router.routes += [
        Route("/", pages.board),
        Route("/stories/{story}", pages.story),
        Route("/landing", pages.landing),
        Route("/timeline", pages.timeline),
        Route("/runs", pages.runs),
        Route("/settings", pages.settings),
        Route("/add", pages.add),
        Route("/events", pages.events),
        Route("/metrics", pages.metrics),
        Route("/static/{name}", pages.static),
        Route("/do/{action}", actions.act, methods=["POST"]),
    ]
    inner.add_exception_handler(RunnerError, _failed)
    return Web(app=guard, hub=hub, source=source, keys=keys)


async def _failed(request: Request, error: Exception) -> Response:
    """Show an error that a person can act on as a page."""
    message, hint = str(getattr(error, "message", error)), str(getattr(error, "hint", ""))
    status = 404 if getattr(error, "code", "") == "not-found" else 500
    page = render(
        "error.html",
        path=request.url.path,
        repository="",
        frame=Frame(form=""),
        said=None,
        message=neutral(message),
        hint=neutral(hint),
    )
    return HTMLResponse(page, status_code=status)


def listen(host: str, port: int | None) -> socket.socket:
    """Open the socket: at the port, or without one at the usual port if it is free, else at any."""
    wanted = (PORT, 0) if port is None else (port,)
    for number in wanted:
        try:
            return _bound(host, number)
        except OSError as error:
            if number == wanted[-1]:
                where = f"{host} port {number}" if number else host
                raise UsageError(
                    f"cannot listen on {where}: {error.strerror or error}",
                    hint="name another with --port, or none.",
                ) from error
    raise AssertionError("unreachable")


def _bound(host: str, port: int) -> socket.socket:
    family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # What a browser does not read waits in the kernel only for so long, and in memory not at all.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(WRITE_SECONDS * 1000))
        made.bind(where)
        made.listen(100)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def url_of(host: str, port: int, keys: Keys) -> str:
    """Return the address of the page, with its token."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  compared, not bound
    name = f"[{shown}]" if ":" in shown else shown
    return f"http://{name}:{port}/?token={keys.token}"


async def serve_web(web: Web, listener: socket.socket, until: Callable[[], Awaitable[None]]) -> None:
    """Serve the page until `until` returns."""
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = CLOSE_SECONDS
    config.shutdown_timeout = CLOSE_SECONDS
    config.include_server_header = False
    config.h11_max_incomplete_size = 1 << 16
    config.accesslog = None  # an address may hold the token
    config.errorlog = logging.getLogger("autopilot-multi.web")
    config.errorlog.addHandler(logging.NullHandler())
    config.errorlog.propagate = False
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(web.hub.run)
            await serve(web.app, config, shutdown_trigger=until)  # type: ignore[arg-type]
            nursery.cancel_scope.cancel()
    finally:
        web.source.close()
