#!/usr/bin/env python3
"""Draw the pictures of the README from a real run: the dashboard while it runs, and its HTML report.

The run takes about 20 seconds, in a throwaway repository. The picture of the report needs Chromium; without
it, the old one stays. `story-to-main.svg` and `architecture.svg` are drawn by hand.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from runner.cli.live.content import Content
from runner.cli.live.keys import key_line
from runner.cli.live.panes import pane_text
from runner.cli.live.state import LiveState, Pane
from runner.core.errors import NotFoundError
from runner.core.model import RunSnapshot, Status, StoryId
from runner.core.outlook.left import outlook
from runner.report.terminal.dashboard import render
from runner.report.terminal.picture import Picture
from runner.run.control.reader import RunReader

PICTURES = Path(__file__).resolve().parent / "pictures"
WIDTH, HEIGHT = 112, 26
MOST_BYTES = 150_000
# rich's own form links to fonts on the network; a picture must not.
FORM = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>A dashboard: two stories are done, one has failed, three run, two wait; a log is open</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; font-weight: bold; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""
CHECK = """#!/bin/sh
case $1 in
  payment) grep -q retry payment.txt || { echo "FAILED test_timeout: expected a retry after 3 s"; exit 1; } ;;
  billing) echo "FAILED test_billing: cannot import name 'export' from 'billing'"; exit 1 ;;
esac
echo "12 passed"
"""
# Enough of everything: the load of the machine that draws is not part of the picture.
_PLENTY = "memory-gb = 0, disk-gb = 0, inodes = 0, pressure-free-percent = 0"
_LITTLE = "swap-gb = 999999, peers = 999999, memory-stall-percent = 100, load-per-cpu = 999999"
SETTINGS = f"""memory-per-story-gb = 0
[tiers]
green = {{ {_PLENTY}, {_LITTLE}, cpu-stall-percent = 100, io-stall-percent = 100 }}
warn = {{ {_PLENTY}, {_LITTLE} }}
degraded = {{ {_PLENTY}, {_LITTLE} }}
"""


def _spending(dollars: float, tokens: int) -> str:
    usage = json.dumps({"status": "done", "usage": {"cost_usd": dollars, "input_tokens": tokens}})
    return f"; echo '{usage}' > $AUTOPILOT_RESULT_FILE"


def _counting(line: str, file: str) -> str:
    return f'for n in 1 2 3 4 5 6 7 8 9; do echo "{line}"; sleep 1; done; echo made > {file}'


STORIES: dict[str, dict[str, object]] = {
    "login-form": {
        "estimate": 20,
        "title": "Add a login form",
        "command": "echo 'writing the form'; sleep 1; echo form > login.txt" + _spending(0.42, 81_300),
        "verify": ["test -s login.txt"],
    },
    "payment-retry": {
        "estimate": 4,
        "title": "Retry payments on timeout",
        "command": "echo 'reading payments/client.py'; sleep 2; echo pay > payment.txt; "
        'if test "$AUTOPILOT_ATTEMPT" -gt 1; then echo "adding a retry to payments/client.py"; '
        "echo retry >> payment.txt; sleep 9; fi",
        "verify": ["sh tools/test.sh payment"],
    },
    "old-export": {
        "estimate": 20,
        "title": "Remove the old export",
        "command": "echo 'export is still used by billing' | tee export.txt",
        "verify": ["sh tools/test.sh billing"],
        "max_attempts": 2,
    },
    "search-index": {
        "estimate": 9,
        "title": "Index product names",
        "command": _counting("indexing batch $n of 9", "index.txt"),
        "verify": ["test -s index.txt"],
    },
    "dark-mode": {
        "estimate": 20,
        "title": "Offer a dark mode",
        "command": "echo 'changing theme.css'; sleep 1; echo dark > theme.txt" + _spending(0.31, 64_900),
        "verify": ["test -s theme.txt"],
    },
    "receipts": {
        "estimate": 5,
        "title": "Mail receipts",
        "depends_on": ["payment-retry"],
        "command": "sleep 1; echo receipt > receipts.txt",
        "verify": ["test -s receipts.txt"],
    },
    "price-cache": {
        "estimate": 6,
        "title": "Cache prices for a minute",
        "command": _counting("test_prices.py: $n of 9 passed", "price.txt"),
        "verify": ["test -s price.txt"],
    },
    "search-page": {
        "estimate": 4,
        "title": "Show search results",
        "depends_on": ["search-index"],
        "command": "sleep 1; echo page > page.txt",
        "verify": ["test -s page.txt"],
    },
}


def main() -> None:
    """Draw both pictures."""
    with tempfile.TemporaryDirectory() as folder:
        shop = Path(folder) / "shop"
        environ = _prepare(shop)
        run = subprocess.Popen(  # noqa: S603  our own program
            _PROGRAM,
            cwd=shop,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        frame = _busy_moment(shop, run)
        _write("dashboard.svg", _drawn(frame, shop).encode())
        run.wait()
        page = Path(folder) / "report.html"
        report = [*_PROGRAM, "report", "--output", str(page)]
        subprocess.run(report, cwd=shop, env=environ, check=True, capture_output=True)  # noqa: S603  our own program
        _photograph(page, Path(folder))


_PROGRAM = [sys.executable, "-m", "runner"]


def _prepare(shop: Path) -> dict[str, str]:
    """Make the repository; return an environment without the settings of the user."""
    (shop / "stories").mkdir(parents=True)
    for number, (name, keys) in enumerate(STORIES.items()):
        front = "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())
        text = f"---\nid: {name}\n{front}---\n{keys['title']}.\n"
        (shop / "stories" / f"{number}-{name}.md").write_text(text)
    (shop / "tools").mkdir()
    (shop / "tools" / "test.sh").write_text(CHECK)
    settings = shop.parent / ".config" / "autopilot-multi" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(SETTINGS)
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "AUTOPILOT"))
    }
    environ |= {
        "HOME": str(shop.parent),
        "XDG_CONFIG_HOME": "",
        "PYTHONPATH": str(PICTURES.parents[1]),
        "TZ": "UTC",
        "AUTOPILOT_MULTI_TRUST": "always",
    }
    for args in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "You"],
        ["config", "user.email", "you@example.com"],
        ["add", "-A"],
        ["commit", "-q", "-m", "Stories"],
    ):
        subprocess.run(["git", *args], cwd=shop, env=environ, check=True)  # noqa: S603, S607  fixed arguments
    return environ


def _busy_moment(shop: Path, run: "subprocess.Popen[bytes]") -> RunSnapshot:
    """Return the state of the run when there is most to see."""
    while run.poll() is None:
        time.sleep(0.2)
        if not (shop / ".git" / "autopilot" / "journal.db").exists():
            continue
        try:
            with RunReader(str(shop)) as reader:
                now = reader.with_last_lines(reader.read().run)
        except NotFoundError:  # the journal is there, and the run is not in it yet
            continue
        retried = any("adding a retry" in story.last_line for story in now.stories.values())
        counts = [now.count(status) for status in (Status.RUNNING, Status.DONE, Status.FAILED)]
        if retried and counts == [3, 2, 1]:
            return now
    sys.exit("error: the run ended before there was a moment worth a picture")


def _drawn(frame: RunSnapshot, shop: Path) -> str:
    """Draw the moment with a story's log open below the table."""
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True)
    hint, now = "Ctrl-C: start nothing new, let running sessions end", time.time()
    state = LiveState(selected=StoryId("payment-retry"), pane=Pane.LOG)
    lines = Content(shop).lines(state, frame)
    # The folder is a temporary one of the machine that draws.
    stories = {
        story.id: replace(story, workspace=replace(story.workspace, path=f"~/shop.worktrees/{story.id}"))
        for story in frame.stories.values()
    }
    frame = replace(frame, stories=stories)
    picture = Picture(
        outlook=outlook(frame, (), now),
        selected=state.selected,
        pane=pane_text(state, frame, lines, now),
        keys=key_line(WIDTH),
    )
    console.print(render(frame, now=now, width=WIDTH, height=HEIGHT, hint=hint, picture=picture))
    return console.export_svg(title="autopilot-multi", code_format=FORM, unique_id="dashboard")


def _photograph(page: Path, folder: Path) -> None:
    browser = next(
        (name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None
    )
    if browser is None:
        sys.stderr.write("note: no Chromium, so docs/pictures/report.png stays as it is\n")
        return
    shot = folder / "report.png"
    argv = [
        *(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *(f"--user-data-dir={folder / 'profile'}", "--blink-settings=preferredColorScheme=1"),
        *("--window-size=1180,980", f"--screenshot={shot}", page.as_uri()),
    ]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)  # noqa: S603  a browser from PATH
    _write("report.png", shot.read_bytes())


def _write(name: str, content: bytes) -> None:
    if len(content) > MOST_BYTES:
        sys.exit(f"error: {name} would have {len(content)} bytes; make it smaller than {MOST_BYTES}")
    (PICTURES / name).write_bytes(content)
    sys.stdout.write(f"wrote docs/pictures/{name}, {len(content)} bytes\n")


if __name__ == "__main__":
    main()
