"""A repository with eight stories for an agent that asks, waits and fails, and the real page beside it."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.program import Running, commit_stories, started, wait_until, write_story

AGENT = Path(__file__).with_name("stub_agent.py")
HOSTILE_TITLE = "<script>window.hacked=3</script><b>bold</b> & 'quoted' \"title\""
STORIES: Mapping[str, str] = {
    "asks-database": "Choose where orders are kept",
    "broken-tests": "Make the flaky test pass",
    "cart-badge": "Show how many items are in the cart",
    "dark-mode": "Follow the color scheme of the system",
    "hostile": HOSTILE_TITLE,
    "invoice-pdf": "Send invoices as PDF",
    "slow-import": "Import the catalog in one go",
    "slow-search": "Search in all shops",
}


def make_project(
    make_repository: Callable[..., Path], memory: Path, stories: Mapping[str, str] = STORIES
) -> Path:
    """Make the repository, with its stories committed."""
    argv = json.dumps([sys.executable, str(AGENT), str(memory)])
    limits = 'max-stories = 4\nmax-attempts = 1\nverify = ["true"]\n'
    settings = f'agent = "stub"\n{limits}[agents.stub]\nargv = {argv}\n'
    repo = make_repository("shop", files={"autopilot-multi.toml": settings})
    for story_id, title in stories.items():
        write_story(
            repo, story_id, title=title, body=f"{title}.\n\x1b[2J</pre><script>window.hacked=4</script>"
        )
    commit_stories(repo)
    return repo


@contextmanager
def served(repo: Path, *args: str) -> Iterator[tuple[str, Running]]:
    """Serve the page by the real program; yields its address."""
    with started(repo, "web", "--port", "0", "--json", *args) as program:
        wait_until(lambda: program._out.read_text().endswith("\n"), what="it prints the address")
        yield json.loads(program._out.read_text())["data"]["url"], program
