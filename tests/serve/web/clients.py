"""The page as a browser asks for it, in this process: requests, their answers, the forms on a page."""

import html
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import httpx

from runner.serve.web.access.guard import Guard
from runner.serve.web.server import Web, make_web

PORT = 8717
ORIGIN = f"http://127.0.0.1:{PORT}"


class Client:
    """A browser that has, or has not, opened the address with its token."""

    def __init__(self, web: Web, http: httpx.AsyncClient) -> None:
        self.web = web
        self._http = http

    @property
    def cookie(self) -> str:
        """The name of the cookie of this server."""
        assert isinstance(self.web.app, Guard)
        return self.web.app.cookie

    async def enter(self) -> httpx.Response:
        """Open the address that the program prints."""
        return await self.get(f"/?token={self.web.keys.token}")

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Ask for a page."""
        return await self._http.get(path, headers=headers)

    async def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send a request without a body."""
        return await self._http.request(method, path, headers=headers)

    async def post(
        self, path: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send a form, as a page of the server would."""
        known = {"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}
        sent = {name: value for name, value in {**known, **(headers or {})}.items() if value}
        return await self._http.post(path, content=urlencode(form), headers=sent)

    async def act(self, action: str, **form: str) -> str:
        """Do something on the page; return what the next page says about it."""
        answer = await self.post(f"/do/{action}", {"key": self.web.keys.form, **form})
        assert answer.status_code == 303, answer.text
        page = (await self.get(answer.headers["location"])).text
        said = re.search(r'<p class="notice \w+"><b>(.*?)</p>', page, re.DOTALL)
        return html.unescape(re.sub(r"<[^>]*>", "", said.group(1))) if said else ""


@asynccontextmanager
async def client(repo: Path, *, host: str = "127.0.0.1") -> AsyncIterator[Client]:
    """Serve the page of a repository in this process."""
    web = make_web(repo, host=host, port=PORT)
    transport = httpx.ASGITransport(app=web.app, raise_app_exceptions=True)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
            yield Client(web, http)
    finally:
        web.source.close()
