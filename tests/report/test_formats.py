"""Reports: whatever agents print, each form stays well-formed, harmless and small."""

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from isolation.git.diffstat import Diff
from runner.core.events import events as ev
from runner.core.events.events import WindowChanged
from runner.core.events.fold import fold
from runner.core.events.steering import StoryRetried
from runner.core.forecast.clashes import Clash, Forecast
from runner.core.limits.kill_switches import Switch
from runner.core.limits.prices import AS_OF
from runner.core.model import Note, Outcome, Status, StoryId
from runner.report.annotations import MOST, github, gitlab
from runner.report.html.page import html
from runner.report.html.timeline import timeline
from runner.report.junit import junit
from runner.report.markdown import LIMIT, markdown
from runner.report.report_data import ReportData
from tests.report.report_runs import NASTY, RUN, sample_report


class Page(HTMLParser):
    """Reads a page strictly: every element that opens is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that has no content."""
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost element."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.texts.append(data)


@pytest.fixture(scope="module")
def data() -> ReportData:
    """Return a run with every verdict and hostile text everywhere."""
    return sample_report(20)


class TestHtml:
    """One page that needs nothing else."""

    def test_it_is_well_formed_and_runs_nothing_of_others_and_loads_nothing(self, data: ReportData) -> None:
        """One script, whose digest the policy names; no handler, no address but anchors."""
        text = html(data)
        page = Page(text)
        assert page.tags["script"] == 1
        ours = text.partition("<script>")[2].partition("</script>")[0]
        digest = base64.b64encode(hashlib.sha256(ours.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'" in str(page.attributes)
        assert text.count('<details class="story"') == 20
        names = {name for _, name, _ in page.attributes}
        assert not {name for name in names if name.startswith("on") or name in {"src", "style"}}
        links = {value for _, name, value in page.attributes if name == "href"}
        assert links
        assert all(link.startswith("#story-") for link in links)
        anchors = {value for tag, name, value in page.attributes if (tag, name) == ("details", "id")}
        assert {link[1:] for link in links} == anchors
        assert "default-src 'none'" in str(page.attributes)
        assert not re.search(r"url\(|@import|https?://", html(data))

    def test_what_agents_wrote_is_shown_as_text(self, data: ReportData) -> None:
        """Titles, reasons, logs, paths and questions keep their letters and lose their power."""
        text = html(data)
        page = Page(text)
        assert "<script>alert(1)" not in text
        assert "<script>alert(1)</script>" in " ".join(page.texts)
        for letter in ("\x1b", "\x00", "\u202e"):
            assert letter not in text

    def test_it_tells_everything_about_a_story(self, data: ReportData) -> None:
        """Sessions, retries, decisions, cost, changes, kill-switch, branch and next command are there."""
        told = " ".join(Page(html(data)).texts)
        for text in (
            "10 of 20 stories done",
            "End of the output of session 3",
            "FAILED test_retry.py::test_timeout - TimeoutError",
            "retry: 1 Implement, attempt 1",
            "waits for a decision",
            "stall-timeout",
            "3 files changed, +51 -12",
            "services/payments/client.py",
            "autopilot-multi land",
            "12.9k tokens, $0.21",
            "tier degraded, 2 slots: 3.0 GB free",
            "exit code",
        ):
            assert text in told, text

    def test_the_timeline_has_every_session_in_its_place(self, data: ReportData) -> None:
        """Bars lie within the drawing, as many as there were sessions, in the order of time."""
        bars = re.findall(
            r'<rect class="session (\w+)" x="([\d.]+)%" y="[\d.]+" width="([\d.]+)%"', html(data)
        )
        sessions = [one for story in data.run.stories.values() for one in story.sessions]
        assert len(bars) == len(sessions)
        assert all(float(x) >= 4 and float(x) + float(width) <= 100 for _, x, width in bars)
        by_time = sorted(zip(sessions, bars, strict=True), key=lambda pair: pair[0].started_at)
        places = [float(bar[1]) for _, bar in by_time]
        assert places == sorted(places)
        assert {kind for kind, _, _ in bars} == {"work", "verify", "bad"}

    def test_a_story_that_had_ended_does_not_count_as_running(self) -> None:
        """One that is tried again later has not been in parallel with what ran in between."""
        entries = tuple({"id": name, "title": name, "depends_on": [], "source": ""} for name in "ab")
        a, b = StoryId("a"), StoryId("b")
        bodies: dict[int, ev.Body] = {
            0: ev.RunStarted(
                base="c", isolation="worktree", enforcement="none", max_stories=1, options={}, stories=entries
            ),
            1: ev.StoryStarted(story_id=a),
            3: ev.StoryFinished(story_id=a, verdict="failed", reason="no"),
            10: ev.StoryStarted(story_id=b),
            20: StoryRetried(story_id=a, by="person"),
            40: ev.StoryFinished(story_id=b, verdict="done", reason=""),
            50: ev.StoryStarted(story_id=a),
            52: ev.StoryFinished(story_id=a, verdict="done", reason=""),
        }
        events = [ev.Event(run_id=RUN, at=1000.0 + at, body=body) for at, body in bodies.items()]
        drawn = timeline(ReportData(run=fold(RUN, events), events=events))
        assert "<small>at most 1</small>" in drawn
        assert drawn.count('class="rest"') == 1

    def test_fifty_stories_with_endless_logs_stay_below_two_megabytes(self) -> None:
        """Escaping makes a log five times as long, and the page is cut after that."""
        endless = sample_report(50, log=b"<&\"'\n" * 400_000)
        page = html(replace(endless, diff=lambda _story: Diff(text="+<&\"'\n" * 100_000)))
        assert 200_000 < len(page.encode()) < 2_000_000
        assert "The diff continues; <code>git diff " in page

    def test_what_must_be_looked_at_is_open_and_first(self, data: ReportData) -> None:
        """Failed, then waiting, then stopped; what is done is folded."""
        cards = re.findall(r'<details class="story" id="story-(\w+)[^"]*"( open)?>', html(data))
        assert [name for name, open_ in cards if open_] == [
            "failed",
            "failed",
            "parked",
            "parked",
            "stopped",
            "stopped",
        ]
        assert [name for name, _ in cards][:6] == [name for name, open_ in cards if open_]

    def test_the_end_of_a_log_is_seen_and_the_rest_is_folded(self, data: ReportData) -> None:
        """The last lines are in a box that is scrolled to its end; how many came before is said."""
        lines = "".join(f"line {number}\n" for number in range(100))
        page = html(sample_report(3, kinds=("failed",), log=lines.encode()))
        box = page.partition('<div class="end"><pre>')[2].partition("</pre>")[0].splitlines()
        assert box == [f"line {number}" for number in range(75, 100)]
        assert "<summary>75 earlier lines</summary><pre>line 0\n" in page
        assert "earlier line" not in html(data)

    def test_what_was_stopped_is_not_red(self, data: ReportData) -> None:
        """Neither a session that was stopped or interrupted, nor a run that the user ended, has failed."""
        story = next(one for one in data.run.stories.values() if one.status is Status.STOPPED)
        for outcome in (Outcome.STOPPED, None):
            session = replace(story.sessions[0], outcome=outcome)
            switch = Switch.USER_ABORT.tripped("Ctrl-C")
            stopped = replace(story, sessions=(session,))
            page = html(
                ReportData(run=replace(data.run, stories={story.id: stopped}, kill_switch=switch, notes=()))
            )
            assert '<rect class="session halted"' in page
            assert '<span class="halted">■ ' in page
            assert '<p class="notice"><b>Ended by user-abort</b>: Ctrl-C. Continue with <code>' in page
            body = page.partition("<body>")[2].partition("<script>")[0]
            assert "bad" not in body

    def test_tiers_are_shown_only_where_they_mattered(self, data: ReportData) -> None:
        """A machine that was never busy explains nothing."""
        assert 'class="tier degraded"' in html(data)
        calm = [
            event
            for event in data.events
            if not isinstance(event.body, WindowChanged) or event.body.tier == "green"
        ]
        roomy = replace(data, run=replace(data.run, max_stories=1))  # a busy machine with slots enough
        assert 'class="tier' not in html(roomy).partition("<body>")[2]
        page = html(replace(data, events=calm)).partition("<body>")[2]
        assert 'class="tier' not in page
        assert "i-warn" not in page
        assert '<path class="window"' in page

    def test_a_diff_is_folded_and_only_text(self, data: ReportData) -> None:
        """Added and removed lines are marked; what is in them is text."""
        text = f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+{NASTY}\n\tkept"
        page = html(replace(data, diff=lambda _story: Diff(text=text, whole=False)))
        Page(page)
        assert '<span class="minus">-old</span>' in page
        assert '<span class="plus">+&lt;script&gt;' in page
        assert "The diff continues" in page

    def test_many_notes_do_not_hide_the_run(self, data: ReportData) -> None:
        """Three are shown, the others are folded; each is there once, with its stories."""
        names = list(data.run.stories)
        notes = [Note(at=0, story_id=names[n % 8], message=f"note {n // 8} on `x`") for n in range(40)]
        page = html(replace(data, run=replace(data.run, notes=tuple(notes))))
        assert page.count('<p class="notice"><b>') == 5
        assert "<summary>2 more notes</summary>" in page
        assert f"<b>{', '.join(names[:5])} and 3 others</b>: note 0 on <code>x</code>" in page

    def test_a_run_without_machine_or_stories_is_a_page_too(self, data: ReportData) -> None:
        """Joined shards tell of no one machine; an empty run has nothing to draw."""
        started, *rest = data.events
        quiet = [event for event in rest if type(event.body).__name__ != "WindowChanged"]
        page = html(replace(data, events=[started, *quiet]))
        assert "tier green" not in page
        Page(page)
        Page(html(ReportData(run=replace(data.run, stories={}))))


class TestJunit:
    """JUnit XML as Jenkins, GitHub's actions and GitLab read it."""

    @pytest.fixture
    def root(self, data: ReportData) -> ET.Element:
        """Return the parsed document."""
        return ET.fromstring(junit(data))  # noqa: S314  our own

    def test_the_structure_is_the_common_one(self, root: ET.Element) -> None:
        """Only known elements, in the common order, with counts that are true."""
        order = ["properties", "testcase"]
        for suite in root:
            assert suite.tag == "testsuite"
            assert [order.index(child.tag) for child in suite] == sorted(
                order.index(child.tag) for child in suite
            )
            cases = suite.findall("testcase")
            assert suite.get("tests") == str(len(cases))
            for name, tag in {"failures": "failure", "errors": "error", "skipped": "skipped"}.items():
                assert suite.get(name) == str(sum(case.find(tag) is not None for case in cases))
            for case in cases:
                assert {"classname", "name", "time"} == set(case.keys())
                inner = [child.tag for child in case]
                assert inner in ([], ["system-out"], ["failure"], ["error"], ["skipped"]) or inner in (
                    ["failure", "system-out"],
                    ["error", "system-out"],
                )
        assert set(root.attrib) <= {"name", "time", "tests", "failures", "errors"}, (
            "as the common schema has it"
        )
        for name in ("tests", "failures", "errors"):
            assert int(root.get(name, "")) == sum(int(suite.get(name, "")) for suite in root)
            assert int(root.get(name, "")) > 0

    def test_only_what_failed_in_the_end_is_a_failure(self, root: ET.Element) -> None:
        """A failed attempt that was made good passes and says so; verdicts are told by their cases."""
        suites = {suite.get("name", ""): suite for suite in root}
        assert suites["failed-2"].get("failures") == "1"
        assert len(suites["failed-2"].findall("testcase")) > 2, "it had several sessions"
        (failure,) = suites["failed-2"].iter("failure")
        assert failure.get("message")
        assert len((failure.text or "").splitlines()) > 1, "the reason, and what was printed"
        assert suites["retried-5"].get("failures") == "0"
        output = "".join(node.text or "" for node in suites["retried-5"].iter("system-out"))
        assert "a later session succeeded" in output
        assert suites["skipped-4"].get("skipped") == "1"
        assert suites["stopped-8"].get("errors") == "1"
        assert suites["parked-6"].get("skipped") == "1"

    def test_letters_that_xml_has_not_are_left_out(self, root: ET.Element) -> None:
        """What was printed is in the output, without what no XML can hold."""
        text = "".join(node.text or "" for node in root.iter("system-out"))
        assert "<script>alert(1)</script>" in text
        assert not set(text) & {"\x00", "\x1b", "\ufffe"}


class TestGithub:
    """Summary and annotations."""

    def test_annotations_cannot_be_forged(self, data: ReportData) -> None:
        """One line each, of our kinds, with the story's file; a command inside a reason is only text."""
        lines = github(data).splitlines()
        forms = [
            re.fullmatch(r"::(error|warning|notice) title=([^:,]+)(?:,file=([^:,]+))?::(.*)", line)
            for line in lines
        ]
        assert all(forms)
        assert Counter(form[1] for form in forms if form) == {"error": 4, "warning": 2, "notice": 2}
        assert "stories/failed-2.md" in github(data)

    def test_more_than_github_shows_are_summed_up(self) -> None:
        """The tenth error says how many more there are."""
        lines = github(sample_report(30, kinds=("failed",))).splitlines()
        assert len(lines) == MOST
        assert "21 more stories" in lines[-1]

    def test_the_summary_shows_text_as_it_is_and_stays_within_bounds(self, data: ReportData) -> None:
        """No element but ours, no table cell too many, fences that logs cannot close, below the limit."""
        page = markdown(data)
        outside = re.sub(r"^(`{3,})text\n.*?\n\1$", "", page, flags=re.MULTILINE | re.DOTALL)
        assert not re.search(r"(?<!\\)<(?!/?(details|summary)>)", outside)
        rows = [line for line in page.splitlines() if line.startswith("| ")]
        assert len(rows) == 21
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8}
        ticks = markdown(sample_report(3, log=b"````\n" * 50))
        assert "`````text" in ticks
        assert len(markdown(sample_report(2000)).encode()) <= LIMIT


def test_gitlab_gets_an_entry_for_each_story_that_is_not_done(data: ReportData) -> None:
    """Each with what its code quality report requires, and a fingerprint that stays."""
    entries = json.loads(gitlab(data))
    assert len(entries) == 8
    for entry in entries:
        assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert entry["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert entry["location"]["lines"]["begin"] == 1
    assert len({entry["fingerprint"] for entry in entries}) == 8
    assert json.loads(gitlab(sample_report(20))) == entries
    assert NASTY not in gitlab(data)


def test_an_estimated_cost_says_so_and_of_when_its_prices_are(data: ReportData) -> None:
    """Whoever reads a sum of money sees that it was reckoned, and from which list."""
    run = data.run
    story = next(one for one in run.stories.values() if one.usage.cost_usd)
    sessions = tuple(replace(one, usage=replace(one.usage, estimated=True)) for one in story.sessions)
    reckoned = replace(run, stories={**run.stories, story.id: replace(story, sessions=sessions)})
    words = f"(estimated: list prices of {AS_OF}, or your own)"
    for page in (html, markdown):
        assert "about $" not in page(data)
        assert words not in page(data)
        assert f"about ${story.usage.cost_usd:.2f}" in page(replace(data, run=reckoned))
        assert words in page(replace(data, run=reckoned))
    assert AS_OF in (Path(__file__).parents[2] / "docs/reference/settings.md").read_text()


def test_foreseen_conflicts_are_a_section_and_harmless(data: ReportData) -> None:
    """Stories with files, the order and how many more there are; without conflicts there is no section."""
    assert "Conflicts foreseen" not in markdown(data) + html(data)
    one, two = list(data.run.stories)[:2]
    clash = Clash(stories=(one, two), files=(NASTY, "b", "c", "d"))
    foreseen = Forecast(clashes=(clash,) * 25, order=(two, one), onto="main")
    told = replace(data, run=replace(data.run, forecast=foreseen))
    page = Page(html(told))
    assert page.tags["table"] >= 1
    text = " ".join(page.texts)
    assert f"{one} and {two}" in text
    assert "and 1 more" in text
    for words in ("Conflicts foreseen", "5 more pairs", "Best order to land"):
        assert words in text
        assert words in markdown(told)
