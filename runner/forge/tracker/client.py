"""A client for one MCP server: started below a keeper, or reached by HTTP.

Every call has a deadline. A server that ends, floods or prints what is not the protocol is an error that says
so; its secrets are removed from whatever is quoted of it. When the block is left, the server is gone with all
that it has started, also if this program is killed.
"""

import json
import os
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from msgspec import Struct, field

from isolation.errors import IsolationError
from isolation.keeper.client import Keeper, Session
from isolation.model import Confinement, SessionSpec
from runner.core.errors import RunnerError
from runner.core.text.names import one_line
from runner.core.text.redaction import Redactor
from runner.forge.tracker.errors import AccessError, TrackerError, unwrapped
from runner.forge.tracker.servers import McpServer

if TYPE_CHECKING:
    from mcp import ClientSession

START_SECONDS = 90.0
"""Some servers are installed at their first start."""
CALL_SECONDS = 60.0
MOST_LINE = 16 << 20
MOST_GARBAGE = 100
"""Lines that are not the protocol; some servers print a greeting."""
_SHOWN = 300
_DENIED_STATUSES = frozenset({401, 403})
_DENIED = (
    "401", "403", "unauthorized", "unauthorised", "forbidden", "authentication", "not authenticated",
    "permission", "access denied", "invalid token", "expired token", "token expired", "sign in", "log in",
)  # fmt: skip


class Launch(Struct, frozen=True, kw_only=True):
    """How servers are started here: below which keeper, where, with which variables, confined to what."""

    keeper: Keeper
    cwd: Path
    environment: Mapping[str, str]
    confinement: Confinement | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """What a tool returned: its text, and the JSON value in it, None if there is none."""

    text: str
    data: Any = None


class _Heard(Struct):
    """What a server has said besides its answers."""

    errors: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    garbage: int = 0
    newest: str = ""
    problem: str = ""
    status: int = 0


def require_package() -> None:
    """Raise with what to install if the protocol's package is not there."""
    try:
        import mcp  # noqa: F401  whether it is there
    except ImportError as error:
        raise TrackerError(
            f"an MCP server needs a package that is not installed: {error}",
            hint="pip install 'autopilot-multi[mcp]'",
        ) from error


class McpClient:
    """A connected server."""

    def __init__(self, server: McpServer, session: "ClientSession", heard: _Heard) -> None:
        self.server = server
        self._session = session
        self._heard = heard
        self._redactor = Redactor(also=server.secrets)
        self.tools: frozenset[str] = frozenset()

    async def begin(self) -> None:
        """Greet the server and ask for its tools."""
        with self._explained("did not begin to speak MCP", START_SECONDS):
            await self._session.initialize()
        await self.refresh()

    async def refresh(self) -> None:
        """Ask for its tools again."""
        names: set[str] = set()
        cursor: str | None = None
        with self._explained("did not list its tools", CALL_SECONDS):
            for _ in range(100):
                listed = await self._session.list_tools(cursor)
                names.update(tool.name for tool in listed.tools)
                cursor = listed.nextCursor
                if not cursor:
                    break
        self.tools = frozenset(names)

    async def call(self, tool: str, /, **arguments: Any) -> Answer:
        """Call a tool; a refusal is an `AccessError`, any other failure a `TrackerError`."""
        from mcp import types

        request = types.ClientRequest(
            types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        )
        with self._explained(f"did not answer {tool}", CALL_SECONDS):
            result = await self._session.send_request(request, types.CallToolResult)
        text = "\n".join(part.text for part in result.content if isinstance(part, types.TextContent))
        if result.isError:
            raise self._failure(f"{tool} failed: {self._quoted(text)}", denied=is_denied(text))
        return Answer(text=text, data=json_in(text))

    def failure(self, words: str) -> TrackerError:
        """Return the error for an answer that cannot be understood."""
        return self._failure(self._quoted(words), denied=False)

    def _quoted(self, text: str) -> str:
        return one_line(self._redactor.text(text))[:_SHOWN]

    def _failure(self, words: str, *, denied: bool) -> TrackerError:
        kind = AccessError if denied else TrackerError
        hint = "sign in to it, or check its token." if denied else ""
        return kind(f"MCP server {self.server.shown}: {words}", hint=hint)

    @contextmanager
    def _explained(self, words: str, seconds: float) -> Iterator[None]:
        """Turn whatever goes wrong in the block into one error; the block has a deadline."""
        try:
            with trio.fail_after(seconds):
                yield
        except trio.TooSlowError:
            raise self.ended(f"{words} within {seconds:.0f} s") from None
        except RunnerError:
            raise
        except Exception as error:  # noqa: BLE001  whatever a strange server does to the package
            reason = one_line(str(error))[:_SHOWN]
            raise self.ended(f"{words} ({reason})" if reason else words) from None

    def ended(self, words: str) -> TrackerError:
        """Return the error for a server that did not answer: by what else it has said."""
        heard = self._heard
        if heard.status in _DENIED_STATUSES:
            return self._failure(f"it denies access (HTTP status {heard.status})", denied=True)
        if heard.status:
            words = f"{words}: HTTP status {heard.status}"
        if heard.problem:
            words = heard.problem
        said = next((line for line in reversed(heard.errors) if line.strip()), "") or heard.newest
        said = self._quoted(said)
        return self._failure(f"{words}: {said}" if said else words, denied=is_denied(said))


def is_denied(text: str) -> bool:
    """Whether the words of a failure say that access is denied."""
    low = text.lower()
    return any(word in low for word in _DENIED)


def json_in(text: str) -> Any:
    """Return the first JSON object or array in a text; None if there is none."""
    decoder = json.JSONDecoder()
    for place, letter in enumerate(text):
        if letter in "{[":
            with suppress(ValueError, RecursionError):
                return decoder.raw_decode(text, place)[0]
    return None


@asynccontextmanager
async def open_client(server: McpServer, launch: Launch) -> AsyncIterator[McpClient]:
    """Start or reach a server, and end it when the block is left; raises TrackerError if that fails."""
    require_package()
    if server.problem:
        raise TrackerError(f"MCP server {server.shown} cannot be used: {server.problem}")
    from mcp import ClientSession

    heard = _Heard()
    transport = _http(server, heard) if server.url else _stdio(server, launch, heard)
    with unwrapped():
        async with transport as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
            client = McpClient(server, session, heard)
            await client.begin()
            yield client


@asynccontextmanager
async def _http(server: McpServer, heard: _Heard) -> AsyncIterator[tuple[Any, Any]]:
    import httpx
    from mcp.client.streamable_http import streamable_http_client

    async def seen(response: httpx.Response) -> None:
        # The package only logs some of these, and the call would wait for its deadline.
        if response.is_error and response.request.method == "POST":
            heard.status = response.status_code

    timeout = httpx.Timeout(CALL_SECONDS)
    client = httpx.AsyncClient(
        headers=dict(server.headers), timeout=timeout, event_hooks={"response": [seen]}
    )
    try:
        async with client, streamable_http_client(server.url, http_client=client) as (incoming, outgoing, _):
            yield incoming, outgoing
    except httpx.HTTPError as error:
        raise _unreachable(server, heard, error) from None
    except BaseExceptionGroup as group:
        found = group.subgroup(httpx.HTTPError)
        if found is None or group.subgroup(RunnerError) is not None:
            raise
        raise _unreachable(server, heard, found) from None


def _unreachable(server: McpServer, heard: _Heard, error: BaseException) -> TrackerError:
    if heard.status in _DENIED_STATUSES:
        words = f"MCP server {server.shown} denies access (HTTP status {heard.status})"
        return AccessError(words, hint="check the token in its headers.")
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    words = one_line(Redactor(also=server.secrets).text(str(error)))[:_SHOWN]
    return TrackerError(f"MCP server {server.shown} cannot be reached: {words or type(error).__name__}")


@asynccontextmanager
async def _stdio(server: McpServer, launch: Launch, heard: _Heard) -> AsyncIterator[tuple[Any, Any]]:
    """Run a server below the keeper; its standard error is read apart, since it may be no protocol."""
    import anyio

    into, read = anyio.create_memory_object_stream[Any](0)
    write, out = anyio.create_memory_object_stream[Any](0)
    with tempfile.TemporaryDirectory(prefix="autopilot-multi-mcp-") as folder:
        errors = Path(os.devnull) if launch.confinement else Path(folder, "errors")
        if launch.confinement is None:
            os.mkfifo(errors, 0o600)
        given, taken = os.pipe()
        spec = SessionSpec(
            argv=("sh", "-c", 'exec "$@" 2> "$0"', str(errors), *server.command),
            cwd=launch.cwd,
            env={**launch.environment, **server.environment},
            # Opened by this process at once, so the number is still ours.
            prompt=Path(f"/dev/fd/{given}"),
            confinement=launch.confinement,
        )
        try:
            async with _started(spec, launch, server) as session, trio.open_nursery() as nursery:
                os.close(given)
                given = -1
                nursery.start_soon(_read, session, into, heard)
                if launch.confinement is None:
                    nursery.start_soon(_read_errors, errors, heard)
                nursery.start_soon(_write, trio.lowlevel.FdStream(taken), out)
                taken = -1
                try:
                    yield read, write
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            for descriptor in (given, taken):
                if descriptor >= 0:
                    os.close(descriptor)
            for stream in (into, read, write, out):
                stream.close()


@asynccontextmanager
async def _started(spec: SessionSpec, launch: Launch, server: McpServer) -> AsyncIterator[Session]:
    try:
        async with launch.keeper.start(spec) as session:
            yield session
    except IsolationError as error:
        raise TrackerError(
            f"MCP server {server.shown} cannot be started: {error.message}", hint=error.hint
        ) from error


async def _read(session: Session, into: Any, heard: _Heard) -> None:
    """Pass on the messages of a server until it ends; garbage is counted, a line without end is an error."""
    import anyio

    held = b""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with into:
            while chunk := await session.receive():
                *lines, held = (held + chunk).split(b"\n")
                if len(held) > MOST_LINE:
                    heard.problem = f"printed a line of more than {MOST_LINE >> 20} MB"
                    return
                for line in lines:
                    await _pass_on(line, into, heard)
                if heard.garbage > MOST_GARBAGE:
                    heard.problem = f"printed {heard.garbage} lines that are not MCP"
                    return
            with suppress(IsolationError):
                code = (await session.wait()).returncode
                heard.problem = f"ended by itself with {f'signal {-code}' if code < 0 else f'code {code}'}"


async def _pass_on(line: bytes, into: Any, heard: _Heard) -> None:
    from mcp import types
    from mcp.shared.message import SessionMessage
    from pydantic import ValidationError

    if not line.strip():
        return
    try:
        message = types.JSONRPCMessage.model_validate_json(line)
    except (ValidationError, ValueError, RecursionError):
        heard.garbage += 1
        heard.newest = line[:_SHOWN].decode("utf-8", "replace")
        return
    await into.send(SessionMessage(message))


async def _read_errors(path: Path, heard: _Heard) -> None:
    """Remember the newest lines of standard error."""
    # Open for both, so that it has an end only when this program closes it.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    held = b""
    async with trio.lowlevel.FdStream(descriptor) as stream:
        async for chunk in stream:
            *lines, held = (held + chunk).split(b"\n")
            held = held[-4096:]
            heard.errors.extend(line[:_SHOWN].decode("utf-8", "replace") for line in lines[-20:])


async def _write(stream: trio.lowlevel.FdStream, out: Any) -> None:
    import anyio

    with suppress(trio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
        async with stream:
            async for message in out:
                text = message.message.model_dump_json(by_alias=True, exclude_none=True)
                await stream.send_all(text.encode() + b"\n")
