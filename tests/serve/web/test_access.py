"""Who gets in: twenty ways without the token, a wrong Host or Origin, and forms of other pages."""

import re
from pathlib import Path

import pytest

from runner.serve.web.access.address import address_path, published, read_address
from runner.serve.web.access.guard import POLICY
from tests.serve.web.clients import ORIGIN, PORT, client

HOST = f"127.0.0.1:{PORT}"


async def test_the_address_gives_a_cookie_and_the_token_does_not_stay(repo: Path) -> None:
    """Who opens the printed address gets a cookie that no script and no other site can use."""
    async with client(repo) as browser:
        entered = await browser.enter()
        given = entered.headers["set-cookie"]
        assert "HttpOnly" in given
        assert "SameSite=Strict" in given
        assert browser.web.keys.token not in entered.text + given
        assert 'content="0; url=/"' in entered.text
        page = await browser.get("/")
    assert page.status_code == 200
    assert page.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert page.headers["referrer-policy"] == "same-origin"
    assert not re.search(r"<style|style=|<script(?! src=)|\son\w+=", page.text), "the policy would refuse it"


async def test_twenty_ways_in_without_the_token_are_refused(repo: Path) -> None:
    """Whatever is sent instead of the token or its cookie, nothing of the repository is shown."""
    async with client(repo) as browser:
        keys, name = browser.web.keys, browser.cookie
        tries: list[tuple[str, str, dict[str, str]]] = [
            ("GET", "/", {}),
            ("GET", "/?token=", {}),
            ("GET", f"/?token={keys.token[:-1]}", {}),
            ("GET", f"/?token={keys.token}x", {}),
            ("GET", f"/?token={keys.token.swapcase()}", {}),
            ("GET", "/?token=a&token=b", {}),
            ("GET", f"/?token={keys.token}{'&a=b' * 30}", {}),
            ("GET", f"/?token={keys.form}", {}),
            ("GET", f"/?token={keys.cookie}", {}),
            ("GET", f"/settings?token={keys.token}", {}),
            ("GET", f"/events?page=board&token={keys.token}", {}),
            ("POST", f"/?token={keys.token}", {"origin": ORIGIN}),
            ("GET", "/static/page.js", {}),
            ("GET", "/runs", {"cookie": f"{name}="}),
            ("GET", "/runs", {"cookie": f"{name}={keys.token}"}),
            ("GET", "/runs", {"cookie": f"{name}={keys.cookie[:-1]}"}),
            ("GET", "/runs", {"cookie": f"autopilot-multi-1={keys.cookie}"}),
            ("GET", "/runs", {"cookie": "=;;\x7f=,"}),
            ("GET", "/runs", {"authorization": "Bearer "}),
            ("GET", "/runs", {"authorization": f"Bearer {keys.cookie}"}),
            ("GET", "/runs", {"authorization": f"Basic {keys.token}"}),
            ("POST", "/do/stop", {"authorization": f"Bearer {keys.token}", "origin": ORIGIN}),
            ("HEAD", "/", {}),
            ("OPTIONS", "/do/stop", {}),
            ("GET", "/..%2f..%2fetc/passwd", {}),
            ("GET", "//evil/", {}),
        ]
        assert len(tries) >= 20
        for method, path, headers in tries:
            answer = await browser.ask(method, path, headers)
            assert answer.status_code == 403, (method, path, headers)
            assert repo.name not in answer.text
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:1",
        f"127.0.0.1.evil.example:{PORT}",
        "",
    ],
)
async def test_another_host_is_refused_even_with_the_cookie(repo: Path, host: str) -> None:
    """A name that was made to point here reaches nothing, with the cookie or with the token."""
    async with client(repo) as browser:
        await browser.enter()
        for path in ("/", f"/?token={browser.web.keys.token}"):
            assert (await browser.get(path, {"host": host})).status_code == 421
        assert (await browser.get("/", {"host": f"localhost:{PORT}"})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"https://{HOST}"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": ""},
        {"origin": "", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"content-type": "text/plain"},
        {"content-type": "application/json"},
    ],
)
async def test_a_form_of_another_page_changes_nothing(repo: Path, headers: dict[str, str]) -> None:
    """What changes something must say that it comes from here, in the form that our pages send."""
    async with client(repo) as browser:
        await browser.enter()
        form = {"key": browser.web.keys.form}
        assert (await browser.post("/do/pause", form, headers)).status_code == 403


async def test_a_form_needs_the_key_of_our_pages(repo: Path) -> None:
    """Without it, or with another, a form with the right cookie and Origin is refused; so is a huge one."""
    async with client(repo) as browser:
        await browser.enter()
        for key in ("", "x", browser.web.keys.cookie, browser.web.keys.token):
            assert (await browser.post("/do/pause", {"key": key})).status_code == 403
        huge = {"key": browser.web.keys.form, "note": "x" * (1 << 20)}
        assert (await browser.post("/do/pause", huge)).status_code == 403
        assert (await browser.get("/do/pause")).status_code == 405
        assert "no run is active" in await browser.act("pause") or "no runs yet" in await browser.act("pause")


async def test_a_message_leads_back_to_a_page_of_ours_only(repo: Path) -> None:
    """An address elsewhere becomes the board."""
    async with client(repo) as browser:
        await browser.enter()
        for back in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x", "/a\nb"):
            answer = await browser.post("/do/pause", {"key": browser.web.keys.form, "back": back})
            assert answer.headers["location"].startswith("/?said="), back


async def test_a_server_for_all_addresses_takes_no_foreign_names(repo: Path) -> None:
    """With --host 0.0.0.0 a browser may use any address of the machine, never a name that it cannot know."""
    async with client(repo, host="0.0.0.0") as browser:  # noqa: S104  nothing is bound
        token = browser.web.keys.token
        assert (await browser.get(f"/?token={token}", {"host": f"192.0.2.7:{PORT}"})).status_code == 200
        assert (await browser.get(f"/?token={token}", {"host": f"evil.example:{PORT}"})).status_code == 421
        assert (await browser.get(f"/?token={token}", {"host": f"0.0.0.0:{PORT}"})).status_code == 421


def test_the_address_is_kept_for_its_owner_only(repo: Path) -> None:
    """Other users cannot read the file with the token, and it is gone with the server."""
    common_dir = repo / ".git"
    with published(common_dir, "http://127.0.0.1:1/?token=secret") as door:
        assert address_path(common_dir).stat().st_mode & 0o077 == 0
        assert door.stat().st_mode & 0o077 == 0
        found = read_address(common_dir)
        assert found is not None
        assert found.url.endswith("secret")
    assert read_address(common_dir) is None
    assert not door.exists()
