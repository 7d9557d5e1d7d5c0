"""Who may ask the page for anything: the checks of every request, before a route sees it.

The address that `web` prints has a token. A browser that opens it gets a cookie, which scripts cannot read
and other sites cannot send. A request without the cookie is refused, and so is one whose Host is not ours: a
name of somebody else's that was made to point here. What changes something must come from a page of ours.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    # With `no-referrer` a browser would not say either where a form of ours comes from.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
ANYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104  compared, not bound
MOST_BODY = 1 << 20
"""How many bytes a form may have."""

_REFUSED = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Refused</title>"
    "<h1>Refused</h1><p>{reason}</p>"
    "<p>Open the address that <code>autopilot-multi web</code> has printed.</p></html>"
)
_ENTERED = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>autopilot-multi</title>"
    '<link rel="icon" href="data:,">'
    '<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Continue to the page</a></p></html>'
)


class Keys(Struct, frozen=True, kw_only=True):
    """The secrets of one server: `token` is in the address, `cookie` in the browser, `form` in each form."""

    token: str
    cookie: str
    form: str


def new_keys() -> Keys:
    """Make the secrets of a server."""
    token = secrets.token_urlsafe(32)
    return Keys(token=token, cookie=_derived(token, "cookie"), form=_derived(token, "form"))


def _derived(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


class Guard:
    """Lets a request through to `app` if it has the cookie, our Host and, to change something, our Origin."""

    def __init__(self, app: ASGIApp, *, keys: Keys, host: str, port: int) -> None:
        self._app = app
        self._keys = keys
        self._host = host
        self._port = port
        # A cookie belongs to a host, not to a port: two servers must not take each other's away.
        self.cookie = f"autopilot-multi-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, answer the one that brings the token, or hand it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # a websocket that is not accepted is closed
        headers = Headers(scope=scope)
        if not self._is_ours(headers.getlist("host")):
            await _answer(send, 421, _REFUSED.format(reason="This is not the name of this server."))
        elif self._brings_token(scope):
            cookie = f"{self.cookie}={self._keys.cookie}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(send, 200, _ENTERED, {"set-cookie": cookie, "referrer-policy": "no-referrer"})
        elif not self._is_known(scope, headers):
            await _answer(send, 403, _REFUSED.format(reason="The token is missing or wrong."))
        elif scope["method"] not in {"GET", "HEAD"} and not self._is_from_us(scope, headers):
            await _answer(send, 403, _REFUSED.format(reason="The request does not come from this page."))
        else:
            await self._app(scope, receive, _with_headers(send))

    def _is_ours(self, hosts: list[str]) -> bool:
        """Whether the one Host of a request is a name of this server."""
        if len(hosts) != 1:
            return False
        name, _, port = hosts[0].rpartition(":")
        name = name.removeprefix("[").removesuffix("]").lower()
        if port != str(self._port):
            return False
        if name in LOOPBACK or name == self._host.lower():
            return name not in ANYWHERE
        return self._host in ANYWHERE and _is_number(name)

    def _brings_token(self, scope: Scope) -> bool:
        if scope["path"] != "/" or scope["method"] != "GET":
            return False
        try:
            fields = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=20)
        except ValueError:  # more fields than any page of ours has
            return False
        given = fields.get("token", [])
        return len(given) == 1 and _same(given[0], self._keys.token)

    def _is_known(self, scope: Scope, headers: Headers) -> bool:
        """Whether it has the cookie; programs that only read, such as Prometheus, may send the token."""
        if any(_same(value, self._keys.cookie) for value in _cookies(headers.getlist("cookie"), self.cookie)):
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        read_only = scope["method"] in {"GET", "HEAD"}
        return read_only and scheme.lower() == "bearer" and _same(given.strip(), self._keys.token)

    @staticmethod
    def _is_from_us(scope: Scope, headers: Headers) -> bool:
        """Whether a browser says that a page of this very server has sent it."""
        site = headers.get("sec-fetch-site")
        if site is not None and site != "same-origin":
            return False
        origin = headers.getlist("origin")
        if not origin:
            return site == "same-origin"
        return origin == [f"{scope['scheme']}://{headers['host']}"]

    def is_own_form(self, given: str) -> bool:
        """Whether a form has the key that our pages put into theirs."""
        return _same(given, self._keys.form)


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode())


def _cookies(headers: Iterable[str], name: str) -> Iterable[str]:
    for header in headers:
        try:
            found = SimpleCookie(header)
        except CookieError:
            continue
        if name in found:
            yield found[name].value


def _is_number(name: str) -> bool:
    """Whether a host is an address and no name: only a name can be made to point elsewhere."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str, more: Mapping[str, str] | None = None) -> None:
    body = text.encode()
    headers = {
        **HEADERS,
        "content-type": "text/html; charset=utf-8",
        "content-length": str(len(body)),
        **(more or {}),
    }
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
