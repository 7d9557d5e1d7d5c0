"""The page in a real browser: a whole run from start to landing, steered by clicks, in both schemes."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.program import started
from tests.serve.web.project import make_project, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
AXE = Path(os.environ.get("AXE_CORE", "node_modules/axe-core/axe.min.js"))
WIDTHS = (1400, 390)
SCHEMES = ("light", "dark")
SECONDS = 30_000

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


@pytest.fixture
def browser() -> Iterator["Browser"]:
    """Start a browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield opened
        opened.close()


class Visit:
    """One open page, what its console said, and the pictures of it."""

    def __init__(self, browser: "Browser", url: str, shots: Path) -> None:
        self.page: Page = browser.new_page(viewport={"width": 1400, "height": 900})
        self.page.set_default_timeout(SECONDS)
        self.complaints: list[str] = []
        self._shots = shots
        self.page.on("console", lambda said: self._heard(said.type, said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(url)
        self.page.wait_for_selector("main h1", state="attached")

    def _heard(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(text)

    def go(self, path: str) -> None:
        """Open another page of the server."""
        self.page.goto(f"{self.page.url.partition('//')[0]}//{self.page.url.split('/')[2]}{path}")

    def card(self, column: str, story: str) -> None:
        """Wait until a story is in a column, without a reload."""
        self.page.wait_for_selector(f"#list-{column} #card-{story}", state="attached")

    def look(self, name: str) -> None:
        """Take pictures at both widths in both schemes; nothing is wider than the window."""
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            for width in WIDTHS:
                self.page.set_viewport_size({"width": width, "height": 900})
                wide = self.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{name} is {wide} wide at {width}"
                shot = self._shots / f"web-{name}-{scheme}-{width}.png"
                self.page.screenshot(path=shot, full_page=True)
                self._check(name)
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size({"width": 1400, "height": 900})

    def _check(self, name: str) -> None:
        """Let axe look for what keeps people out; the policy does not bind the debugger."""
        if not AXE.exists():
            return
        self.page.evaluate(AXE.read_text())
        found: dict[str, Any] = self.page.evaluate("axe.run()")
        grave = [one for one in found["violations"] if one["impact"] in {"serious", "critical"}]
        told = [(one["id"], [node["html"][:160] for node in one["nodes"][:4]]) for one in grave]
        assert not told, f"{name}: {told}"


def test_a_run_from_start_to_landing_on_the_page(
    make_repository: Callable[..., Path], tmp_path: Path, browser: "Browser"
) -> None:
    """A question is answered, a story added, one stopped, one retried, all landed; nothing hostile acts."""
    memory = tmp_path / "memory"
    memory.mkdir()
    shots = Path(os.environ.get("WEB_SHOT", tmp_path))
    repo = make_project(make_repository, memory)
    with served(repo) as (url, _), started(repo, "run", "--json") as run:
        visit = Visit(browser, url, shots)
        page = visit.page
        assert "token" not in page.url
        visit.card("needs-you", "asks-database")
        visit.card("working", "slow-import")
        visit.card("needs-you", "broken-tests")
        visit.card("ready", "hostile")
        visit.look("board")
        _steer(visit)
        visit.go("/timeline")
        visit.look("timeline")
        (memory / "go").touch()
        ended = run.finish()
        assert ended.code in {2, 4}, ended.err
        visit.go("/")
        page.click("#do-land")
        page.wait_for_selector(".car.done >> nth=7")
        page.wait_for_selector(".phase:has-text('landed')")
        visit.look("landing")
        visit.go("/")
        visit.card("ended", "hostile")
        visit.look("ended")
        visit.go("/stories/hostile")
        visit.look("hostile")
        for name in ("runs", "settings"):
            visit.go(f"/{name}")
            visit.look(name)
        assert page.evaluate("window.hacked") is None
    assert visit.complaints == []
    assert (repo / "added-story.txt").exists()


def _steer(visit: Visit) -> None:
    """Answer, add, stop and retry by clicks."""
    page = visit.page
    page.click("#answer-asks-database-B")
    page.wait_for_selector("text=decided B) SQLite")
    visit.card("ready", "asks-database")
    page.click("#do-add")
    visit.look("add")
    page.fill("#new-id", "added-story")
    page.fill("#new-title", "Thank customers for their order")
    page.fill("#new-prompt", "Write a kind sentence.")
    page.click("#new-add")
    page.wait_for_selector("text=Added added-story to the run")
    visit.card("ready", "added-story")
    visit.go("/stories/slow-import")
    page.wait_for_selector("#log span:has-text('line 59 of slow-import')")
    page.fill("#find", "line 7 ")
    assert page.locator("#log span:visible").count() == 1
    page.fill("#find", "")
    visit.look("story")
    page.click("#story-stop-now")
    page.wait_for_selector("#story-state .pill.stopped")
    visit.go("/stories/broken-tests")
    page.fill("#note", "Please try harder.")
    page.click("#story-retry")
    page.wait_for_selector("#story-state .pill.done")


def test_a_lost_connection_is_said_and_mended(
    make_repository: Callable[..., Path], tmp_path: Path, browser: "Browser"
) -> None:
    """While the server is gone the page says so, and keeps what it shows."""
    memory = tmp_path / "memory"
    memory.mkdir()
    repo = make_project(make_repository, memory)
    with started(repo, "run", "cart-badge", "--json") as run:
        assert run.finish().code == 0
    with served(repo) as (url, _):
        visit = Visit(browser, url, tmp_path)
        visit.card("ready", "cart-badge")
        # Without scripts the same page is there, and its forms work.
        plain = browser.new_context(java_script_enabled=False).new_page()
        plain.goto(url)
        plain.wait_for_selector("#list-ready #card-cart-badge")
    visit.page.wait_for_selector("#connection:has-text('connection lost')")
    assert visit.page.locator("#card-cart-badge").count() == 1
