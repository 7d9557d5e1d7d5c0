"""Draw the picture of the page in the documentation: `make pictures`."""

import os
import sys
import tempfile
from pathlib import Path

from tests.acceptance.program import started
from tests.conftest import GIT_ENVIRONMENT, begin_repository
from tests.serve.web.project import make_project, served

PLAIN = {
    "asks-database": "Choose where orders are kept",
    "broken-tests": "Make the flaky test pass",
    "cart-badge": "Show how many items are in the cart",
    "dark-mode": "Follow the color scheme of the system",
    "slow-import": "Import the catalog in one go",
    "slow-search": "Search in all shops",
}


def main(target: Path) -> None:
    """Run the stories until one asks and one has failed, and photograph the board."""
    from playwright.sync_api import sync_playwright

    os.environ.update({**GIT_ENVIRONMENT, "AUTOPILOT_MULTI_TRUST": "always"})
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        memory = Path(place) / "memory"
        memory.mkdir()
        (memory / "plain").touch()

        def make(name: str, files: dict[str, str]) -> Path:
            begin_repository(Path(place) / name, files)
            return Path(place) / name

        repo = make_project(make, memory, PLAIN)
        with served(repo) as (url, _), started(repo, "run", "--json"):
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 560})
            page.goto(url)
            for where in (
                "needs-you #card-asks-database",
                "needs-you #card-broken-tests",
                "ready #card-dark-mode",
            ):
                page.wait_for_selector(f"#list-{where}")
            page.wait_for_selector("#line-slow-search:not(.empty)")
            page.screenshot(path=target)
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
