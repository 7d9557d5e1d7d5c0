"""The pages of a run with every verdict and hostile texts in every field."""

import re
from pathlib import Path

from tests.conftest import git
from tests.serve.web.clients import client
from tests.serve.web.test_live import write_run

PAGES = ("/", "/stories/done-0", "/stories/parked-6", "/timeline", "/landing", "/runs", "/settings", "/add")


async def test_every_page_is_shown_and_what_stories_say_is_text(repo: Path) -> None:
    """No tag, attribute or control character of a story's texts gets into the HTML of any page."""
    write_run(repo)
    async with client(repo) as browser:
        await browser.enter()
        for path in PAGES:
            page = await browser.get(path)
            assert page.status_code == 200, path
            assert "<script>alert" not in page.text, path
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", page.text), path
            assert page.text.count("<h1") == 1, path
        assert "&lt;script&gt;alert(1)" in (await browser.get("/")).text


async def test_the_board_has_each_story_in_its_column(repo: Path) -> None:
    """What failed or asks needs you, what is done can land, what was stopped has ended."""
    write_run(repo)
    async with client(repo) as browser:
        await browser.enter()
        page = (await browser.get("/")).text
    lists = dict(re.findall(r'<ol id="list-([\w-]+)" class="cards">(.*?)</ol>', page, re.DOTALL))
    where = {name: re.findall(r'<li id="card-([\w-]+)"', html) for name, html in lists.items()}
    assert {"failed-2", "parked-6"} <= set(where["needs-you"])
    assert "done-0" in where["ready"]
    assert "stopped-8" in where["ended"]
    assert where["working"] == []


async def test_a_wrong_name_is_a_page_that_says_so(repo: Path) -> None:
    """An unknown story, run, session or word leads to no error of the server."""
    write_run(repo)
    async with client(repo) as browser:
        await browser.enter()
        assert (await browser.get("/stories/done-00")).status_code == 404
        assert "done-0" in (await browser.get("/stories/done-00")).text
        assert (await browser.get("/?run=nope")).status_code == 404
        assert (await browser.get("/stories/done-0?session=77")).status_code == 200
        assert (await browser.get("/stories/done-0?find=%3Cscript%3E&session=1")).status_code == 200
        assert (await browser.get("/static/server.py")).status_code == 404
        assert (await browser.get("/events?page=nope")).status_code == 404
        assert (await browser.get("/events?page=story&story=nope")).status_code == 404


async def test_a_repository_without_a_run_says_how_to_start(repo: Path) -> None:
    """The page can be opened before the first run."""
    async with client(repo) as browser:
        await browser.enter()
        assert "Nothing has run here yet" in (await browser.get("/")).text
        assert (await browser.get("/runs")).status_code == 200
        assert "No run is active" in (await browser.get("/add")).text


async def test_what_cannot_be_done_is_a_message(repo: Path) -> None:
    """Actions on a run that is not active, and bad forms, are refused with the reason; nothing changes."""
    write_run(repo)
    before = git(repo, "status", "--porcelain")
    async with client(repo) as browser:
        await browser.enter()
        for action in ("pause", "unpause", "stop"):
            assert "no run is active" in await browser.act(action)
        assert "cannot be an id" in await browser.act("add", id="../x", prompt="do")
        assert "no prompt" in await browser.act("add", id="x", prompt=" ")
        assert "no run is active" in await browser.act("add", id="x", prompt="do", command="rm -rf /")
        assert "no story 'nope'" in await browser.act("retry", story="nope")
        assert "no decision" in await browser.act("answer", story="done-0", letter="A")
        answer = await browser.post("/do/fly", {"key": browser.web.keys.form})
        assert answer.status_code == 404
    assert git(repo, "status", "--porcelain") == before


def test_a_story_of_the_page_brings_no_commands() -> None:
    """Whatever a form says, the new story has only a prompt, a claim and dependencies."""
    from runner.serve.web.actions import _new_story

    form = {
        "id": "a",
        "prompt": "do",
        "command": "evil",
        "verify": "evil",
        "agent": "evil",
        "owns": "src/**\n",
    }
    made = _new_story({**form, "depends_on": "b, c"})
    assert made.command is None
    assert made.verify == ()
    assert made.agent is None
    assert made.owns == ("src/**",)
    assert made.depends_on == ("b", "c")


async def test_a_scraper_gets_the_metrics_with_the_token_and_with_nothing_else(repo: Path) -> None:
    """Prometheus has no cookie: it sends the token, and gets the figures of the newest run."""
    async with client(repo) as scraper:
        bearer = {"authorization": f"Bearer {scraper.web.keys.token}"}
        assert (await scraper.get("/metrics", bearer)).text == ""
        write_run(repo)
        figures = await scraper.get("/metrics", bearer)
        assert figures.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'autopilot_stories{status="parked"}' in figures.text
        assert (await scraper.get("/metrics")).status_code == 403
