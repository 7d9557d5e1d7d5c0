"""The HTML report in a real browser: it shows without a request or a complaint, also on a phone."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from html import escape, unescape
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


def browse(
    page: Path, home: Path, *flags: str, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Open a page without a window."""
    argv = [
        *(BROWSER or "", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *("--enable-logging=stderr", f"--user-data-dir={home}", *flags, page.as_uri()),
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120, env=env)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Return the report of a run with everything in it."""
    path = tmp_path / "report.html"
    path.write_text(html(sample_report(12)))
    return path


def test_the_page_shows_every_story_and_runs_its_own_script_only(page: Path, tmp_path: Path) -> None:
    """The browser builds one card a story, local times are shown, and its policy refused nothing of ours."""
    seen = browse(page, tmp_path / "profile", "--dump-dom", env={**os.environ, "TZ": "Asia/Tokyo"})
    assert seen.stdout.count('<details class="story"') == 12
    assert "alert(1)" in seen.stdout
    assert "in your time zone, Asia/Tokyo" in seen.stdout
    assert (
        '<time datetime="2026-01-02T12:03:11.000Z" title="2026-01-02T12:03:11.000Z">2026-01-02 21:03:11'
        in (seen.stdout)
    )
    assert "Refused" not in seen.stderr
    assert "CONSOLE" not in seen.stderr


MEASURE = """
const page = document.querySelector("iframe").contentDocument;
const timeline = page.querySelector(".timeline");
const name = page.querySelector(".names a");
const before = name.getBoundingClientRect().left;
timeline.scrollLeft = 200;
const after = name.getBoundingClientRect().left;
const box = page.querySelector(".end").getBoundingClientRect();
const range = page.createRange();
range.selectNodeContents(page.querySelector(".end pre"));
const text = [...range.getClientRects()].pop();
document.title = JSON.stringify({
  wide: page.documentElement.scrollWidth, scrolled: timeline.scrollLeft, moved: after - before,
  below: text.bottom - box.bottom, above: range.getBoundingClientRect().top - box.top,
});
"""


def test_a_phone_keeps_the_names_and_shows_the_end_of_the_log(tmp_path: Path) -> None:
    """At 375 pixels only the drawing scrolls sideways, beside the names; a log is at its end."""
    wide = "".join(f"line {number} {'of a long output ' * 20}\n" for number in range(60))
    report = html(sample_report(12, log=wide.encode()))
    frame = f'<iframe width="375" height="900" srcdoc="{escape(report)}"></iframe>'
    page = tmp_path / "phone.html"
    page.write_text(f"<!doctype html>{frame}<script>onload = () => {{ {MEASURE} }}</script>")
    seen = browse(page, tmp_path / "profile", "--dump-dom", "--virtual-time-budget=2000")
    found = json.loads(unescape(seen.stdout.partition("<title>")[2].partition("</title>")[0]))
    assert found["wide"] <= 375
    assert found["scrolled"] == 200
    assert found["moved"] == 0
    assert found["below"] <= 0, "the last line is visible"
    assert found["above"] < -100, "and the first ones are not"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [1280, 375])
def test_it_has_a_picture_in_light_and_dark(page: Path, tmp_path: Path, scheme: str, width: int) -> None:
    """The two schemes look different; REPORT_SHOT names a folder that keeps the pictures."""
    name = f"report-{scheme}" if width > 375 else f"report-{scheme}-phone"
    shot = tmp_path / f"{name}.png"
    framed = tmp_path / "framed.html"
    # A window cannot be as narrow as a phone, a frame can.
    framed.write_text(
        f'<body style="margin:0"><iframe style="border:0" width="{width}" height="2200" src="{page.name}">'
    )
    flags = [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", f"--window-size={width},2200"]
    browse(framed, tmp_path / "profile", *flags, f"--screenshot={shot}")
    assert shot.stat().st_size > 50_000
    if "REPORT_SHOT" in os.environ:
        shutil.copy(shot, os.environ["REPORT_SHOT"])
