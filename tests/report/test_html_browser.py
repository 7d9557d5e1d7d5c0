"""The HTML report in a real browser: it shows, without a script, a request or a complaint."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from runner.report.html.page import html
from tests.report.report_runs import sample_report

BROWSER = next(
    (name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None
)
SCHEMES = {"light": "1", "dark": "0"}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]


def browse(page: Path, home: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    """Open a page without a window."""
    argv = [
        *(BROWSER or "", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *("--enable-logging=stderr", f"--user-data-dir={home}", *flags, page.as_uri()),
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Return the report of a run with everything in it."""
    path = tmp_path / "report.html"
    path.write_text(html(sample_report(12)))
    return path


def test_the_page_shows_every_story_and_runs_nothing(page: Path, tmp_path: Path) -> None:
    """The browser builds one card a story, no script ran, and its policy refused nothing."""
    seen = browse(page, tmp_path / "profile", "--dump-dom")
    assert seen.stdout.count('<details class="story"') == 12
    assert "alert(1)" in seen.stdout
    assert "<script" not in seen.stdout
    assert "Refused" not in seen.stderr
    assert "CONSOLE" not in seen.stderr


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_has_a_picture_in_light_and_dark(page: Path, tmp_path: Path, scheme: str) -> None:
    """The two schemes look different; REPORT_SHOT names a folder that keeps the pictures."""
    shot = tmp_path / f"report-{scheme}.png"
    flags = [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", "--window-size=1280,2200"]
    browse(page, tmp_path / "profile", *flags, f"--screenshot={shot}")
    assert shot.stat().st_size > 50_000
    if "REPORT_SHOT" in os.environ:
        shutil.copy(shot, os.environ["REPORT_SHOT"])
